"""`cmfl rounds`: the recorded rounds, in tables, JSON and plain words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from cmfl.commands.console import (
    AsJson,
    print_cursor,
    print_line,
    print_response,
    print_table,
    shortened,
    whole,
)
from cmfl.commands.option_groups import expand_groups
from cmfl.commands.options import Cursor, Limit
from cmfl.commands.source_options import HistoryOptions
from cmfl.where import Target, open_history
from ledger.history.queries import AskedRole, Order, RoundStatus
from ledger.protocol import types
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import ClientId, Digest

if TYPE_CHECKING:
    from ledger.history.answers_rounds import FullRound, RoundNumbers, RoundSummary

app = typer.Typer(help="The recorded rounds.", no_args_is_help=True)

Round = Annotated[int, typer.Argument(min=1, max=2**32 - 1, help="Number of the round.")]
_DIGEST = re.compile(types.EITHER_FORM_ANY_CASE)
_COLUMNS = ("round", "status", "ranked", "accepted", "views", "block", "model")


@app.command("list")
@expand_groups
def list_rounds(
    source: HistoryOptions,
    limit: Limit = 20,
    oldest: Annotated[bool, typer.Option("--oldest", help="Oldest first.")] = False,
    status: Annotated[
        RoundStatus | None, typer.Option(help="Only rounds with this status.")
    ] = None,
    client: Annotated[int | None, typer.Option(min=0, help="Only rounds with this client.")] = None,
    role: Annotated[AskedRole | None, typer.Option(help="The part of the client in them.")] = None,
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
    json: AsJson = False,
) -> None:
    """List rounds, newest first."""
    from ledger.history.queries import RoundQuery, Span

    if role is not None and client is None:
        raise ConfigurationError("--role needs --client")
    order = Order.OLDEST if oldest else Order.NEWEST
    participant = None if client is None else ClientId(client)
    spans = Span(since_block, until_block), Span(since, until)
    query = RoundQuery(
        "rounds", order, status, participant, role or AskedRole.ANY, view_min, *spans
    )
    with open_history(source.target()) as history:
        page = history.rounds(query, limit, cursor, full=full and json)
        name = history.address
    if json:
        print_response(page)
        return
    rows = [_row(entry) for entry in page["rounds"]]
    shown = [[shortened(row[column]) for column in _COLUMNS] for row in rows]
    print_table(f"rounds of {name}", _COLUMNS, shown)
    print_cursor(page["next_cursor"])


@app.command("show")
@expand_groups
def show(
    source: HistoryOptions,
    round_or_digest: Annotated[
        str,
        typer.Argument(
            metavar="ROUND|DIGEST",
            help="Number of a round, or 64 hex digits of anything that a round names.",
        ),
    ],
    limit: Limit = 20,
    cursor: Cursor = None,
    json: AsJson = False,
) -> None:
    """Show one round: its ranking, its sets, its model. cmfl audit verifies them.

    For a digest, show its places: kind, round and client. It is the sha256 of a file, a commitment,
    a seed, a root, a result, a head, a block or a transaction.
    """
    from ledger.history.local import LocalHistory

    target = source.target()
    if _DIGEST.fullmatch(round_or_digest):
        _show_digest(target, round_or_digest, limit, cursor, json=json)
        return
    round_number = _round_number(round_or_digest)
    with open_history(target) as history:
        round_ = history.full_round(round_number)
        if json:
            print_response(round_)
            return
        # A service's explanation names the payloads that it lacks; here the lines are added.
        missing: list[str] = []
        if isinstance(history, LocalHistory):
            missing = history.missing_payloads(round_number)
    for line in [*_summary(round_), *_left_out(round_), *missing]:
        print_line(line)
    ranked = [
        (entry["rank"], entry) for entry in round_["parts"]["updates"] if entry["rank"] is not None
    ]
    columns = ("rank", "client", "distance", "accepted", "payload")
    rows = [
        (
            *(rank + 1, entry["client"], entry["distance"], entry["outcome"] == "accepted"),
            shortened(entry["payload"]),
        )
        for rank, entry in sorted(ranked, key=lambda pair: pair[0])
    ]
    print_table(f"ranking of round {round_number}", columns, rows)


@app.command("explain")
@expand_groups
def explain(source: HistoryOptions, round_number: Round, json: AsJson = False) -> None:
    """Explain one round in plain words: accepted and refused updates, votes and election.

    The words report chain and record; cmfl audit verifies these.
    """
    with open_history(source.target()) as history:
        explanation = history.explanation(round_number)
    if json:
        print_response(explanation)
        return
    for line in explanation["sentences"]:
        print_line(line)


def _round_number(value: str) -> int:
    if not value.isdecimal() or not value.isascii() or not 1 <= int(value[:11]) < 2**32:
        raise typer.BadParameter(
            f"{value[:80]!r}: give the number of a round, from 1, or a digest of 64 hex digits"
        )
    return int(value)


def _show_digest(target: Target, value: str, limit: int, cursor: str | None, *, json: bool) -> None:
    digest = Digest(bytes.fromhex(value.removeprefix("0x")))
    with open_history(target) as history:
        page = history.digest(digest, limit, cursor)
    if json:
        print_response(page)
    elif page["items"]:
        columns = ("kind", "round", "client")
        rows = [(item["kind"], item["round"], item["client"]) for item in page["items"]]
        print_table(f"places of {page['digest'][:18]}…", columns, rows)
        print_cursor(page["next_cursor"])
    else:
        print_line(f"{page['digest']} is not in this run.")


def _row(entry: RoundSummary | RoundNumbers) -> dict[str, object]:
    """Return a round's row, with views counted from 1."""
    return {
        "round": entry["round"],
        "status": entry["status"],
        "ranked": entry["ranked"],
        "accepted": entry["accepted"],
        "views": None if entry["views"] is None else max(entry["views"]) + 1,
        "block": None if entry["ended"] is None else entry["ended"]["number"],
        "model": entry["model"],
    }


