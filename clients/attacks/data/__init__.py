"""Attacks on training samples."""
