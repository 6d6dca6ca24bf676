"""The fold of a round's events; `tests/contracts/twins.py` folds those of any rounds."""

from __future__ import annotations

from dataclasses import replace

from ledger.protocol import rounds
from ledger.protocol.ledger_state import (
    ClientBanned,
    Event,
    LedgerDeployed,
    LedgerOpened,
    LedgerState,
    LedgerView,
    RoundAbandoned,
    RoundDecided,
    RoundStart,
    UpdatesCommitted,
    links_of,
    registry_with_bans,
)
from ledger.protocol.types import NO_DIGEST, ClientId, Digest
from tests.protocol.support import registry_of
from tests.protocol.test_rounds import (
    DEADLINE,
    IN_TIME,
    OPENED,
    TRAINERS,
    WORDS,
    committed,
    decided,
    fresh,
    report,
    signed,
)
from tests.support.keys import DOMAIN, ids


def test_the_events_of_rounds_fold_into_their_state() -> None:
    state: LedgerState = fresh()
    view = LedgerView.at_deployment(state.deployment)
    events: list[Event] = [LedgerDeployed(DOMAIN.salt)]
    view = view.after(events[0], OPENED.number)
    for act, block in (
        (lambda s: rounds.register_clients(s, WORDS, NO_DIGEST, OPENED), OPENED),
        (lambda s: rounds.commit_updates(s, 1, list(map(signed, TRAINERS)), IN_TIME), IN_TIME),
        (decided, IN_TIME),
        (lambda s: rounds.report_equivocation(s, report(TRAINERS[0]), IN_TIME), IN_TIME),
        (lambda s: rounds.abandon_round(s, 2, replace(DEADLINE, number=99)), DEADLINE),
    ):
        state, came = act(state)
        for event in came:
            view = view.after(event, 99 if block is DEADLINE else block.number)
        events += came
        for name in ("stage", "round", "opened_block", "seed", "committee", "model", "head"):
            assert getattr(view, name) == getattr(state, name), name
        assert (view.registry, view.commitments) == (state.registry, state.commitments)
    assert len({type(event) for event in events}) == 7
    head = state.deployment.config
    for link in links_of(LedgerView.at_deployment(state.deployment), events):
        head = link.head_after(head)
    assert head == state.head


def test_a_round_starts_with_the_previous_rounds_end() -> None:
    opened = LedgerOpened(NO_DIGEST, Digest(b"s" * 32), ids(1, 2, 3), NO_DIGEST)
    assert RoundStart.of(opened, 7) == RoundStart(1, ids(1, 2, 3), Digest(b"s" * 32), 7)
    abandoned = RoundAbandoned(4, ids(5), Digest(b"t" * 32), NO_DIGEST)
    assert RoundStart.of(abandoned, 9) == RoundStart(5, ids(5), Digest(b"t" * 32), 9)
    assert RoundStart.of(UpdatesCommitted(1, ids(1), (NO_DIGEST,)), 9) is None


def test_a_head_is_never_taken_from_its_event() -> None:
    _, (event,) = decided(committed())
    assert isinstance(event, RoundDecided)
    state, other = committed(), replace(event, head=NO_DIGEST, round=9)
    assert state.head_after(event) == state.head_after(other) == event.head
    assert state.link_of(event) == state.link_of(other)


def test_bans_are_entered_in_the_registry() -> None:
    registry = registry_of(4)
    bans = [ClientBanned(5, ClientId(0), NO_DIGEST), ClientBanned(3, ClientId(2), NO_DIGEST)]
    banned = registry_with_bans(registry, bans)
    assert [client.banned_in for client in banned] == [5, 0, 3, 0]
    assert registry_with_bans(registry, [replace(bans[0], client=ClientId(9))]) == registry
