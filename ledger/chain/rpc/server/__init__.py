"""The embedded chain as a JSON-RPC node: for web3 in this process, and over HTTP on loopback."""
