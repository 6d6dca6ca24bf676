"""Going on after a transaction that does not do what its event says: the event is believed.

The contradiction has been written down by then. Believing the event lets the rounds after it be
checked against their own record, instead of reporting the same fault for all of them.
"""

from __future__ import annotations

from dataclasses import replace

from ledger.protocol import encoding, ledger_state
from ledger.protocol.types import NO_DIGEST, Address, ClientId, Digest, RegisteredClient


def adopted(
    state: ledger_state.LedgerState, event: ledger_state.Event, block_number: int
) -> tuple[ledger_state.LedgerState, bool]:
    """Return the state that an event claims, whatever led to it.

    Args:
        state: before it.
        event: as logged.
        block_number: the block that holds it.

    Returns:
        The state after it, and whether it fits the state before.
    """
    match event:
        case ledger_state.ClientsRegistered(_, words):
            room = state.deployment.clients - len(state.registry)
            joined = tuple(encoding.registered_client(word) for word in words[:room])
            return replace(state, registry=state.registry + joined), True
        case ledger_state.LedgerOpened(_, seed, committee, model):
            state = replace(state, stage=ledger_state.Stage.OPEN, round=1, seed=seed, model=model)
            state = replace(_padded(state), committee=_known(state, committee))
            return replace(state, opened_block=block_number), True
        case ledger_state.UpdatesCommitted(number, clients, payloads):
            return _committed(state, clients, payloads), number == state.round
        case ledger_state.ClientBanned(_, client, head):
            return _banned(state, client, head), True
        case ledger_state.RoundDecided():
            known = event.round == state.round
            state = replace(state, model=event.model)
            return _opened(state, event, block_number), known
        case ledger_state.RoundAbandoned():
            return _opened(state, event, block_number), event.round == state.round


def true_end(
    state: ledger_state.LedgerState, event: ledger_state.Event, beacon: Digest
) -> tuple[Digest, Digest] | None:
    """Return the head and the seed that follow from what an event says, None if it moves neither.

    Args:
        state: before it.
        event: as logged.
        beacon: what else flows into the seed.

    Returns:
        Head and seed after it.
    """
    number, seed = state.round, state.seed
    match event:
        case ledger_state.ClientBanned(_, client, _) if client < state.deployment.clients:
            return encoding.head_after_ban(state.head, number, client), seed
        case ledger_state.RoundAbandoned(_, committee, _, _):
            drawn = encoding.set_digest(_known(state, committee))
            head = encoding.head_after_abandoned(state.head, number, seed, state.commitments, drawn)
            return head, encoding.seed_after_abandoned(seed, beacon)
        case ledger_state.RoundDecided():
            sets = (
                encoding.set_digest(event.accepted),
                encoding.set_digest(event.next_committee),
            )
            result = event.aggregation_result()
            head = encoding.head_after_decision(
                state.head, number, seed, state.commitments, (*sets, result)
            )
            return head, encoding.next_seed(seed, sets[0], result, sets[1], beacon)
        case _:
            return None


def _known(state: ledger_state.LedgerState, clients: tuple[ClientId, ...]) -> tuple[ClientId, ...]:
    """Return the clients if all of them exist, else nobody."""
    return clients if all(client < state.deployment.clients for client in clients) else ()


def _padded(state: ledger_state.LedgerState) -> ledger_state.LedgerState:
    """Return the state with a nobody in the place of each client that was never registered."""
    missing = state.deployment.clients - len(state.registry)
    nobody = RegisteredClient(Address(bytes(20)), 1)
    return replace(state, registry=state.registry + (nobody,) * missing)


def _committed(
    state: ledger_state.LedgerState, clients: tuple[ClientId, ...], payloads: tuple[Digest, ...]
) -> ledger_state.LedgerState:
    digest, committed = state.commitments, set(state.committed)
    for client, payload in zip(clients, payloads, strict=False):
        if client < state.deployment.clients:
            digest = encoding.commitments_digest(digest, client, payload)
            committed.add(client)
    return replace(state, commitments=digest, committed=frozenset(committed))


def _banned(
    state: ledger_state.LedgerState, client: ClientId, head: Digest
) -> ledger_state.LedgerState:
    registry = list(state.registry)
    if client < len(registry):
        registry[client] = replace(registry[client], banned=True)
    committed = state.committed - {client}
    return replace(state, registry=tuple(registry), committed=committed, head=head)


def _opened(
    state: ledger_state.LedgerState,
    event: ledger_state.RoundDecided | ledger_state.RoundAbandoned,
    block_number: int,
) -> ledger_state.LedgerState:
    last = event.round >= state.deployment.rounds
    return replace(
        _padded(state),
        stage=ledger_state.Stage.FINISHED if last else ledger_state.Stage.OPEN,
        round=event.round if last else event.round + 1,
        opened_block=block_number,
        seed=event.next_seed,
        committee=_known(state, event.next_committee),
        head=event.head,
        committed=frozenset(),
        commitments=NO_DIGEST,
    )
