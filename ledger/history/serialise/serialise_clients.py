"""Clients with their counts, and one client's part in each round."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, cast

from ledger.chain.addresses import checksum
from ledger.history.pages import decode_cursor, encode_cursor
from ledger.history.participation import Participation, Tally
from ledger.history.queries import RoundPage
from ledger.history.serialise.parts import part_entry
from ledger.history.serialise.serialise_evidence import ban_body
from ledger.history.serialise.values import end_block
from ledger.protocol.types import ClientId, RegisteredClient

if TYPE_CHECKING:
    from ledger.history.history import FoldedHistory
    from ledger.history.responses.clients import (
        ClientEntry,
        ClientRound,
        ClientRoundsPage,
        ClientsPage,
        OneClient,
    )
    from ledger.history.round import HistoryRound


def clients_page(history: FoldedHistory, limit: int, cursor: str | None) -> ClientsPage:
    """Return a page of clients, ascending."""
    registered = history.registered()
    scope = repr(("clients", str(history.path)))
    start = 0 if cursor is None else decode_cursor(cursor, scope, len(registered) - 1)
    end = min(start + limit, len(registered))
    tally = history.tally()
    return {
        "ended_rounds": tally.rounds,
        "records_missing": tally.records_missing,
        "clients": [_entry(history, registered, tally, index) for index in range(start, end)],
        "next_cursor": encode_cursor(end, scope) if end < len(registered) else None,
    }


def one_client(history: FoldedHistory, client: ClientId) -> OneClient:
    """Return one registered client, with the proof of its ban."""
    tally, registered = history.tally(), history.registered()
    banned_in = registered[client].banned_in
    held = history.round(banned_in) if banned_in else None
    bans = dict(zip(held.banned, held.bans, strict=True)) if held else {}
    return {
        "ended_rounds": tally.rounds,
        "records_missing": tally.records_missing,
        "client": _entry(history, registered, tally, client),
        "ban": ban_body(history, bans[client]) if client in bans else None,
    }


def client_rounds_page(
    history: FoldedHistory, client: ClientId, page: RoundPage
) -> ClientRoundsPage:
    """Return a page of the rounds that a client took part in."""
    parts = zip(page.rounds, history.parts(client, page.rounds), strict=True)
    return {
        "rounds": [_client_round(history, *both) for both in parts],
        "scanned": page.scanned,
        "next_cursor": page.next_cursor,
    }


def _entry(
    history: FoldedHistory, registered: tuple[RegisteredClient, ...], tally: Tally, client: int
) -> ClientEntry:
    own = registered[client]
    entry = {
        "client": client,
        "address": checksum(own.address),
        "samples": str(own.samples),
        "banned_in_round": own.banned_in or None,
        **asdict(tally.clients[client]),
        "links": history.path.client_links(client),
    }
    return cast("ClientEntry", entry)


_CLIENT_ROUND = (
    "round status role place empty_seat committed commitment payload outcome rank distance "
    "distance_bits reason scores refused voted primary_of incidents banned ended links"
)


def _client_round(history: FoldedHistory, round_: HistoryRound, part: Participation) -> ClientRound:
    given = {
        "round": round_.round,
        "status": round_.status,
        "ended": end_block(history, round_),
        "links": history.path.round_links(round_.round),
    }
    return cast("ClientRound", part_entry(_CLIENT_ROUND, part, **given))
