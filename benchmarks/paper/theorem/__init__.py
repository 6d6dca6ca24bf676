"""Theorem 1 of the paper, computed: every constant of its bound, and the error beside it."""
