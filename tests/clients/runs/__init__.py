"""Runs in a home."""
