"""Owners with keys of their own behind a carrier: whatever it does, the verdict is the same."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest
import torch

from clients.worker.carried import carrier as carrier_module
from clients.worker.carried.carrier import Carrier, carry_until_finished
from ledger.chain.contract.deployment import deployed_domain
from ledger.storage.folder import FolderObjects
from tests.clients.runs.flower.connected import ConnectedNodes
from tests.clients.worker.carried.lying import LIES, LyingCarrier
from tests.clients.worker.carried.owners import CarriedRun, direct_head
from tests.cmfl.commands.conftest import cmfl, succeeds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SEED = 1
"""With it the first owner decides round 1, so that all commit in the order of their clients."""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(carrier_module, "_POLL_SECONDS", 0.0)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def nodes_of(run: CarriedRun) -> ConnectedNodes:
    return ConnectedNodes({10 + i: owner.answer for i, owner in enumerate(run.owners)})


def test_the_head_is_that_of_one_process_and_the_end_fetched(tmp_path: Path) -> None:
    expected = direct_head(tmp_path / "direct", SEED, rounds=1)
    rounds: list[int] = []
    with CarriedRun(tmp_path, SEED, rounds=1) as run:
        carrier = Carrier(nodes_of(run), FolderObjects(run.home.blobs), 60.0)
        head = run.play(carrier.exchange, exchanges_last=False)
        # What the last round leaves is not carried yet.
        assert cmfl("audit", "--home", run.home.path).code != 0
        assert head == carry_until_finished(carrier, run.ledger.state, rounds.append, lambda: None)
    assert rounds == []
    assert head == expected
    succeeds("audit", "--home", run.home.path)


def test_a_lying_carrier_changes_no_verdict(tmp_path: Path) -> None:
    with CarriedRun(tmp_path, SEED) as run:
        objects, domain = (
            FolderObjects(run.home.blobs),
            deployed_domain(run.ledger, allow_unknown_creation=False),
        )
        carrier = LyingCarrier(nodes_of(run), objects, 60.0, domain, Random(7))
        head = run.play(carrier.exchange)
    assert min(carrier.lies[lie] for lie in LIES) > 10
    assert head == direct_head(tmp_path / "direct", SEED)
    succeeds("audit", "--home", run.home.path)
