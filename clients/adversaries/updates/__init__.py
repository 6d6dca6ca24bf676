"""Attacks on updates: one file each, listed in `clients/adversaries/registry.py`."""
