"""Coverage of a run that goes on: ended rounds alone, in parts that follow each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ledger.history.history import FoldedHistory
from ledger.history.training_coverage import counting_only, joined, training_coverage
from ledger.protocol.errors import ConfigurationError
from ledger.storage.blobs import MemoryBlobs
from ledger.storage.mailbox import MemoryMailbox
from tests.api.store.conftest import contract_in

if TYPE_CHECKING:
    from pathlib import Path


def test_an_open_round_is_not_covered(tmp_path: Path) -> None:
    mailbox = MemoryMailbox()
    with contract_in(tmp_path, rounds=6, commit_blocks=1, deadline_blocks=3) as contract:

        def covered(
            first: int | None = None, last: int | None = None, most: int = 9
        ) -> tuple[int, int, int, int | None]:
            history = FoldedHistory.of(contract.ledger, MemoryBlobs())
            bounds, rounds = (first, last), []

            def is_enough(_: int) -> bool:
                rounds.append(1)
                return len(rounds) >= most

            found = training_coverage(history, contract.domain, mailbox, bounds, is_enough)
            assert counting_only(found, {"0x"}) == found
            assert joined([found])["next_from"] is None
            return found["first"], found["last"], found["ended"], found["next_from"]

        assert covered() == (1, 0, 0, None)
        with pytest.raises(ConfigurationError, match="ended rounds"):
            covered(1, 1)
        for _ in range(3):
            assert contract.run.driver.abandon(contract.run.chain_view())
        assert covered() == (1, 3, 3, None)
        assert covered(2) == (2, 3, 3, None)
        assert covered(None, 2) == (1, 2, 3, None)
        assert covered(most=1) == (1, 1, 3, 2)
        assert covered(2, 3, most=1) == (2, 2, 3, 3)
        for first, last in ((4, None), (None, 4), (3, 2), (0, 1)):
            with pytest.raises(ConfigurationError, match="ended rounds"):
                covered(first, last)
