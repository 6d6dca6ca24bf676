"""Attacks on updates, listed in `clients/attacks/registry.py`."""
