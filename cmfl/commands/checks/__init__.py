"""Checks of `cmfl doctor`: machine, home and node."""
