"""Pre-aggregators, one file each."""