def _summary(round_: FullRound) -> list[str]:
    """Return a round in lines of a name and a value each."""
    members = round_["parts"]["committee"]
    committee = [member["client"] for member in members]
    following = [member["client"] for member in round_["parts"]["next_committee"]]
    empty = [member["client"] for member in members if member["empty_seat"]]
    primaries = [
        member["client"]
        for phase in ("aggregation", "election")
        for member in members
        if phase in member["primary_of"]
    ]
    named = [
        ("status", round_["status"]),
        ("ended", round_["ended"]["at"] if round_["ended"] else None),
        ("committee", committee),
        ("empty seats", empty),
        ("next committee", following),
        ("base", round_["base"]),
        ("reveal", round_["reveal"]),
        ("record", round_["record"] and round_["record"]["digest"]),
        ("incidents", round_["incidents"] and round_["incidents"]["digest"]),
        ("model", round_["model"]),
        ("views", [view + 1 for view in round_["views"] or ()]),
        ("primaries", primaries),
        ("head", round_["head"]),
    ]
    return [f"{name:15} {whole(value)}" for name, value in named if value]


def _left_out(round_: FullRound) -> list[str]:
    """Return the dropouts and the refused scores of a decision, with reasons."""
    from ledger.protocol.types import DROPOUTS, REFUSALS, RefusalReason

    if round_["record"] is None or not round_["record"]["available"]:
        return []
    parts = round_["parts"]
    reasons = [
        *((update["client"], update["reason"]) for update in parts["updates"]),
        *((member["client"], member["reason"]) for member in parts["committee"]),
    ]
    dropped = {client: reason["code"] for client, reason in reasons if reason is not None}
    # A service may send any code: an unknown one has only its number.
    dropouts = {int(code): text for code, text in DROPOUTS.items()}
    refusals = {int(code): text for code, text in REFUSALS.items()}
    lines = [
        f"{'dropout':15} client {client}: {dropouts.get(code, f'reason {code}')}"
        for client, code in sorted(dropped.items())
    ]
    for claim in parts["scores"]["claims"]:
        if claim["reason"] is not None:
            code = claim["reason"]["code"]
            why = refusals.get(code, f"reason {code}")
            whom = f" (client {claim['named']})" if code == RefusalReason.FALSE_DISTANCE else ""
            lines.append(f"{'refused scores':15} member {claim['member']}: {why}{whom}")
    return lines
