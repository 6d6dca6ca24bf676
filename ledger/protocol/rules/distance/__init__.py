"""Distances between two updates: D_k^c of Eq. computeScore, and its variants."""
