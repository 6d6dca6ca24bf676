"""Distances of a whole round in compiled code, the same for members and auditors; no torch."""
