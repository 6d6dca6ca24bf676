"""Chains behind JSON-RPC nodes, and the embedded chain served as such a node."""
