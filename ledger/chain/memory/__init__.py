"""A run's ledger in the memory of one process: the same rules, not durable."""
