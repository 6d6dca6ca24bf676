"""Readers of data files, which may be damaged or hostile."""
