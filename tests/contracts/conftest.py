"""One chain for all tests of the contract: every test deploys a contract of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest

from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.ports import ChainWriter
from tests.contracts.revm_chain import RevmChain


@pytest.fixture(scope="session")
def chain() -> ChainWriter:
    """On revm, where a transaction is a tenth of the work that it is on py-evm."""
    return cast("ChainWriter", RevmChain())


@pytest.fixture(scope="session")
def embedded_chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedChain]:
    """For what asks for gas, for the past, or for another account."""
    path = tmp_path_factory.mktemp("contracts") / "chain.sqlite"
    with EmbeddedChain.create(path, clock=lambda: 1_700_000_000.0, synchronous="NORMAL") as chain:
        yield chain
