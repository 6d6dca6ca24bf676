"""The ledger: the protocol, the chain that records it, the blobs behind it, and the audit."""

__distribution__ = "cmfl-ledger"  # by which `import cmfl` knows the package as its own
