"""Data sets divided among clients: a file each, and `registry` to choose; nothing needs torch."""
