"""Runs in one process, on a chain of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ledger.blobs.store import MemoryBlobs
from tests.clients.played import CuttingChain, Player

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def player(tmp_path: Path) -> Iterator[Player]:
    with CuttingChain.create(tmp_path / "chain.sqlite") as chain:
        assert isinstance(chain, CuttingChain)
        yield Player(tmp_path, chain, MemoryBlobs())


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Player]:
    """Another home with a chain of its own, which has the same id."""
    (tmp_path / "other").mkdir()
    with CuttingChain.create(tmp_path / "other" / "chain.sqlite") as chain:
        assert isinstance(chain, CuttingChain)
        yield Player(tmp_path / "other", chain, MemoryBlobs())
