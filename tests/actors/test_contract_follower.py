"""What is read on from one final block to the next is what would be read afresh."""

from __future__ import annotations

import contextlib
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.actors.observer import ContractFollower, FollowedContract
from ledger.chain.finality import AncestryCheck
from ledger.chain.ports import IncompleteLogsError, NotServedError
from ledger.chain.round_ledger import RoundHistory
from ledger.protocol.errors import ProtocolRefusal
from ledger.protocol.ledger_state import LedgerStage, LedgerView
from tests.actors.branching import SHORT, BranchingLedger, Node
from tests.faults import times


class Reader:
    """Whoever reads on, and what a newcomer would read in its place."""

    def __init__(self, ledger: BranchingLedger, confirmations: int = 0) -> None:
        self.node = Node(ledger)
        self._confirmations = confirmations
        self.restart()

    def restart(self) -> None:
        self.following = self._new(self.node)

    def read(self) -> FollowedContract:
        return self._read(self.following)

    def afresh(self) -> FollowedContract:
        return self._read(self._new(Node(self.node.ledger)))

    def _read(self, following: ContractFollower) -> FollowedContract:
        head = self.node.newest_block()
        final = max(self.node.ledger.from_block, head.number - self._confirmations)
        return following.read(head, final)

    @staticmethod
    def _new(node: Node) -> ContractFollower:
        return ContractFollower(cast("RoundHistory", node), AncestryCheck(node.block))


def banned_in(view: LedgerView) -> list[int]:
    return [index for index, client in enumerate(view.registry) if client.banned_in]


@pytest.fixture
def ledger() -> BranchingLedger:
    return BranchingLedger.begin()


@pytest.fixture
def reader(ledger: BranchingLedger) -> Reader:
    found = Reader(ledger)
    found.read()
    found.node.asked.clear()
    return found


def test_the_same_final_block_is_not_asked_about_again(reader: Reader) -> None:
    before = reader.read()
    assert reader.read() == before
    assert reader.node.asked == []


def test_block_without_events_costs_one_query(ledger: BranchingLedger, reader: Reader) -> None:
    before = reader.read()
    ledger.mine(1)
    after = reader.read()
    assert reader.node.asked == ["state"]
    assert after.open_round is before.open_round
    assert after.final_block == before.final_block + 1


def test_only_logs_of_new_blocks_are_queried(ledger: BranchingLedger, reader: Reader) -> None:
    ledger.mine(1)
    ledger.commit(3, salt=1)
    ledger.ban(5)
    found = reader.read()
    assert reader.node.asked == ["block", "state", "recorded_in"]
    assert found == reader.afresh()
    assert found.open_round is not None
    assert [one.client for one in found.open_round.mined] == [3]
    assert banned_in(found.open_round) == [5]


def test_next_reading_verifies_what_was_not(ledger: BranchingLedger, reader: Reader) -> None:
    ledger.commit(3, salt=1)
    head = ledger.newest_block()
    unverified = reader.following.read(head, head.number, verifies=False)
    assert unverified.storage is None
    assert "state" not in reader.node.asked
    assert unverified.view == reader.afresh().view
    assert reader.read() == reader.afresh()
    assert reader.node.asked.count("state") == 1


@pytest.mark.parametrize("moves_on", [False, True])
def test_omitted_log_is_noticed_later(
    ledger: BranchingLedger, reader: Reader, moves_on: bool
) -> None:
    ledger.commit(3, salt=1)
    reader.node.hidden = ledger.newest_block().number
    head = ledger.newest_block()
    reader.following.read(head, head.number, verifies=False)
    reader.node.hidden = None
    if moves_on:
        ledger.end_round()
    with pytest.raises(IncompleteLogsError):
        reader.read()
    assert reader.read() == reader.afresh()


@pytest.mark.parametrize("what", ["commitment", "ban", "end"])
def test_state_without_logs_is_not_believed(
    ledger: BranchingLedger, reader: Reader, what: str
) -> None:
    before = ledger.newest_block().number
    {"commitment": lambda: ledger.commit(3, 1), "ban": lambda: ledger.ban(5)}.get(
        what, ledger.end_round
    )()
    reader.node.last_log = before
    # Neither by who reads on, nor, the second time, by who reads everything.
    for _ in range(2):
        with pytest.raises(IncompleteLogsError):
            reader.read()
    reader.node.last_log = None
    assert reader.read() == reader.afresh()


@pytest.mark.parametrize("what", ["commitment", "ban", "end"])
@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_a_new_follower_rejects_a_log_that_lacks_an_event(
    ledger: BranchingLedger, reader: Reader, what: str, rounds: int
) -> None:
    """The head that a round opened with commits to it, but only together with all the rest."""
    {"commitment": lambda: ledger.commit(3, 1), "ban": lambda: ledger.ban(3)}.get(
        what, ledger.end_round
    )()
    hidden = ledger.newest_block().number
    for _ in range(rounds):
        ledger.end_round()
    reader.restart()
    reader.node.hidden = hidden
    with pytest.raises(IncompleteLogsError):
        reader.read()
    reader.node.hidden = None
    assert reader.read() == reader.afresh()


@pytest.mark.parametrize("what", ["commitment", "ban"])
def test_answer_of_another_branch_is_forgotten(
    ledger: BranchingLedger, reader: Reader, what: str
) -> None:
    other = ledger.branch()
    {"commitment": lambda: other.commit(4, 1), "ban": lambda: other.ban(4)}[what]()
    ledger.mine(1)
    head = ledger.newest_block()
    reader.node.ledger = other  # behind one address: one node has told the head, another the rest
    reader.following.read(head, head.number)
    reader.node.ledger = ledger
    ledger.commit(3, salt=1)
    with contextlib.suppress(NotServedError):
        reader.read()
    assert reader.read() == reader.afresh()


_STEPS = st.one_of(
    st.tuples(st.just("commit"), st.integers(0, SHORT.clients - 1)),
    st.tuples(st.just("ban"), st.integers(0, SHORT.clients - 1)),
    st.tuples(st.sampled_from(["mine", "fall behind"]), st.integers(1, 4)),
    st.tuples(st.sampled_from(["end", "restart", "look"]), st.just(0)),
)


@settings(max_examples=times(40, 2000))
@given(
    confirmations=st.integers(0, 3),
    steps=st.lists(st.tuples(_STEPS, st.booleans(), st.integers(0, 2)), max_size=20),
)
def test_reading_on_is_reading_afresh_whatever_happens_in_between(
    confirmations: int, steps: list[tuple[tuple[str, int], bool, int]]
) -> None:
    kept = [BranchingLedger.begin()]
    reader = Reader(kept[0].kept(), confirmations)
    for salt, ((what, who), looks, lacks) in enumerate(steps):
        ledger = reader.node.ledger
        with contextlib.suppress(ProtocolRefusal):
            match what:
                case "commit":
                    ledger.commit(who, salt)
                case "ban":
                    ledger.ban(who)
                case "mine":
                    ledger.mine(who)
                case "end" if ledger.state().stage is LedgerStage.OPEN:
                    ledger.end_round()
                case "fall behind":  # its next block is another than the one that was seen
                    ledger = kept[-min(who, len(kept))].branch()
                case "restart":
                    reader.restart()
                case _:
                    pass
        reader.node.ledger = ledger
        kept.append(ledger.kept())
        if not looks:
            continue
        reader.node.last_log = ledger.newest_block().number - lacks if lacks else None
        with contextlib.suppress(NotServedError):
            assert reader.read() == reader.afresh(), "what was left out was not missed"
        reader.node.last_log = None
        assert reader.read() == reader.afresh()
