"""The committee ledger contract, read and written through any chain."""
