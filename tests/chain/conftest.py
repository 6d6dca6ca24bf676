"""A fresh embedded chain, and its file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.chain.embedded.embedded_chain import EmbeddedChain


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chain.sqlite"


@pytest.fixture
def chain(path: Path) -> Iterator[EmbeddedChain]:
    with EmbeddedChain.create(path, synchronous="NORMAL") as chain:
        yield chain
