"""The fold of the events of any rounds is the state that the executable specification has."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.protocol import encoding, rounds
from ledger.protocol.errors import ProtocolRefusal
from ledger.protocol.fold import (
    LedgerView,
    RoundStart,
    head_after,
    link_of,
    links_of,
    registry_with_bans,
)
from ledger.protocol.judgement import sets_of
from ledger.protocol.ledger_state import (
    BlockContext,
    ClientBanned,
    EquivocationReport,
    LedgerDeployed,
    LedgerOpened,
    LedgerState,
    RoundAbandoned,
    RoundDecided,
    SignedStatement,
    UpdatesCommitted,
    registry_batches,
)
from ledger.protocol.ranking import rank
from ledger.protocol.signing import sign
from ledger.protocol.types import NO_DIGEST, ClientId, Digest, Phase, Vote, VoteKind
from tests.faults import times
from tests.protocol.support import registry_of, signers
from tests.protocol.test_rounds import DECISION, WORDS, certificates, fresh, signed
from tests.support.keys import DOMAIN, ids

if TYPE_CHECKING:
    from ledger.protocol.ledger_state import Event, Step

FIELDS = (
    *("stage", "round", "opened_block", "seed", "committee"),
    *("model", "head", "registry", "commitments"),
)


@dataclass
class Play:
    """The specification and the fold, side by side."""

    state: LedgerState
    view: LedgerView
    block: int = 7
    events: list[Event] = field(default_factory=list)

    @staticmethod
    def begin(batch: int = 9, rounds_: int = 4) -> Play:
        state = fresh()
        digest, batches = registry_batches(WORDS, batch)
        deployment = replace(state.deployment, registry=digest, rounds=rounds_)
        state = replace(state, deployment=deployment, registry_rest=digest)
        play = Play(state, LedgerView.at_deployment(deployment))
        play.compare()
        play.fold(LedgerDeployed(DOMAIN.salt))
        for words, rest in batches:
            play.take(rounds.register_clients(play.state, words, rest, play.context))
            assert play.view.registry_digest(rest) == digest
        return play

    @property
    def context(self) -> BlockContext:
        return BlockContext(self.block, Digest(bytes([self.block % 256]) * 32))

    def fold(self, event: Event) -> None:
        for name, value in self.view.expected_fields(event).items():
            assert getattr(event, name) == value, name
        self.view = self.view.after(event, self.block)
        self.events.append(event)

    def take(self, step: Step) -> None:
        self.state, events = step
        for event in events:
            self.fold(event)
        self.compare()

    def compare(self) -> None:
        for name in FIELDS:
            assert getattr(self.view, name) == getattr(self.state, name), name
        assert {mined.client for mined in self.view.mined} == self.state.committed
        assert (
            encoding.commitments_chain(
                (mined.client, mined.commitment) for mined in self.view.mined
            )
            == self.state.commitments
        )

    def commit(self, clients: list[int]) -> None:
        entries = [signed(client, round_number=self.state.round) for client in clients]
        step = rounds.commit_updates(self.state, self.state.round, entries, self.context)
        self.take(step)

    def decide(self) -> None:
        state = self.state
        trainers = sorted(state.committed - set(state.committee))
        ranking = rank((client, 1.0 + place) for place, client in enumerate(trainers))
        decision = replace(DECISION, committee=state.committee, ranking=ranking)
        sets = sets_of(state.deployment, ranking)
        pair = certificates(state, decision, *sets)
        self.take(rounds.decide(state, state.round, decision, pair, self.context))

    def abandon(self) -> None:
        deadline = self.state.opened_block + self.state.deployment.deadline_blocks
        self.block = max(self.block, deadline)
        self.take(rounds.abandon_round(self.state, self.state.round, self.context))

    def ban(self, client: int) -> None:
        slot = (VoteKind.REPLY, self.state.round, Phase.AGGREGATION, 0, NO_DIGEST, NO_DIGEST)
        votes = [Vote(*slot, digest) for digest in (NO_DIGEST, encoding.sha256(b"another"))]
        key = signers()[client]
        pair = [SignedStatement(vote, sign(key, DOMAIN, vote)) for vote in votes]
        report = EquivocationReport(ClientId(client), *pair)
        self.take(rounds.report_equivocation(self.state, report, self.context))


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["commit", "commit all", "commit all", "decide", "abandon", "ban"]),
        st.lists(st.integers(0, 8), min_size=1, max_size=9, unique=True),
        st.integers(0, 6),
    ),
    max_size=20,
)


@settings(max_examples=times(60, 2_000), deadline=None)
@given(batch=st.integers(1, 9), last=st.integers(1, 4), steps=STEPS)
def test_the_fold_of_any_play_is_the_specifications_state(
    batch: int, last: int, steps: list[tuple[str, list[int], int]]
) -> None:
    play = Play.begin(batch, last)
    for action, clients, blocks in steps:
        play.block += blocks
        with suppress(ProtocolRefusal):
            match action:
                case "commit":
                    play.commit(clients)
                case "commit all":
                    play.commit([*range(9)])
                case "decide" if len(play.state.committed - set(play.state.committee)) >= 3:
                    play.decide()
                case "abandon":
                    play.abandon()
                case "ban":
                    play.ban(clients[0])
                case _:
                    pass
    links = list(links_of(LedgerView.at_deployment(play.state.deployment), play.events))
    head = play.state.deployment.config
    for link in links:
        head = link.head_after(head)
    assert head == play.state.head


def whole_play() -> Play:
    """Return a decided and an abandoned round, with a ban in the second and one after it."""
    play = Play.begin(4, 2)
    play.block += 1
    play.commit([*range(9)])
    play.decide()
    play.block += 1
    play.commit([0, 1, 2])
    play.ban(3)
    play.abandon()
    play.ban(4)
    return play


@pytest.mark.parametrize("place", range(11))
def test_an_event_that_is_left_out_or_repeated_is_noticed(place: int) -> None:
    """Either a later event contradicts the fold, or the fold ends in another state."""
    play = whole_play()
    assert len(play.events) == 11
    before, after = play.events[:place], play.events[place + 1 :]
    for events in (before + after, before + [play.events[place]] * 2 + after):
        view, contradicted = LedgerView.at_deployment(play.state.deployment), False
        for event in events:
            expected = view.expected_fields(event)
            contradicted |= any(getattr(event, n) != value for n, value in expected.items())
            view = view.after(event, 9)
        different = replace(view, opened_block=0) != replace(play.view, opened_block=0)
        assert contradicted or different


def test_a_round_starts_with_the_previous_rounds_end() -> None:
    opened = LedgerOpened(NO_DIGEST, Digest(b"s" * 32), ids(1, 2, 3), NO_DIGEST)
    assert RoundStart.of(opened, 7) == RoundStart(1, ids(1, 2, 3), Digest(b"s" * 32), 7)
    abandoned = RoundAbandoned(4, ids(5), Digest(b"t" * 32), NO_DIGEST)
    assert RoundStart.of(abandoned, 9) == RoundStart(5, ids(5), Digest(b"t" * 32), 9)
    committed = UpdatesCommitted(1, ids(1), (NO_DIGEST,))
    assert RoundStart.of(committed, 9) is None


def test_a_head_is_never_taken_from_its_event() -> None:
    play = whole_play()
    decided = next(event for event in play.events if isinstance(event, RoundDecided))
    before = encoding.HeadContext(play.state.deployment.config, 1, NO_DIGEST, NO_DIGEST)
    other = replace(decided, head=NO_DIGEST, round=9)
    assert head_after(before, decided) == head_after(before, other)
    assert link_of(before, decided) == link_of(before, other)


def test_bans_are_entered_in_the_registry() -> None:
    registry = registry_of(4)
    bans = [ClientBanned(5, ClientId(0), NO_DIGEST), ClientBanned(3, ClientId(2), NO_DIGEST)]
    banned = registry_with_bans(registry, bans)
    assert [client.banned_in for client in banned] == [5, 0, 3, 0]
    assert registry_with_bans(registry, []) == registry
    assert registry_with_bans(registry, [replace(bans[0], client=ClientId(9))]) == registry
