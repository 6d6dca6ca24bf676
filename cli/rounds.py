"""`cmfl rounds`: what is recorded of rounds, in tables, JSON and plain words.

`--json` prints what the service answers, but for the block that it speaks of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.console import (
    AsCsv,
    AsJson,
    print_csv,
    print_json,
    print_line,
    print_table,
    shortened,
)
from cli.history import open_history
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
from ledger.history.status import AskedRole, Order, RoundStatus
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import ClientId

if TYPE_CHECKING:
    from ledger.history.facts.words import Facts

app = typer.Typer(help="What is recorded of rounds.", no_args_is_help=True)

Round = Annotated[int, typer.Argument(min=1, max=2**32 - 1, help="Number of the round.")]
_COLUMNS = ("round", "status", "ranked", "accepted", "views", "block", "model")


@app.command("list")
def list_rounds(
    home: HomeFolder = DEFAULT_HOME,
    run: RunName = None,
    limit: Limit = 20,
    oldest: Annotated[bool, typer.Option("--oldest", help="Oldest first.")] = False,
    status: Annotated[RoundStatus | None, typer.Option(help="Only rounds that stand so.")] = None,
    client: Annotated[int | None, typer.Option(min=0, help="Only rounds with this client.")] = None,
    role: Annotated[
        AskedRole | None, typer.Option(help="What the client was or did in them.")
    ] = None,
    view_min: Annotated[
        int, typer.Option(min=0, help="Only rounds decided in this view, from 0, or later.")
    ] = 0,
    since_block: Annotated[
        int | None, typer.Option(min=0, help="Only rounds that ended in this block or later.")
    ] = None,
    until_block: Annotated[
        int | None, typer.Option(min=0, help="Only rounds that ended in this block or before.")
    ] = None,
    since: Annotated[
        int | None, typer.Option(min=0, help="Only rounds that ended at this Unix time or later.")
    ] = None,
    until: Annotated[
        int | None, typer.Option(min=0, help="Only rounds that ended at this Unix time or before.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="With --json: each round whole.")] = False,
    cursor: Cursor = None,
    address: Address = None,
    rpc_url: RpcUrl = None,
    chain_id: ChainId = None,
    api: Api = None,
    api_token_file: ApiTokenFile = None,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """List rounds, newest first."""
    from ledger.history.queries import RoundQuery, Span

    if role is not None and client is None:
        raise ConfigurationError("--role needs --client")
    order = Order.OLDEST if oldest else Order.NEWEST
    who = None if client is None else ClientId(client)
    spans = Span(since_block, until_block), Span(since, until)
    walk = RoundQuery("rounds", order, status, who, role or AskedRole.ANY, view_min, *spans)
    where = Target(
        home, run, address, rpc_url, chain_id, remote=RemoteService.of(api, api_token_file)
    )
    with open_history(where) as history:
        facts = history.rounds(walk, limit, cursor, full=full and json)
        name = history.address
    if json:
        print_json(facts)
        return
    rows = [_row(entry) for entry in facts["rounds"]]
    if csv:
        print_csv(_COLUMNS, rows)
        return
    shown = [[shortened(row[column]) for column in _COLUMNS] for row in rows]
    print_table(f"rounds of {name}", _COLUMNS, shown)
    if facts["next_cursor"] is not None:
        print_line(f"More: --cursor {facts['next_cursor']}")


@app.command("show")
def show(
    round_number: Round,
    home: HomeFolder = DEFAULT_HOME,
    run: RunName = None,
    address: Address = None,
    rpc_url: RpcUrl = None,
    chain_id: ChainId = None,
    api: Api = None,
    api_token_file: ApiTokenFile = None,
    json: AsJson = False,
) -> None:
    """Show one round: its ranking, its sets, its model. Nothing is verified; cmfl audit does."""
    where = Target(
        home, run, address, rpc_url, chain_id, remote=RemoteService.of(api, api_token_file)
    )
    with open_history(where) as history:
        facts = history.round(round_number)
        gone = [] if json else history.gone(round_number)
    if json:
        print_json(facts)
        return
    for line in [*_summary(facts), *_left_out(facts), *gone]:
        print_line(line)
    ranked = [entry for entry in facts["parts"]["updates"] if entry["rank"] is not None]
    columns = ("rank", "client", "distance", "accepted", "payload")
    rows = [
        (one["rank"] + 1, one["client"], one["distance"], one["outcome"] == "accepted", payload)
        for one in sorted(ranked, key=lambda entry: int(entry["rank"]))
        for payload in [shortened(one["payload"])]
    ]
    print_table(f"ranking of round {round_number}", columns, rows)


@app.command("explain")
def explain(
    round_number: Round,
    home: HomeFolder = DEFAULT_HOME,
    run: RunName = None,
    address: Address = None,
    rpc_url: RpcUrl = None,
    chain_id: ChainId = None,
    api: Api = None,
    api_token_file: ApiTokenFile = None,
    json: AsJson = False,
) -> None:
    """Say in plain words who was accepted or refused and why, who voted, who was elected.

    The words say what chain and record say; whether that is true, cmfl audit tells.
    """
    where = Target(
        home, run, address, rpc_url, chain_id, remote=RemoteService.of(api, api_token_file)
    )
    with open_history(where) as history:
        facts = history.explanation(round_number)
    if json:
        print_json(facts)
        return
    for line in facts["sentences"]:
        print_line(line)


def _row(entry: Facts) -> dict[str, Any]:
    """Return a round's line for people, who count views from 1."""
    views = None if entry["views"] is None else max(entry["views"]) + 1
    block = None if entry["ended"] is None else entry["ended"]["number"]
    return entry | {"views": views, "block": block}


