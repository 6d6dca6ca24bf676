"""The file behind the embedded chain: SQLite, its log, its lock, and what stands beside it."""
