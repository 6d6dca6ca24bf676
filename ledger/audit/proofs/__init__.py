"""Proofs about one client in one round, as documents that anyone can check."""
