"""A machine drives contract and specification side by side, through right and wrong steps."""

from __future__ import annotations

from dataclasses import replace
from math import nextafter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.ports import ChainWriter
from ledger.protocol import encoding
from ledger.protocol.inputs import primary_seat
from ledger.protocol.ledger_state import LedgerStage, StatementKind
from ledger.protocol.parameters import replies_needed
from ledger.protocol.rules.selection import rank
from ledger.protocol.types import AcceptanceForm, Beacon, ClientId, Phase, Quorum
from tests.contracts import faults, support, wrong_decisions
from tests.contracts.twins import Proposal, Shape, Twins
from tests.faults import times

# Everybody active or banned; some idle; three words of flags.
SIZES = ((7, 4, 3), (13, 6, 5), (460, 20, 7))
JUST_BELOW_TWO = nextafter(2.0, 0.0)
DISTANCES = st.one_of(
    st.floats(0, 1e300, allow_subnormal=True).map(abs),
    st.sampled_from([0.0, 1.0, JUST_BELOW_TWO, 2.0]),
)
VIEWS = st.tuples(st.integers(0, 9), st.integers(0, 9))
FLAG_WORD_ENDS = (0, 223, 224, 447, 448, 459)


class TwinsMachine(RuleBasedStateMachine):
    """The five transactions in any order, windows, bans and relays among them."""

    folder: Path
    shape: Shape
    twins: Twins
    most_compared = 7  # a view takes a millisecond on py-evm

    def __init__(self) -> None:
        super().__init__()
        # A chain for each run: seeds with a beacon follow from its blocks, and must be repeatable.
        self.chain = self.new_chain()

    def new_chain(self) -> ChainWriter:
        path = self.folder / f"{len(list(self.folder.iterdir()))}.sqlite"
        return EmbeddedChain.create(path, clock=lambda: 1_700_000_000.0, synchronous="NORMAL")

    @initialize(
        sizes=st.sampled_from(SIZES),
        form=st.sampled_from(AcceptanceForm),
        beacon=st.sampled_from(Beacon),
        aggregation_ppm=st.sampled_from([0, 400_000, 1_000_000]),
        rounds=st.integers(4, 20),
        commit_blocks=st.sampled_from([3, 12, 40]),
        blocks_to_decide=st.integers(2, 6),
        bft=st.booleans(),
    )
    def open(
        self,
        sizes: tuple[int, int, int],
        form: AcceptanceForm,
        beacon: Beacon,
        aggregation_ppm: int,
        rounds: int,
        commit_blocks: int,
        blocks_to_decide: int,
        bft: bool,
    ) -> None:
        quorum = Quorum.BFT if bft else Quorum.PAPER
        self.shape = Shape(
            *sizes,
            aggregation_ppm,
            form,
            rounds,
            commit_blocks,
            deadline_blocks=commit_blocks + blocks_to_decide,
            replies=replies_needed(sizes[2], quorum),
            beacon=beacon,
        )
        self.twins = self.new_twins()

    def new_twins(self) -> Twins:
        return Twins.opened(self.chain, self.shape, 150, self.most_compared)

    def is_open(self) -> bool:
        return self.twins.state.stage is LedgerStage.OPEN

    def can_be_decided(self) -> bool:
        state = self.twins.state
        able = [place for place in range(len(state.committee)) if support.can_vote(state, place)]
        rankable = faults.rankable(self.twins)
        return (
            self.is_open()
            and len(able) > state.deployment.replies
            and len(rankable) >= state.deployment.members
        )

    def active(self) -> list[ClientId]:
        return sorted(set(support.active_of(self.twins.state)) - self.twins.state.committed)

    @precondition(lambda self: self.is_open() and self.active())
    @rule(data=st.data())
    def commit_some(self, data: st.DataObject) -> None:
        chosen = data.draw(st.lists(st.sampled_from(self.active()), min_size=1, max_size=8))
        support.commit_all(self.twins, chosen)

    @precondition(lambda self: self.is_open() and self.active())
    @rule(data=st.data())
    def commit_with_some_sent_ahead(self, data: st.DataObject) -> None:
        sent = sorted(self.twins.state.committed)[:2]
        support.commit_all(self.twins, data.draw(st.permutations([*self.active()[:3], *sent])))

    @precondition(is_open)
    @rule(data=st.data())
    def commit_for_anybody(self, data: st.DataObject) -> None:
        everybody = st.integers(0, self.twins.state.deployment.clients - 1).map(ClientId)
        support.commit_all(self.twins, data.draw(st.lists(everybody, max_size=3)))

    @precondition(lambda self: self.is_open() and self.active())
    @rule(dropouts=st.sampled_from([0, 0, 1]))
    def commit_the_rest(self, dropouts: int) -> None:
        support.commit_all(self.twins, self.active()[dropouts:])

    @precondition(can_be_decided)
    @rule(data=st.data())
    def decide(self, data: st.DataObject) -> None:
        state, able = self.twins.state, faults.rankable(self.twins)
        sizes = st.just(len(able)) | st.integers(state.deployment.members, len(able))
        size = data.draw(sizes)
        trainers = data.draw(st.permutations(able))[:size]
        distances = data.draw(st.lists(DISTANCES, min_size=size, max_size=size))
        ranking = rank(zip(trainers, distances, strict=True))
        self.twins.decide(support.proposal(self.twins, ranking))

    @precondition(can_be_decided)
    @rule(data=st.data())
    def decide_once_the_window_has_passed(self, data: st.DataObject) -> None:
        self.twins.close_commitments()
        self.decide(data)

    @precondition(can_be_decided)
    @rule(data=st.data(), views=VIEWS)
    def decide_with_any_votes(self, data: st.DataObject, views: tuple[int, int]) -> None:
        state, decision = self.twins.state, faults.honest(self.twins).decision
        size, found = len(state.committee), []
        for phase, view in zip(Phase, views, strict=True):
            # The banned are among them, and now and then there are too few.
            others = set(range(size)) - {primary_seat(state.seed, phase, view, size)}
            absent = data.draw(st.sets(st.sampled_from(sorted(others)), max_size=2))
            vote = support.request(self.twins, decision, phase, view)
            repliers = sorted(others - absent)
            found.append(support.certificate(self.twins, vote, repliers=repliers))
        self.twins.decide(Proposal(state.round, decision, (found[0], found[1])))

    @precondition(lambda self: self.is_open() and self.active())
    @rule(rounds=st.integers(1, 3), dropouts=st.sampled_from([0, 0, 1]), data=st.data())
    def take_whole_rounds(self, rounds: int, dropouts: int, data: st.DataObject) -> None:
        for _ in range(rounds):
            if self.is_open() and self.active()[dropouts:]:
                self.commit_the_rest(dropouts)
            if self.can_be_decided():
                self.decide(data)

    @precondition(
        lambda self: (
            self.can_be_decided()
            and len(self.twins.state.committed) < self.twins.state.deployment.clients
        )
    )
    @rule(fault=st.sampled_from(faults.FAULTS + wrong_decisions.WRONG_DECISIONS))
    def go_wrong(self, fault: faults.Fault) -> None:
        fault.act(self.twins)

    @precondition(is_open)
    @rule(waiting=st.booleans())
    def abandon(self, waiting: bool) -> None:
        if waiting:
            self.twins.wait()
        self.twins.abandon(self.twins.state.round)

    @rule(data=st.data(), kind=st.sampled_from(StatementKind))
    def report(self, data: st.DataObject, kind: StatementKind) -> None:
        state = self.twins.state
        everybody = st.integers(0, state.deployment.clients - 1).map(ClientId)
        client = data.draw(everybody | st.sampled_from([*state.committee, *state.committed]))
        # Statements of any round are proof: of the open one, of those before, of one to come.
        said_in = st.just(state.round) | st.integers(0, state.round + 1) | st.just(2**64 - 1)
        fields = {"round": data.draw(said_in)}
        if kind is not StatementKind.SCORES:
            fields["phase"] = data.draw(st.sampled_from([*Phase, 0, 3, 255]))
        report = support.equivocation(self.twins, client, kind, **fields)
        # Few bans, or there would soon be nobody left to decide anything.
        guilty = data.draw(st.booleans()) and len(self.banned()) < 3
        self.twins.report(report if guilty else replace(report, second=report.first))

    @precondition(lambda self: self.can_be_decided() and len(self.banned()) < 3)
    @rule(
        place=st.integers(0, 2),
        kind=st.sampled_from(StatementKind),
        ago=st.integers(0, 2),
        data=st.data(),
    )
    def ban_who_is_elected(
        self, place: int, kind: StatementKind, ago: int, data: st.DataObject
    ) -> None:
        found = faults.honest(self.twins)
        middle = (len(found.decision.ranking) - self.shape.members) // 2
        client = encoding.word_client(found.decision.ranking[middle + place])
        said_in = max(0, self.twins.state.round - ago)
        self.twins.report(support.equivocation(self.twins, client, kind, round=said_in))
        self.twins.decide(found)
        if self.is_open() and self.active():
            self.commit_the_rest(0)
        if self.can_be_decided():
            self.decide_with_any_votes(data, data.draw(VIEWS))

    @precondition(lambda self: not self.is_open())
    @rule(rounds=st.integers(2, 9))
    def begin_another(self, rounds: int) -> None:
        number = self.twins.state.round
        support.commit_all(self.twins, [ClientId(0)])
        self.twins.abandon(number)
        self.twins.relayed(lambda twins: twins.abandon(number))
        self.compare_clients()
        self.shape = replace(self.shape, rounds=rounds)
        self.twins = self.new_twins()

    def teardown(self) -> None:
        if hasattr(self, "twins"):
            self.compare_clients()
        self.chain.close()

    def compare_clients(self) -> None:
        state = self.twins.state
        few = range(state.deployment.clients) if state.deployment.clients < 20 else ()
        ends = (end for end in FLAG_WORD_ENDS if end < state.deployment.clients)
        self.twins.compare_clients({*few, *ends, *self.banned(), *state.committed})

    def banned(self) -> list[int]:
        return [i for i, client in enumerate(self.twins.state.registry) if client.banned_in]


def settings_of(examples: int) -> settings:
    """Return settings for so many runs, the same ones every time."""
    return settings(
        max_examples=examples,
        stateful_step_count=40,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.slow
def test_contract_and_specification_never_differ(tmp_path: Path) -> None:
    machine = type("Machine", (TwinsMachine,), {"folder": tmp_path})
    run_state_machine_as_test(machine, settings=settings_of(times(2, 200)))
