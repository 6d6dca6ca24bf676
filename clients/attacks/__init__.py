"""Attacks: on updates and on training samples, one file each."""
