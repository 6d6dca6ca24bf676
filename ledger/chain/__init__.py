"""Blockchains behind two ports: an embedded EVM, any JSON-RPC node, a ledger in memory."""
