"""The events of a contract lead to its state, and are believed only where they do."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

import pytest

from ledger.chain.contract.committee_ledger import CommitteeLedger
from ledger.chain.contract.complete_log import (
    ATTEMPTS,
    CompleteLog,
    complete_ledger,
    storage_difference,
    view_after,
)
from ledger.chain.contract.deployment import deployment_for
from ledger.chain.memory import MemoryLedger
from ledger.chain.ports import ChainMovedError, IncompleteLogsError, NotServedError
from ledger.protocol.documents.run import RunDocument
from ledger.protocol.encoding import sha256
from ledger.protocol.fold import LedgerView
from tests.actors.branching import SHORT
from tests.actors.support import LAYOUT, registry_of
from tests.audit.forged_chain import ForgedChain, forged
from tests.audit.runs import Run
from tests.support.keys import DOMAIN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ledger.chain.contract.event_logs import RecordedEvent
    from ledger.chain.ports import ChainReader, Log

T = TypeVar("T")


def events_of(run: Run) -> list[RecordedEvent]:
    return run.ledger.recorded_in(run.ledger.from_block, run.chain.head().number)


def test_no_single_event_can_be_left_out_or_come_twice(honest: Run) -> None:
    ledger, events = honest.ledger, events_of(honest)
    assert len({type(recorded.event) for recorded in events}) == 7
    begin, state = LedgerView.at_deployment(ledger.deployment()), ledger.state()
    for place in range(len(events)):
        for wrong in (events[:place] + events[place + 1 :], events[: place + 1] + events[place:]):
            assert storage_difference(view_after(begin, wrong), state) is not None


def test_a_registration_in_batches_is_counted_batch_by_batch() -> None:
    """The digest of what is left to register is the contract's; no event tells it."""
    parameters = replace(SHORT, clients=600, active_ppm=50_000)
    document = RunDocument(parameters, registry_of(parameters), sha256(b"model"), LAYOUT, {})
    deployment, batches = deployment_for(document)
    ledger = MemoryLedger(deployment, DOMAIN)
    view = LedgerView.at_deployment(deployment)
    assert storage_difference(view, ledger.state()) is not None, "the deployment has left a log"
    view = view_after(view, ledger.recorded_in(1, 1))
    assert storage_difference(view, ledger.state()) is None
    assert len(batches) == 3
    for batch in batches:
        ledger.register_clients(batch.words, batch.rest)
        newest = ledger.newest_block().number
        assert storage_difference(view, ledger.state()) is not None
        view = view_after(view, ledger.recorded_in(newest, newest))
        assert storage_difference(view, ledger.state()) is None


@dataclass
class Branch(ForgedChain):
    """A chain of which a question may be answered by another branch.

    Attributes:
        moves: returns the chain that answers a call, given its name and how often it was made.
    """

    moves: Callable[[str, int], ChainReader] | None = None
    calls: Counter[str] = field(default_factory=Counter)

    def passed(self, name: str, ask: Callable[[ChainReader], T]) -> T:
        self.calls[name] += 1
        return ask(self.chain if self.moves is None else self.moves(name, self.calls[name]))


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    run = Run.on_revm(tmp_path)
    run.play()
    with run.chain:
        yield run


def answers(ledger: CommitteeLedger) -> list[object]:
    rounds = [(ledger.opening(n), ledger.round_events(n), ledger.commitments(n)) for n in (1, 2)]
    lists = ledger.registry(), ledger.bans(), ledger.outcomes(1), ledger.state()
    return [*rounds, *lists, ledger.outcomes(9, descending=False), ledger.deployment()]


def test_a_complete_log_answers_what_the_chain_does(honest: Run) -> None:
    assert answers(complete_ledger(honest.ledger)) == answers(honest.ledger)


def test_log_continues_where_it_was_read_as_of_its_block(run: Run) -> None:
    node = Branch(run.chain)
    ledger, log = at(node, run), CompleteLog()
    before = log.up_to(ledger)
    told = answers(before)
    run.commit({client: run.word(client) for client in run.trainers[:2]})
    asked = dict(node.calls)
    after = log.up_to(ledger)
    more = {name: count - asked.get(name, 0) for name, count in node.calls.items()}
    assert {name for name, count in more.items() if count} == {"head", "block", "logs", "call"}
    assert sum(more.values()) <= 6
    assert answers(after) == answers(run.ledger)
    assert answers(before) == told
    assert len(after.commitments(2)) == 2
    earlier = log.up_to(ledger, before.chain.head())
    assert (earlier.commitments(2), earlier.state()) == ((), before.state())
    with pytest.raises(NotServedError, match="were not read"):
        after.chain.logs(None, [], 0, 1)


def test_omissions_from_the_open_round_are_noticed_and_not_cached(run: Run) -> None:
    """Nobody has a head that commits to it yet: the contract's own digest does."""
    log = CompleteLog()
    log.up_to(run.ledger)
    run.commit({client: run.word(client) for client in run.trainers[:2]})
    newest = run.chain.head().number

    def lacking(logs: list[Log]) -> list[Log]:
        return [one for one in logs if one.block_number != newest]

    lying = forged(run.ledger, logs_of=lacking, shown="http://node")
    for _ in range(2):
        with pytest.raises(IncompleteLogsError, match="http://node") as refused:
            log.up_to(lying)
        assert refused.value.node == "http://node"
    assert answers(log.up_to(run.ledger)) == answers(run.ledger)


@pytest.mark.parametrize("name", ["logs", "call"])
def test_a_reorganisation_between_two_questions_is_no_lie(run: Run, name: str) -> None:
    """All is asked again; of a chain that never rests it is said that it moves."""
    branches = []
    for number in (1, 2):
        branch = run.branched()
        branch.commit({client: branch.word(client) for client in branch.trainers[:number]})
        branches.append(branch)
    one, other = branches
    with one.chain, other.chain:

        def once(asked: str, count: int) -> ChainReader:
            return one.chain if (asked, count) == ("head", 1) else other.chain

        node = Branch(one.chain, moves=once)
        assert answers(complete_ledger(at(node, run))) == answers(other.ledger)
        assert node.calls["head"] == 2

        def restless(asked: str, _: int) -> ChainReader:
            return one.chain if asked in {"head", name} else other.chain

        node = Branch(one.chain, moves=restless)
        with pytest.raises(ChainMovedError):
            complete_ledger(at(node, run))
        assert node.calls["head"] == ATTEMPTS


def at(node: ChainReader, run: Run) -> CommitteeLedger:
    return CommitteeLedger(node, run.ledger.address, run.ledger.from_block)
