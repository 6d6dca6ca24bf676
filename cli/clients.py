"""`cmfl clients`: who is registered, and what each client did."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cli.console import (
    AsJson,
    counted_from_one,
    print_json,
    print_line,
    print_table,
    shortened,
    whole,
)
from cli.options import DEFAULT_HOME, Address, ChainId, HomeFolder, RpcUrl, RunName
from cli.where import Where
from ledger.protocol.errors import ConfigurationError

app = typer.Typer(help="Who is registered, and what each client did.", no_args_is_help=True)


@app.command("list")
def list_clients(
    home: HomeFolder = DEFAULT_HOME,
    run: RunName = None,
    address: Address = None,
    rpc_url: RpcUrl = None,
    chain_id: ChainId = None,
    json: AsJson = False,
) -> None:
    """List the registered clients with their samples, and what they did so far.

    A ban counts from the round after the one in which it was recorded.
    """
    from ledger.audit.participation import ended_rounds, participation

    where = Where(home, run, address, rpc_url, chain_id)
    with where.reader() as chain:
        ledger = where.ledger(chain)
        rows = [entry.as_dict() for entry in participation(ledger, ended_rounds(ledger))]
    if json:
        print_json(rows)
        return
    columns = ("client", "address", "samples", "trained", "accepted", "served", "banned_in_round")
    shown = [[shortened(row[column]) for column in columns] for row in rows]
    print_table("clients", (*columns[:-1], "banned in"), shown)


@app.command("show")
def show(
    client: Annotated[int, typer.Argument(min=0, help="Index of the client.")],
    home: HomeFolder = DEFAULT_HOME,
    run: RunName = None,
    address: Address = None,
    rpc_url: RpcUrl = None,
    chain_id: ChainId = None,
    json: AsJson = False,
) -> None:
    """Show one client's rounds: where it ranked, when it was accepted, when it served."""
    from ledger.audit.participation import client_rounds, ended_rounds, participation

    where = Where(home, run, address, rpc_url, chain_id)
    with where.reader() as chain:
        ledger = where.ledger(chain)
        ended = ended_rounds(ledger)
        entries = participation(ledger, ended)
        if client >= len(entries):
            raise ConfigurationError(f"client {client}: there are {len(entries)} clients, from 0")
        rounds = [row.as_dict() for row in client_rounds(ended, client)]
    facts: dict[str, Any] = entries[client].as_dict()
    if json:
        print_json(facts | {"rounds": rounds})
        return
    for name, value in facts.items():
        print_line(f"{name:15} {whole(value)}".rstrip())
    columns = ("round", "role", "rank", "distance", "accepted")
    rows = [[row[column] for column in columns] for row in map(counted_from_one, rounds)]
    print_table("rounds", columns, rows)
