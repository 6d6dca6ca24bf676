"""One chain for all programs: they leave nothing behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ledger.chain.embedded.embedded_chain import EmbeddedChain
from tests.chain.embedded.engine.programs import Arena


@pytest.fixture(scope="package")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    path = tmp_path_factory.mktemp("arena") / "chain.sqlite"
    with EmbeddedChain.create(path, synchronous="NORMAL") as chain:
        yield Arena(chain)
