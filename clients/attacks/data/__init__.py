"""Attacks on training samples: one file each, listed in `clients/attacks/data/registry.py`."""
