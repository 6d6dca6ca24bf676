"""Experiments: which runs, their rows, and what follows from them."""
