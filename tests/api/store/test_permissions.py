"""Who may write is what the chain says, a second ago at most; it may be away for a minute."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from api.http.answers import ProblemError
from api.store.app import STORE_LOCK
from api.store.receiver import (
    FRESH_SECONDS,
    STALE_SECONDS,
    PermissionCache,
    require_round,
)
from ledger.chain.contract import abi
from ledger.chain.contract.ledger import CommitteeLedger
from ledger.chain.ports import Log
from ledger.chain.round_ledger import LedgerSnapshot
from ledger.io.home import sole_process
from ledger.protocol.errors import ChainError, ConfigurationError
from tests.actors.support import PARAMETERS, signers
from tests.api.store.conftest import Contract, contract_in
from tests.audit.forged_chain import forged
from tests.patience import PATIENCE_SECONDS


class CountingLedger(CommitteeLedger):
    """The contract behind a node that is away at times; counts who asks for the newest state."""

    is_away = False
    asked = 0

    def state(self, block_number: int | None = None) -> LedgerSnapshot:
        self.asked += block_number is None
        if self.is_away:
            raise ChainError("the node is away")
        return super().state(block_number)


def test_the_chain_is_queried_once_second_and_may_be_offline(contract: Contract) -> None:
    ledger = CountingLedger(contract.ledger.chain, contract.ledger.address)
    now = 0.0
    permissions = PermissionCache(ledger, lambda: now)
    first = permissions.now()
    assert first.round == 1
    assert [client.address for client in first.registry] == [
        signer.address for signer in signers()[: PARAMETERS.clients]
    ]
    for number in range(3):
        require_round(first, number)
    with pytest.raises(ProblemError, match="round 3 is not taken while round 1 is open"):
        require_round(first, 3)
    assert permissions.now() is first
    assert ledger.asked == 1
    ledger.is_away = True
    now = FRESH_SECONDS
    assert permissions.now() is first
    assert ledger.asked == 2
    now = STALE_SECONDS + 1
    with pytest.raises(ChainError, match="away"):
        permissions.now()
    ledger.is_away = False
    now += FRESH_SECONDS
    assert permissions.now() == first


def test_a_silent_node_holds_one_thread_and_not_all(contract: Contract) -> None:
    ledger = CountingLedger(contract.ledger.chain, contract.ledger.address)
    now, asking, may_answer = 0.0, threading.Event(), threading.Event()
    permissions = PermissionCache(ledger, lambda: now)
    first = permissions.now()
    read = ledger.state

    def silent(block_number: int | None = None) -> LedgerSnapshot:
        asking.set()
        assert may_answer.wait(PATIENCE_SECONDS)
        return read(block_number)

    ledger.is_away = True
    now = FRESH_SECONDS
    assert permissions.now() is first
    # It was away a moment ago: nobody asks it at once again.
    assert permissions.now() is first
    assert ledger.asked == 2
    now = 2 * FRESH_SECONDS
    ledger.state = silent  # type: ignore[method-assign]
    with ThreadPoolExecutor(1) as held:
        asked = held.submit(permissions.now)
        assert asking.wait(PATIENCE_SECONDS)
        assert permissions.now() is first
        now = STALE_SECONDS + 1
        with pytest.raises(ChainError, match="away"):
            permissions.now()
        ledger.is_away = False
        may_answer.set()
        assert asked.result(PATIENCE_SECONDS) == first
    now += FRESH_SECONDS
    assert permissions.now() == first


def test_a_node_that_omits_an_event_grants_nobody_write_permission(tmp_path: Path) -> None:
    """Without its ban a banned client could write; without its registration nobody could."""
    with contract_in(tmp_path) as contract:
        banned = contract.run.chain_view().participants().trainers[0]
        contract.run.ban(banned)
        for event in ("ClientsRegistered", "LedgerOpened", "ClientBanned"):
            lacking = forged(contract.ledger, logs_of=partial(_without, abi.topic(event)))
            with pytest.raises(ChainError, match="the logs"):
                PermissionCache(lacking, lambda: 0.0).now()
        current = PermissionCache(contract.ledger, lambda: 0.0).now()
        assert [i for i, one in enumerate(current.registry) if one.banned_in] == [banned]


def _without(topic: bytes, logs: list[Log]) -> list[Log]:
    return [log for log in logs if log.topics[0] != topic]


def test_a_folder_has_one_store(tmp_path: Path) -> None:
    with (
        sole_process(tmp_path / "store", STORE_LOCK),
        pytest.raises(ConfigurationError, match="serves it"),
        sole_process(tmp_path / "store", STORE_LOCK),
    ):
        pass
    with sole_process(tmp_path / "store", STORE_LOCK):
        pass
    with (
        pytest.raises(ConfigurationError, match="No such file"),
        sole_process(tmp_path / "none" / "x", STORE_LOCK),
    ):
        pass
