"""Who may write is what the chain says, a second ago at most; it may be away for a minute."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from api.store.serve import serving_alone
from api.store.standing import FRESH_SECONDS, STALE_SECONDS, Standings
from ledger.chain.contract.committee_ledger import CommitteeLedger, Snapshot
from ledger.protocol.errors import ChainError, ConfigurationError
from tests.actors.support import PARAMETERS, signers

if TYPE_CHECKING:
    from pathlib import Path

    from tests.api.store.conftest import Contract


class CountingLedger(CommitteeLedger):
    """The contract behind a node that is away at times."""

    is_away = False
    asked = 0

    def state(self, block_number: int | None = None) -> Snapshot:
        self.asked += 1
        if self.is_away:
            raise ChainError("the node is away")
        return super().state(block_number)


def test_the_chain_is_asked_once_a_second_and_may_be_away_for_a_minute(
    contract: Contract,
) -> None:
    ledger = CountingLedger(contract.ledger.chain, contract.ledger.address)
    now = 0.0
    standings = Standings(ledger, lambda: now)
    first = standings.now()
    assert first.round == 1
    assert [client.address for client in first.registry] == [
        signer.address for signer in signers()[: PARAMETERS.clients]
    ]
    assert [first.takes(number) for number in range(4)] == [True, True, True, False]
    assert standings.now() is first
    assert ledger.asked == 1
    ledger.is_away = True
    now = FRESH_SECONDS
    assert standings.now() is first
    assert ledger.asked == 2
    now = STALE_SECONDS + 1
    with pytest.raises(ChainError, match="away"):
        standings.now()
    ledger.is_away = False
    now += FRESH_SECONDS
    assert standings.now() == first


def test_a_silent_node_holds_one_thread_and_not_all(contract: Contract) -> None:
    ledger = CountingLedger(contract.ledger.chain, contract.ledger.address)
    now, asking, may_answer = 0.0, threading.Event(), threading.Event()
    standings = Standings(ledger, lambda: now)
    first = standings.now()
    read = ledger.state

    def silent(block_number: int | None = None) -> Snapshot:
        asking.set()
        assert may_answer.wait(10)
        return read(block_number)

    ledger.is_away = True
    now = FRESH_SECONDS
    assert standings.now() is first
    # It was away a moment ago: nobody asks it at once again.
    assert standings.now() is first
    assert ledger.asked == 2
    now = 2 * FRESH_SECONDS
    ledger.state = silent  # type: ignore[method-assign]
    with ThreadPoolExecutor(1) as held:
        asked = held.submit(standings.now)
        assert asking.wait(10)
        assert standings.now() is first
        now = STALE_SECONDS + 1
        with pytest.raises(ChainError, match="away"):
            standings.now()
        ledger.is_away = False
        may_answer.set()
        assert asked.result(10) == first
    now += FRESH_SECONDS
    assert standings.now() == first


def test_a_folder_has_one_store(tmp_path: Path) -> None:
    with (
        serving_alone(tmp_path / "store"),
        pytest.raises(ConfigurationError, match="another process serves it"),
        serving_alone(tmp_path / "store"),
    ):
        pass
    with serving_alone(tmp_path / "store"):
        pass
    with (
        pytest.raises(ConfigurationError, match="No such file"),
        serving_alone(tmp_path / "none" / "x"),
    ):
        pass
