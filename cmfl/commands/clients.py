"""`cmfl clients`: the registered clients and their part in the rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cmfl.commands.console import (
    AsCsv,
    AsJson,
    print_csv,
    print_cursor,
    print_line,
    print_response,
    print_table,
    shortened,
)
from cmfl.commands.option_groups import expand_groups
from cmfl.commands.options import Cursor, Limit
from cmfl.commands.source_options import HistoryOptions
from cmfl.where import open_history
from ledger.history.queries import Order

if TYPE_CHECKING:
    from ledger.history.answers import Ban

app = typer.Typer(help="The registered clients and their part in the rounds.", no_args_is_help=True)

Client = Annotated[int, typer.Argument(min=0, help="Index of the client.")]
_COUNTS = ("sampled", "ranked", "accepted", "served", "scored", "refused", "voted", "incidents")
_COLUMNS = ("client", "address", "samples", *_COUNTS, "banned_in_round")
_ROUND = ("round", "status", "role", "committed", "rank", "distance", "outcome", "scores", "voted")


@app.command("list")
@expand_groups
def list_clients(
    source: HistoryOptions,
    limit: Limit = 1000,
    cursor: Cursor = None,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """List the registered clients with their samples and their counts so far.

    A ban takes effect in the round after the one that records it.
    """
    with open_history(source.target()) as history:
        page = history.clients(limit, cursor)
    if json:
        print_response(page)
        return
    rows: Sequence[Mapping[str, Any]] = page["clients"]
    if csv:
        print_csv(_COLUMNS, rows)
        return
    shown = [[shortened(row[column]) for column in _COLUMNS] for row in rows]
    print_table("clients", (*_COLUMNS[:-1], "banned in"), shown)
    if page["records_missing"]:
        print_line(
            f"The records of {page['records_missing']} rounds are missing: the outcomes of their "
            "scores are unknown."
        )
    print_cursor(page["next_cursor"])


@app.command("show")
@expand_groups
def show(source: HistoryOptions, client: Client, json: AsJson = False) -> None:
    """Show one client: its address, samples and counts so far."""
    with open_history(source.target()) as history:
        response = history.client(client)
    if json:
        print_response(response)
        return
    for name, value in response["client"].items():
        if name != "links":
            print_line(f"{name:15} {'' if value is None else value}".rstrip())
    if response["ban"] is not None:
        print_line(f"{'reason':15} {_reason(response['ban'])}")


@app.command("rounds")
@expand_groups
def rounds(
    source: HistoryOptions,
    client: Client,
    limit: Limit = 20,
    oldest: Annotated[bool, typer.Option("--oldest", help="Oldest first.")] = False,
    cursor: Cursor = None,
    json: AsJson = False,
) -> None:
    """Show one client's rounds: rank, outcome, scores and votes."""
    order = Order.OLDEST if oldest else Order.NEWEST
    with open_history(source.target()) as history:
        page = history.client_rounds(client, order, limit, cursor)
    if json:
        print_response(page)
        return
    rows: Sequence[Mapping[str, Any]] = page["rounds"]
    shown = [[_cell(row, column) for column in _ROUND] for row in rows]
    print_table(f"rounds of client {client}", _ROUND, shown)
    print_cursor(page["next_cursor"])


def _reason(ban: Ban) -> str:
    """Return why a client is banned, and where the chain holds the proof."""
    from ledger.protocol.ledger_state import SIGNED_TWICE, StatementKind

    twice = ban["signed_twice"]
    reason = SIGNED_TWICE[StatementKind(twice["code"]) if twice else None]
    return f"{reason}: block {ban['block']}, transaction {ban['transaction']}"


def _cell(row: Mapping[str, Any], column: str) -> object:
    """Return a table's value, with ranks counted from 1."""
    value = row[column]
    if column == "rank" and value is not None:
        return value + 1
    return ", ".join(value) if isinstance(value, list) else value