def _summary(facts: Facts) -> list[str]:
    """Return a round in lines of a name and a value each."""
    members = facts["parts"]["committee"]
    committee = [member["client"] for member in members]
    following = [member["client"] for member in facts["parts"]["next_committee"]]
    empty = [one["client"] for one in members if one["empty_seat"]]
    primaries = [
        one["client"]
        for phase in ("aggregation", "election")
        for one in members
        if phase in one["primary_of"]
    ]
    named = [
        ("status", facts["status"]),
        ("ended", facts["ended"]["at"] if facts["ended"] else None),
        ("committee", committee),
        ("empty seats", empty),
        ("next committee", following),
        ("base", facts["base"]),
        ("reveal", facts["reveal"]),
        ("record", facts["record"] and facts["record"]["digest"]),
        ("incidents", facts["incidents"] and facts["incidents"]["digest"]),
        ("model", facts["model"]),
        ("views", [view + 1 for view in facts["views"] or ()]),
        ("primaries", primaries),
        ("head", facts["head"]),
    ]
    return [f"{name:15} {_shown(value)}" for name, value in named if value]


def _shown(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _left_out(facts: Facts) -> list[str]:
    """Return who was left out of a decision and why, in words."""
    from ledger.protocol.descriptions import DROPOUTS, REFUSALS
    from ledger.protocol.types import RefusalReason

    if facts["record"] is None or not facts["record"]["available"]:
        return []
    parts = facts["parts"]
    dropped = {
        one["client"]: one["reason"]["code"]
        for one in (*parts["updates"], *parts["committee"])
        if one["reason"] is not None
    }
    # Whatever code a service may tell: one that nobody knows has only its number.
    lines = [
        f"{'dropout':15} client {client}: {DROPOUTS.get(code, f'reason {code}')}"
        for client, code in sorted(dropped.items())
    ]
    for claim in parts["scores"]["claims"]:
        if claim["reason"] is not None:
            code = claim["reason"]["code"]
            why = REFUSALS.get(code, f"reason {code}")
            whom = f" (client {claim['named']})" if code == RefusalReason.FALSE_DISTANCE else ""
            lines.append(f"{'refused scores':15} member {claim['member']}: {why}{whom}")
    return lines
