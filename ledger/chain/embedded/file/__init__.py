"""The file of an embedded chain: SQLite database, log, lock, and head note."""
