"""What the matrix calls a lost round, and what it leaves to a reorganisation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import pytest

from clients.testnet.network import LocalNetwork
from clients.testnet.watch import WatchedRound
from ledger.chain.contract.ledger import CommitteeLedger
from ledger.chain.round_ledger import RecordedEvent
from ledger.protocol.ledger_state import RoundAbandoned
from ledger.protocol.types import Digest
from tests.federation.cells import Fault
from tests.federation.checks import Checks, Violation, Wrong
from tests.federation.disturbances import Disturbance


def head(letter: str) -> Digest:
    return Digest(letter.encode() * 32)


@dataclass
class Outcomes:
    """Of a contract, what it says of the rounds that have ended, and nothing else."""

    heads: list[str] = field(default_factory=list)

    def outcomes(self, limit: int) -> list[RecordedEvent]:
        ended = [
            RecordedEvent(
                RoundAbandoned(number, (), Digest(bytes(32)), head(letter)),
                block_number=number,
                block_hash=bytes(32),
                transaction_hash=bytes(32),
                log_index=0,
            )
            for number, letter in enumerate(self.heads, 1)
        ]
        return ended[::-1][:limit]


class Told:
    """Checks that are told rounds, and the contract that they ask."""

    def __init__(self) -> None:
        self.checks = Checks(cast("LocalNetwork", None))
        self.contract = Outcomes()

    def ends(self, letter: str) -> None:
        number = len(self.contract.heads) + 1
        self.contract.heads.append(letter)
        one = WatchedRound(number, 0.0, (0, 0), (), (), (), (), (), None, head(letter))
        self.checks.ended(one, None)
        self.settle()

    def settle(self) -> None:
        self.checks.settled(cast("CommitteeLedger", self.contract))

    def reread(self) -> list[Violation]:
        self.checks.history(cast("CommitteeLedger", self.contract))
        return self.checks.violations


@pytest.fixture
def told() -> Told:
    return Told()


def test_rounds_that_keep_their_heads_are_not_lost(told: Told) -> None:
    for letter in "abc":
        told.ends(letter)
    assert told.reread() == []
    assert told.checks.untrained == range(1, 3), "the newest may still be taken back"


def test_a_reorganised_end_may_come_again_differently(told: Told) -> None:
    told.ends("a")
    told.checks.begun(Disturbance(Fault.REORGANISED, (), frozenset()), 2)
    told.contract.heads[0] = "A"
    told.ends("b")
    assert told.reread() == []
    told.contract.heads[0] = "a"
    lost = Violation(Wrong.LOST_ROUND, 1)
    assert told.reread() == [lost], "it was final as A"
    assert told.reread() == [lost], "and is told once"


def test_an_end_that_changes_without_a_reorganisation_is_lost(told: Told) -> None:
    told.ends("a")
    told.contract.heads[0] = "A"
    told.ends("b")
    assert told.reread() == [Violation(Wrong.LOST_ROUND, 1)]


def test_a_round_that_is_no_longer_recorded_is_lost(told: Told) -> None:
    for letter in "abc":
        told.ends(letter)
    told.contract.heads = []
    assert told.reread() == [Violation(Wrong.LOST_ROUND, 1), Violation(Wrong.LOST_ROUND, 2)]
