"""The ledger: the protocol, the chain that records it, the blobs behind it, and the audit."""
