"""`cmfl clients`: the registered clients and their part in the rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.console import (
    AsCsv,
    AsJson,
    print_csv,
    print_line,
    print_table,
    shortened,
)
from cli.history import open_history, print_response
from cli.options import (
    DEFAULT_HOME,
    Address,
    Api,
    ApiTokenFile,
    ChainId,
    Cursor,
    HomeFolder,
    Limit,
    RpcUrl,
    RunName,
)
from cli.remote import RemoteService
from cli.target import Target
from ledger.history.status import Order

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

app = typer.Typer(help="Who is registered, and what each client did.", no_args_is_help=True)

Client = Annotated[int, typer.Argument(min=0, help="Index of the client.")]
_COUNTS = ("sampled", "ranked", "accepted", "served", "scored", "refused", "voted", "incidents")
_COLUMNS = ("client", "address", "samples", *_COUNTS, "banned_in_round")
_ROUND = ("round", "status", "role", "committed", "rank", "distance", "outcome", "scores", "voted")


@app.command("list")
def list_clients(
    home: HomeFolder = DEFAULT_HOME,
    run: RunName = None,
    limit: Limit = 1000,
    cursor: Cursor = None,
    address: Address = None,
    rpc_url: RpcUrl = None,
    chain_id: ChainId = None,
    api: Api = None,
    api_token_file: ApiTokenFile = None,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """List the registered clients with their samples, and what they did so far.

    A ban counts from the round after the one in which it was recorded.
    """
    remote = RemoteService.of(api, api_token_file)
    target = Target(home, run, address, rpc_url, chain_id, remote=remote)
    with open_history(target) as history:
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
            f"The records of {page['records_missing']} rounds are missing: whose scores counted "
            "in them is not known."
        )
    if page["next_cursor"] is not None:
        print_line(f"More: --cursor {page['next_cursor']}")


@app.command("show")
def show(
    client: Client,
    home: HomeFolder = DEFAULT_HOME,
    run: RunName = None,
    address: Address = None,
    rpc_url: RpcUrl = None,
    chain_id: ChainId = None,
    api: Api = None,
    api_token_file: ApiTokenFile = None,
    json: AsJson = False,
) -> None:
    """Show one client: its address and samples, and what it did so far."""
    remote = RemoteService.of(api, api_token_file)
    target = Target(home, run, address, rpc_url, chain_id, remote=remote)
    with open_history(target) as history:
        response = history.client(client)
    if json:
        print_response(response)
        return
    for name, value in response["client"].items():
        if name != "links":
            print_line(f"{name:15} {'' if value is None else value}".rstrip())


@app.command("rounds")
def rounds(
    client: Client,
    home: HomeFolder = DEFAULT_HOME,
    run: RunName = None,
    limit: Limit = 20,
    oldest: Annotated[bool, typer.Option("--oldest", help="Oldest first.")] = False,
    cursor: Cursor = None,
    address: Address = None,
    rpc_url: RpcUrl = None,
    chain_id: ChainId = None,
    api: Api = None,
    api_token_file: ApiTokenFile = None,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Show one client's rounds: where it ranked, when it was accepted, when it served and voted."""
    remote = RemoteService.of(api, api_token_file)
    target = Target(home, run, address, rpc_url, chain_id, remote=remote)
    order = Order.OLDEST if oldest else Order.NEWEST
    with open_history(target) as history:
        page = history.client_rounds(client, order, limit, cursor)
    if json:
        print_response(page)
        return
    rows: Sequence[Mapping[str, Any]] = page["rounds"]
    if csv:
        print_csv(_ROUND, rows)
        return
    shown = [[_cell(row, column) for column in _ROUND] for row in rows]
    print_table(f"rounds of client {client}", _ROUND, shown)
    if page["next_cursor"] is not None:
        print_line(f"More: --cursor {page['next_cursor']}")


def _cell(row: Mapping[str, Any], column: str) -> object:
    """Return a table's value, with ranks counted from 1."""
    value = row[column]
    if column == "rank" and value is not None:
        return value + 1
    return ", ".join(value) if isinstance(value, list) else value
