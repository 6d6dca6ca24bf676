"""Going on after a transaction whose call data cannot be read, or do not do what its event says.

The event is believed as far as it follows: head, seed and drawn committees are recomputed from
it, only signatures are not. Believing it lets the rounds after it be checked against their own
record, instead of reporting the same fault for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ledger.protocol import encoding, ledger_state
from ledger.protocol.consensus import primary_seat
from ledger.protocol.fold import LedgerView, head_after
from ledger.protocol.ledger_state import BlockContext, Event, LedgerStage, LedgerState
from ledger.protocol.sampling import drawn_committee
from ledger.protocol.types import (
    NO_DIGEST,
    Address,
    Beacon,
    ClientId,
    Digest,
    Phase,
    RegisteredClient,
)

_FOLDED = (
    *("deployment", "stage", "round", "opened_block", "seed"),
    *("committee", "model", "head", "registry", "commitments"),
)
"""Fields of a state that its events give."""


def adopted(state: LedgerState, event: Event, block_number: int) -> tuple[LedgerState, bool]:
    """Return the state that an event claims, and whether it is of the round that is open."""
    match event:
        case ledger_state.LedgerDeployed():
            return state, True
        case ledger_state.ClientsRegistered(_, words):
            left = state.deployment.clients - len(state.registry)
            return _folded(state, replace(event, words=words[:left]), block_number), True
        case ledger_state.LedgerOpened():
            state = _folded(_padded(state), event, block_number)
            state = replace(state, stage=LedgerStage.OPEN, round=1, registry_rest=NO_DIGEST)
            return replace(state, committee=_known(state, event.committee)), True
        case ledger_state.UpdatesCommitted(number, clients, commitments):
            pairs = zip(clients, commitments, strict=True)
            known = [pair for pair in pairs if pair[0] < state.deployment.clients]
            clients, commitments = tuple(c for c, _ in known), tuple(digest for _, digest in known)
            event = replace(event, clients=clients, commitments=commitments)
            return _folded(state, event, block_number), number == state.round
        case ledger_state.ClientBanned(number, _, head):
            after = _folded(state, event, block_number)
            return replace(after, head=head), number == state.round
        case _:
            after = _folded(replace(_padded(state), round=event.round), event, block_number)
            after = replace(after, committee=_known(after, event.next_committee), head=event.head)
            return after, event.round == state.round


def mismatches(
    state: LedgerState, event: Event, block: BlockContext
) -> Iterator[tuple[str, object, object]]:
    """Yield fields of an event that do not follow: name, what is recorded, and what is true."""
    for name, true in _expected(state, event, block):
        recorded = getattr(event, name)
        if recorded != true:
            yield name, recorded, true
    if isinstance(event, ledger_state.LedgerOpened):
        words = [encoding.registry_word(client) for client in state.registry]
        registered, _ = ledger_state.registry_batches(words)
        if registered != state.deployment.registry:
            yield "registry", registered, state.deployment.registry


def _expected(
    state: LedgerState, event: Event, block: BlockContext
) -> Iterator[tuple[str, object]]:
    """Yield name and value of the fields of an event that follow from the rest."""
    match event:
        case ledger_state.ClientsRegistered():
            yield "first", len(state.registry)
            left = state.deployment.clients - len(state.registry)
            yield "words", event.words[:left]
        case ledger_state.LedgerOpened():
            yield from _expected_opening(state, block)
        case ledger_state.UpdatesCommitted():
            yield "round", state.round
        case ledger_state.ClientBanned():
            client = ClientId(min(event.client, state.deployment.clients - 1))
            yield "round", state.round
            yield "client", client
            yield "head", head_after(_before(state), replace(event, client=client))
        case ledger_state.RoundDecided():
            yield from _expected_decision(state, event, block)
        case ledger_state.RoundAbandoned():
            yield from _expected_abandonment(state, event, block)
        case _:
            pass


def _expected_opening(state: LedgerState, block: BlockContext) -> Iterator[tuple[str, object]]:
    deployment = state.deployment
    seed = encoding.first_seed(deployment.config, _beacon(state, block))
    drawn = drawn_committee(seed, deployment.clients, deployment.members, ())
    yield "config", deployment.config
    yield "seed", seed
    yield "committee", drawn
    yield "model", deployment.model


def _expected_decision(
    state: LedgerState, event: ledger_state.RoundDecided, block: BlockContext
) -> Iterator[tuple[str, object]]:
    yield "round", state.round
    beacon = _beacon(state, block)
    yield "next_seed", encoding.next_seed(state.seed, event.reveal, beacon)
    yield "head", head_after(_before(state), event)
    committee = state.committee
    if committee:
        places = (
            primary_seat(state.seed, phase, event.views[phase - 1], len(committee))
            for phase in Phase
        )
        yield "primaries", tuple(committee[place] for place in places)


def _expected_abandonment(
    state: LedgerState, event: ledger_state.RoundAbandoned, block: BlockContext
) -> Iterator[tuple[str, object]]:
    deployment = state.deployment
    seed = encoding.seed_after_abandoned(state.seed, _beacon(state, block))
    banned = {ClientId(i) for i, client in enumerate(state.registry) if client.banned_in}
    drawn = drawn_committee(seed, deployment.clients, deployment.members, banned)
    yield "round", state.round
    yield "next_seed", seed
    yield "next_committee", drawn
    yield "head", head_after(_before(state), replace(event, next_committee=drawn))


def _beacon(state: LedgerState, block: BlockContext) -> Digest:
    return block.parent_hash if state.deployment.beacon is Beacon.BLOCK else NO_DIGEST


def _before(state: LedgerState) -> encoding.HeadContext:
    return encoding.HeadContext(state.head, state.round, state.seed, state.commitments)


def _known(state: LedgerState, clients: tuple[ClientId, ...]) -> tuple[ClientId, ...]:
    """Return the clients if all of them exist, else none."""
    return clients if all(client < state.deployment.clients for client in clients) else ()


def _padded(state: LedgerState) -> LedgerState:
    """Return the state with a placeholder for each client that was never registered."""
    missing = state.deployment.clients - len(state.registry)
    nobody = RegisteredClient(Address(bytes(20)), 1)
    return replace(state, registry=state.registry + (nobody,) * missing)


def _folded(state: LedgerState, event: Event, block_number: int) -> LedgerState:
    """Return the state after an event, by the fold; what no event gives stays as it is."""
    view = LedgerView(**{name: getattr(state, name) for name in _FOLDED})
    view = view.after(event, block_number)
    committed = frozenset(mined.client for mined in view.mined)
    starts = ledger_state.LedgerOpened, ledger_state.RoundDecided, ledger_state.RoundAbandoned
    if not isinstance(event, starts):
        committed |= state.committed
    folded = {name: getattr(view, name) for name in _FOLDED}
    return replace(state, committed=committed, **folded)
