"""Attacks on updates: one file each, listed in `clients/attacks/registry.py`."""
