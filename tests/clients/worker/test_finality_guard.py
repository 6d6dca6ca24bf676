"""A worker signs nothing on a chain that has taken back what was final when it acted on it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from clients.worker.finality_guard import ChainFinalityGuard
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.finality import AncestryCheck, FinalityCheckpoints
from ledger.chain.ports import ChainBehindError, ReorganisedError

if TYPE_CHECKING:
    from pathlib import Path

    from ledger.chain.ports import ChainReader


def look(
    watched: ChainFinalityGuard, chain: ChainReader, lineage: AncestryCheck | None = None
) -> None:
    """Hold a chain's head against what was acted on, as a worker's step does."""
    watched.require_unchanged(chain.head(), lineage or AncestryCheck(chain.block))


def test_processed_state_survives_and_is_checked_against_the_chain(tmp_path: Path) -> None:
    noted = tmp_path / "acted-on.json"
    with EmbeddedChain.create(tmp_path / "one.sqlite", clock=lambda: 1e9):
        pass
    shutil.copy(tmp_path / "one.sqlite", tmp_path / "two.sqlite")
    with EmbeddedChain.open(tmp_path / "one.sqlite", clock=lambda: 1e9) as chain:
        chain.mine(3)
        watched = ChainFinalityGuard(chain, FinalityCheckpoints.open(noted, chain))
        look(watched, chain)
        watched.act_on(2)
        watched.act_on(1)  # older: nothing new
        chain.mine(1)
        look(watched, chain)
        look(ChainFinalityGuard(chain, FinalityCheckpoints.open(noted, chain)), chain)
    with EmbeddedChain.open(tmp_path / "two.sqlite", clock=lambda: 2e9) as other:
        other.mine(1)
        behind = ChainFinalityGuard(other, FinalityCheckpoints.open(noted, other))
        with pytest.raises(ChainBehindError):
            look(behind, other)
        other.mine(1)
        with pytest.raises(ReorganisedError, match="block 2 was"):
            look(behind, other)
        accepted = FinalityCheckpoints.open(noted, other)
        assert accepted.accept(other) == [2]
        look(ChainFinalityGuard(other, accepted), other)


def test_a_head_that_was_refused_vouches_for_nothing(tmp_path: Path) -> None:
    noted = tmp_path / "acted-on.json"
    with EmbeddedChain.create(tmp_path / "one.sqlite", clock=lambda: 1e9) as chain:
        chain.mine(2)
        watched = ChainFinalityGuard(chain, FinalityCheckpoints.open(noted, chain))
        look(watched, chain)
        watched.act_on(2)
    with EmbeddedChain.create(tmp_path / "two.sqlite", clock=lambda: 1e9) as other:
        lineage = AncestryCheck(other.block)
        other.send(other.sender, b"", 30_000)
        watched = ChainFinalityGuard(other, FinalityCheckpoints.open(noted, other))
        other.mine(1)
        for _ in range(3):
            with pytest.raises(ReorganisedError):
                look(watched, other, lineage)
            other.mine(1)
