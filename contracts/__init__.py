"""The Vyper contracts and their committed build artefacts: data, not code."""

__distribution__ = "cmfl-ledger"  # by which `import cmfl` knows the package as its own
