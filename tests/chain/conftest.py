"""A fresh embedded chain, and its file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ledger.chain.embedded.embedded_chain import EmbeddedChain

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chain.sqlite"


@pytest.fixture
def chain(path: Path) -> Iterator[EmbeddedChain]:
    with EmbeddedChain.create(path, synchronous="NORMAL") as chain:
        yield chain
