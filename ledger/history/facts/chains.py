"""A chain: its name in paths, and its newest block."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.history.facts.words import hexed, moment

if TYPE_CHECKING:
    from ledger.history.facts.words import Facts
    from ledger.history.pinned_chain import PinnedChain


def chain_facts(now: PinnedChain) -> Facts:
    """Return what does not change of a chain."""
    path = now.path
    return {
        "name": path.name,
        "chain_id": str(path.chain_id),
        "genesis": hexed(path.genesis),
        "links": {"deployments": f"{path}/deployments"},
    }


def head_facts(now: PinnedChain) -> Facts:
    """Return a chain with its newest block."""
    block = now.block
    return chain_facts(now) | {
        "number": block.number,
        "hash": hexed(block.hash),
        **moment(block.timestamp),
    }
