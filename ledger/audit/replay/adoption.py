"""Going on after a transaction whose call data cannot be read, or do not do what its event says.

The event is believed as far as it follows: head, seed and drawn committees are recomputed from
it, only signatures are not. Believing it lets the rounds after it be checked against their own
record, instead of reporting the same fault for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ledger.protocol import encoding, ledger_state
from ledger.protocol.consensus import primary_seat
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

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ledger.protocol.ledger_state import BlockContext, Event, LedgerState


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A field of an event that does not follow from the state before it."""

    name: str
    recorded: object
    true: object


@dataclass(frozen=True, slots=True)
class Adopted:
    """The state that an event claims.

    Attributes:
        state: after it.
        fits: whether the event speaks of the round that was open.
    """

    state: LedgerState
    fits: bool = True


def adopted(state: LedgerState, event: Event, block_number: int) -> Adopted:
    """Return the state that an event claims, whatever led to it.

    Args:
        state: before it.
        event: as logged.
        block_number: the block that holds it.
    """
    match event:
        case ledger_state.LedgerDeployed():
            return Adopted(state)
        case ledger_state.ClientsRegistered(_, words):
            left = state.deployment.clients - len(state.registry)
            joined = tuple(encoding.registered_client(word) for word in words[:left])
            return Adopted(replace(state, registry=state.registry + joined))
        case ledger_state.LedgerOpened(_, seed, committee, model):
            state = replace(
                state, stage=ledger_state.LedgerStage.OPEN, round=1, seed=seed, model=model
            )
            state = replace(_padded(state), committee=_known(state, committee))
            return Adopted(replace(state, opened_block=block_number, registry_rest=NO_DIGEST))
        case ledger_state.UpdatesCommitted(number, clients, commitments):
            taken = zip(clients, commitments, strict=True)
            return Adopted(_committed(state, taken), number == state.round)
        case ledger_state.ClientBanned(number, client, head):
            return Adopted(_banned(state, client, head), number == state.round)
        case _:
            return Adopted(_opened(state, event, block_number), event.round == state.round)


def mismatches(state: LedgerState, event: Event, block: BlockContext) -> Iterator[Mismatch]:
    """Yield the fields of an event that do not follow from the state and the event's others.

    Args:
        state: before it.
        event: as logged.
        block: the block that holds it.

    Yields:
        One mismatch for each such field.
    """
    for name, true in _expected(state, event, block):
        recorded = getattr(event, name)
        if recorded != true:
            yield Mismatch(name, recorded, true)
    if isinstance(event, ledger_state.LedgerOpened):
        words = [encoding.registry_word(client) for client in state.registry]
        registered, _ = ledger_state.registry_batches(words)
        if registered != state.deployment.registry:
            yield Mismatch("registry", registered, state.deployment.registry)


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
            yield "head", encoding.head_after_ban(state.head, state.round, client)
        case ledger_state.RoundDecided():
            yield from _expected_decision(state, event, block)
        case _:
            yield from _expected_abandonment(state, block)


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
    votes = encoding.votes_digest(event.views, event.signers, event.incidents)
    sets = encoding.set_digest(event.accepted), encoding.set_digest(event.next_committee)
    head = encoding.head_after_decision(_before(state), *sets, event.result(), votes)
    yield "head", head
    committee = state.committee
    if committee:
        places = (
            primary_seat(state.seed, phase, event.views[phase - 1], len(committee))
            for phase in Phase
        )
        yield "primaries", tuple(committee[place] for place in places)


def _expected_abandonment(state: LedgerState, block: BlockContext) -> Iterator[tuple[str, object]]:
    deployment = state.deployment
    seed = encoding.seed_after_abandoned(state.seed, _beacon(state, block))
    banned = {ClientId(i) for i, client in enumerate(state.registry) if client.banned_in}
    drawn = drawn_committee(seed, deployment.clients, deployment.members, banned)
    yield "round", state.round
    yield "next_seed", seed
    yield "next_committee", drawn
    head = encoding.head_after_abandoned(_before(state), encoding.set_digest(drawn))
    yield "head", head


def _beacon(state: LedgerState, block: BlockContext) -> Digest:
    return block.parent_hash if state.deployment.beacon is Beacon.BLOCK else NO_DIGEST


def _before(state: LedgerState) -> encoding.HeadContext:
    return encoding.HeadContext(state.head, state.round, state.seed, state.commitments)


def _known(state: LedgerState, clients: tuple[ClientId, ...]) -> tuple[ClientId, ...]:
    """Return the clients if all of them exist, else nobody."""
    return clients if all(client < state.deployment.clients for client in clients) else ()


def _padded(state: LedgerState) -> LedgerState:
    """Return the state with a nobody in the place of each client that was never registered."""
    missing = state.deployment.clients - len(state.registry)
    nobody = RegisteredClient(Address(bytes(20)), 1)
    return replace(state, registry=state.registry + (nobody,) * missing)


def _committed(state: LedgerState, taken: Iterable[tuple[ClientId, Digest]]) -> LedgerState:
    digest, committed = state.commitments, set(state.committed)
    for client, commitment in taken:
        if client < state.deployment.clients:
            digest = encoding.commitments_digest(digest, client, commitment)
            committed.add(client)
    return replace(state, commitments=digest, committed=frozenset(committed))


def _banned(state: LedgerState, client: ClientId, head: Digest) -> LedgerState:
    registry = list(state.registry)
    if client < len(registry):
        registry[client] = replace(registry[client], banned_in=state.round)
    return replace(state, registry=tuple(registry), head=head)


def _opened(
    state: LedgerState,
    event: ledger_state.RoundDecided | ledger_state.RoundAbandoned,
    block_number: int,
) -> LedgerState:
    deployment = state.deployment
    is_last = event.round >= deployment.rounds
    ended = isinstance(event, ledger_state.RoundAbandoned)
    is_short = ended and len(event.next_committee) < deployment.members
    return replace(
        _padded(state),
        stage=ledger_state.LedgerStage.FINISHED
        if is_last or is_short
        else ledger_state.LedgerStage.OPEN,
        round=event.round if is_last else event.round + 1,
        opened_block=block_number,
        seed=event.next_seed,
        committee=_known(state, event.next_committee),
        model=event.model if isinstance(event, ledger_state.RoundDecided) else state.model,
        head=event.head,
        committed=frozenset(),
        commitments=NO_DIGEST,
    )
