"""The embedded chain in JSON-RPC: for web3 in this process, and on loopback for everybody else."""
