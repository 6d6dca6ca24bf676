"""One embedded chain for all tests of the contract: every test deploys a contract of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ledger.chain.embedded.chain import EmbeddedChain

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedChain]:
    path = tmp_path_factory.mktemp("contracts") / "chain.sqlite"
    with EmbeddedChain.create(path, clock=lambda: 1_700_000_000.0, synchronous="NORMAL") as chain:
        yield chain
