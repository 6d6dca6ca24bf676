"""Attacks on training samples: one file each, listed in `clients/adversaries/data/registry.py`."""
