"""Fast distances between updates: compiled, or in NumPy."""
