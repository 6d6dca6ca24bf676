"""A deployed run for the tests that need a real contract."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.actors.journal import FileJournal
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from tests.actors.deployed import Deployed, deployed_on


@pytest.fixture
def deployed(tmp_path: Path) -> Iterator[Deployed]:
    path = tmp_path / "chain.sqlite"
    with EmbeddedChain.create(path, clock=lambda: 1_700_000_000.0, synchronous="NORMAL") as chain:
        found = deployed_on(chain, tmp_path)
        yield found
        assert isinstance(found.context.journal, FileJournal)
        found.context.journal.close()
