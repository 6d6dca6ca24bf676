"""The only room that knows a chain: an EVM in this process, any JSON-RPC node, the contract."""
