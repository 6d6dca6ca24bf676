"""The clients: their data, their training, their scores, and whole runs with all of them."""

__distribution__ = "cmfl-ledger"
"""By which `import cmfl` knows the package as its own."""
