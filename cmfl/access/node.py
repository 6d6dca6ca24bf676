"""The chain of a node that was named without its id."""

from __future__ import annotations


def chain_id_of(url: str) -> int:
    """Return the chain id that a node says it has."""
    from ledger.chain.rpc.rpc_reader import RpcReader

    with RpcReader(url, chain_id=None) as chain:
        return chain.chain_id
