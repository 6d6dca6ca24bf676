"""Owners with keys of their own behind a carrier: whatever it does, the verdict is the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from clients.worker.carried import carrier as carrier_module
from clients.worker.carried.carrier import Carrier
from ledger.storage.folder import FolderObjects
from tests.clients.runs.flower.connected import ConnectedNodes
from tests.clients.worker.carried.owners import CarriedRun, direct_head

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SEED = 0


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(carrier_module, "_POLL_SECONDS", 0.0)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_the_head_is_that_of_a_run_in_one_process(tmp_path: Path) -> None:
    with CarriedRun(tmp_path / "carried", SEED) as run:
        nodes = ConnectedNodes({10 + i: owner.answer for i, owner in enumerate(run.owners)})
        carrier = Carrier(nodes, FolderObjects(run.home.blobs), 60.0)
        head = run.play(carrier.exchange)
    assert head.hex() == direct_head(tmp_path / "direct", SEED).hex()
