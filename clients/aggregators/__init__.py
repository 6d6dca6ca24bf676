"""Aggregators: one update of many, one file each."""
