"""A client's line in the list, and its part in each round."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from ledger.chain.addresses import checksum
from ledger.history.cursors import decode_cursor, encode_cursor
from ledger.history.facts.committee import duties
from ledger.history.facts.updates import placed
from ledger.history.facts.words import coded, ended_facts, hexed_or_none

if TYPE_CHECKING:
    from ledger.history.facts.words import Facts
    from ledger.history.participation import Participation, Tally
    from ledger.history.queries import RoundPage
    from ledger.history.round import Round
    from ledger.history.source import HistorySource
    from ledger.protocol.types import ClientId, RegisteredClient


def clients_facts(history: HistorySource, limit: int, cursor: str | None) -> Facts:
    """Return a page of clients, ascending.

    Args:
        history: of the deployment.
        limit: how many at most.
        cursor: where the page begins; None for the beginning.

    Raises:
        CursorError: the cursor is not one of this list's.
    """
    registered = history.registered()
    scope = repr(("clients", str(history.path)))
    start = 0 if cursor is None else decode_cursor(cursor, scope, len(registered) - 1)
    end = min(start + limit, len(registered))
    tally = history.tally()
    entries = [_entry(history, registered, tally, client) for client in range(start, end)]
    onward = encode_cursor(end, scope) if end < len(registered) else None
    return _counted(tally) | {"clients": entries, "next_cursor": onward}


def client_facts(history: HistorySource, client: ClientId) -> Facts:
    """Return one client.

    Args:
        history: of the deployment.
        client: its index, one that is registered.
    """
    tally = history.tally()
    return _counted(tally) | {"client": _entry(history, history.registered(), tally, client)}


def client_rounds_facts(history: HistorySource, client: ClientId, page: RoundPage) -> Facts:
    """Return a page of the rounds that a client took part in.

    Args:
        history: of the deployment.
        client: its index.
        page: rounds that it took part in.
    """
    parts = zip(page.rounds, history.parts(client, page.rounds), strict=True)
    return {
        "rounds": [_part(history, *both) for both in parts],
        "scanned": page.scanned,
        "next_cursor": page.next_cursor,
    }


def _counted(tally: Tally) -> Facts:
    """Return what the counts are of."""
    return {"ended_rounds": tally.rounds, "records_missing": tally.records_missing}


def _entry(
    history: HistorySource, registered: tuple[RegisteredClient, ...], tally: Tally, client: int
) -> Facts:
    own = registered[client]
    return {
        "client": client,
        "address": checksum(own.address),
        "samples": str(own.samples),
        "banned_in_round": own.banned_in or None,
        **asdict(tally.clients[client]),
        "links": history.path.client_links(client),
    }


def _part(history: HistorySource, one: Round, part: Participation) -> Facts:
    return {
        "round": one.round,
        "status": one.status.value,
        "role": part.role.value,
        "place": part.place,
        "empty_seat": part.empty_seat,
        "committed": part.committed,
        "commitment": hexed_or_none(part.commitment),
        "payload": hexed_or_none(part.payload),
        "outcome": None if part.outcome is None else part.outcome.value,
        **placed(part),
        "reason": None if part.dropout is None else coded(part.dropout),
        **duties(part),
        "banned": part.banned,
        "ended": ended_facts(history, one),
        "links": history.path.round_links(one.round),
    }
