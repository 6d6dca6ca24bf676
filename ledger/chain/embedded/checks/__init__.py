"""Verification of a chain file: it is what the EVM made, and it can be extended."""
