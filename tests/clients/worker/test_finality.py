"""A worker signs nothing on a chain that has taken back what was final when it acted on it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from clients.worker.finality import Watched
from ledger.chain.embedded.chain import EmbeddedChain
from ledger.chain.finality.acted_on import ActedOn
from ledger.chain.ports import ChainBehindError, ReorganisedError

if TYPE_CHECKING:
    from pathlib import Path


def test_what_was_acted_on_outlives_the_process_and_is_held_against_the_chain(
    tmp_path: Path,
) -> None:
    noted = tmp_path / "acted-on.json"
    with EmbeddedChain.create(tmp_path / "one.sqlite", clock=lambda: 1e9):
        pass
    shutil.copy(tmp_path / "one.sqlite", tmp_path / "two.sqlite")
    with EmbeddedChain.open(tmp_path / "one.sqlite", clock=lambda: 1e9) as chain:
        chain.mine(3)
        watched = Watched(chain, ActedOn.open(noted, chain))
        watched.require_unchanged()
        watched.act_on(2)
        watched.act_on(1)  # older: nothing new
        chain.mine(1)
        Watched(chain, ActedOn.open(noted, chain)).require_unchanged()
    with EmbeddedChain.open(tmp_path / "two.sqlite", clock=lambda: 2e9) as other:
        other.mine(1)
        behind = Watched(other, ActedOn.open(noted, other))
        with pytest.raises(ChainBehindError):
            behind.require_unchanged()
        other.mine(1)
        with pytest.raises(ReorganisedError, match="block 2 was"):
            behind.require_unchanged()
        accepted = ActedOn.open(noted, other)
        assert accepted.accept(other) == [2]
        Watched(other, accepted).require_unchanged()
