"""`cmfl rounds`, `clients`, `evidence` and `watch`: the recorded history, and the open round."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from cmfl.commands import console, options
from cmfl.commands.application import Commands
from cmfl.commands.process import results
from cmfl.where import RemoteService, deployment_at, open_history
from ledger.history.answers_rounds import FullRound, LocalHistory
from ledger.history.answers_signed import EvidenceEntry
from ledger.history.export import EVIDENCE, reason_of
from ledger.history.fields import AskedRole, Code, EvidenceKind, Order, RoundQuery, Span
from ledger.history.round import RoundStatus
from ledger.protocol import types
from ledger.protocol.errors import ConfigurationError, ServiceError
from ledger.protocol.ledger_state import SIGNED_TWICE

if TYPE_CHECKING:
    from api.client import RemoteDeployment
    from api.schemas import FederationAnswer, OpenRound, PacedRound


rounds_app = Commands()

Round = Annotated[int, Argument(min=1, max=2**32 - 1, help="Number of the round.")]
_DIGEST = re.compile(types.EITHER_FORM_ANY_CASE)


@rounds_app.command("list")
def list_rounds(
    source: options.HistoryOptions,
    rounds: options.RoundRange,
    limit: options.Limit = 20,
    oldest: Annotated[bool, "List the oldest first."] = False,
    status: Annotated[RoundStatus | None, "Only rounds with this status."] = None,
    client: Annotated[int | None, Option(min=0, help="Only rounds with this client.")] = None,
    role: Annotated[AskedRole | None, "Role or outcome of the client in the rounds."] = None,
    view_min: Annotated[
        int, Option(min=0, help="Only rounds decided in this view (from 0) or a later one.")
    ] = 0,
    since_block: Annotated[
        int | None, Option(min=0, help="Only rounds that ended in this block or a later one.")
    ] = None,
    until_block: Annotated[
        int | None, Option(min=0, help="Only rounds that ended in this block or an earlier one.")
    ] = None,
    since: Annotated[
        int | None, Option(min=0, help="Only rounds that ended at this Unix time or later.")
    ] = None,
    until: Annotated[
        int | None, Option(min=0, help="Only rounds that ended at this Unix time or before.")
    ] = None,
    full: Annotated[bool, "With --json, print every part of each round."] = False,
    cursor: options.Cursor = None,
    json: console.AsJson = False,
) -> None:
    """List rounds, newest first."""
    if role is not None and client is None:
        raise ConfigurationError("--role needs --client")
    order = Order.OLDEST if oldest else Order.NEWEST
    spans = Span(since_block, until_block), Span(since, until), rounds
    query = RoundQuery("rounds", order, status, client, role or AskedRole.ANY, view_min, *spans)
    with open_history(source.target()) as history:
        page = history.rounds(query, limit, cursor, full=full and json)
        name = history.address
    if json:
        console.print_response(page)
        return
    shown = [
        (
            *(entry["round"], entry["status"], entry["ranked"], entry["accepted"]),
            None if entry["views"] is None else max(entry["views"]) + 1,
            None if entry["ended"] is None else entry["ended"]["number"],
            console.shortened(entry["model"]),
        )
        for entry in page["rounds"]
    ]
    columns = ("round", "status", "ranked", "accepted", "views", "block", "model")
    console.print_page(page, f"rounds of {name}", columns, shown)


@rounds_app.command("show")
def show_round(
    source: options.HistoryOptions,
    round_or_digest: Annotated[
        str,
        "Number of a round, or a digest of 64 hex digits.",
        Argument(metavar="ROUND|DIGEST"),
    ],
    limit: options.Limit = 20,
    cursor: options.Cursor = None,
    json: console.AsJson = False,
) -> None:
    """Show one round: ranking, sets and model. To verify them, run cmfl audit.

    For a digest, the command lists its occurrences by kind, round and client. The digest can belong
    to a file, commitment, seed, root, result, head, block or transaction.
    """
    target, asked = source.target(), round_or_digest
    if _DIGEST.fullmatch(asked):
        with open_history(target) as history:
            digest = types.Digest(bytes.fromhex(asked.removeprefix("0x")))
            page = history.digest(digest, limit, cursor)
        if json:
            console.print_response(page)
        elif page["items"]:
            columns = ("kind", "round", "client")
            rows = [[item["kind"], item["round"], item["client"]] for item in page["items"]]
            console.print_page(page, f"places of {page['digest'][:18]}…", columns, rows)
        else:
            console.print_line(f"{page['digest']} is not in this run.")
        return
    if not asked.isdecimal() or not asked.isascii() or not 1 <= int(asked[:11]) < 2**32:
        raise typer.BadParameter(
            f"{asked[:80]!r}: must be a round number from 1, or a digest of 64 hex digits"
        )
    with open_history(target) as history:
        number = int(asked)
        round_ = history.full_round(number)
        if json:
            console.print_response(round_)
            return
        # A service's explanation names the payloads that it lacks; here the lines are added.
        missing = history.missing_payloads(number) if isinstance(history, LocalHistory) else []
        found = history.evidence(RoundQuery(rounds=Span(number, number)), 1000, None)["evidence"]
    lines = [f"{each['kind']:15} client {each['client']}: {_why(each)}" for each in found]
    console.print_lines([*_summary(round_), *lines, *missing])
    ranking = [
        (
            *(rank, entry["client"], entry["distance"], entry["outcome"] == "accepted"),
            console.shortened(entry["payload"]),
        )
        for entry in sorted(round_["parts"]["updates"], key=lambda each: each["rank"] or 0)
        if (rank := entry["rank"]) is not None
    ]
    titles = ("rank", "client", "distance", "accepted", "payload")
    console.print_table(f"ranking of round {asked}", titles, ranking)


@rounds_app.command("explain")
def explain(
    source: options.HistoryOptions, round_number: Round, json: console.AsJson = False
) -> None:
    """Explain one round in plain words: accepted and refused updates, votes and election.

    The text reports the chain and the record. To verify them, run cmfl audit.
    """
    with open_history(source.target()) as history:
        explanation = history.explanation(round_number)
    if json:
        console.print_response(explanation)
    else:
        console.print_lines(explanation["sentences"])


def _summary(round_: FullRound) -> list[str]:
    members = round_["parts"]["committee"]
    primaries = [
        member["client"]
        for phase in ("aggregation", "election")
        for member in members
        if phase in member["primary_of"]
    ]
    named = {
        "status": round_["status"],
        "ended": round_["ended"]["at"] if round_["ended"] else None,
        "committee": [member["client"] for member in members],
        "empty seats": [member["client"] for member in members if member["empty_seat"]],
        "next committee": [member["client"] for member in round_["parts"]["next_committee"]],
        "base": round_["base"],
        "reveal": round_["reveal"],
        "record": round_["record"] and round_["record"]["digest"],
        "incidents": round_["incidents"] and round_["incidents"]["digest"],
        "model": round_["model"],
        "views": [view + 1 for view in round_["views"] or ()],
        "primaries": primaries,
        "head": round_["head"],
    }
    return [f"{name:15} {console.whole(value)}" for name, value in named.items() if value]


_TEXTS: dict[str, Mapping[Any, str]] = {
    "ban": SIGNED_TWICE,
    "refused_scores": types.REFUSALS,
    "incident": types.INCIDENTS,
    "dropout": types.DROPOUTS,
}


def _text(kind: str, reason: Code | None) -> str:
    """Return a reason as text; one that is unknown here, which a service may send, as its code."""
    code = None if reason is None else reason["code"]
    return _TEXTS[kind].get(code, f"reason {code}")


def _why(entry: EvidenceEntry) -> str:
    text, scores = _text(entry["kind"], reason_of(entry)), entry["scores"]
    named = scores and scores["named"]
    return text if named is None else f"{text} (client {named})"


def evidence(
    source: options.HistoryOptions,
    rounds: options.RoundRange,
    kind: Annotated[EvidenceKind | None, "Only entries of this kind."] = None,
    client: Annotated[int | None, Option(min=0, help="Only entries about this client.")] = None,
    limit: options.Limit = 1000,
    oldest: Annotated[bool, "List the oldest first."] = False,
    cursor: options.Cursor = None,
    json: console.AsJson = False,
    csv: console.AsCsv = False,
) -> None:
    """List banned, refused and left-out clients with reasons.

    Two signed statements prove a ban. A dropout proves nothing, because mail can be lost.
    """
    order = Order.OLDEST if oldest else Order.NEWEST
    query = RoundQuery(order=order, client=client, rounds=rounds, kind=kind)
    with open_history(source.target()) as history:
        page = history.evidence(query, limit, cursor)
    if json:
        console.print_response(page)
        return
    rows = EVIDENCE.rows(page)
    if csv:
        console.print_csv(list(EVIDENCE.columns), rows)
        if page["next_cursor"] is not None:
            console.complain(f"more entries follow: continue with --cursor {page['next_cursor']}")
        return
    columns = ("round", "client", "kind", "why", "transaction", "digest", "commitment")
    for entry, row in zip(page["evidence"], rows, strict=True):
        row["why"] = _why(entry)
    shown = [[console.shortened(row[column]) for column in columns] for row in rows]
    console.print_page(page, "evidence", columns, shown)


clients_app = Commands()

Client = Annotated[int, Argument(min=0, help="Index of the client.")]
_COUNTS = ("sampled", "ranked", "accepted", "served", "scored", "refused", "voted", "incidents")
_CLIENT_COLUMNS = ("client", "address", "samples", *_COUNTS, "banned_in_round")
_ROUND = ("round", "status", "role", "committed", "rank", "distance", "outcome", "scores", "voted")


@clients_app.command("list")
def list_clients(
    source: options.HistoryOptions,
    limit: options.Limit = 1000,
    cursor: options.Cursor = None,
    json: console.AsJson = False,
    csv: console.AsCsv = False,
) -> None:
    """List the registered clients with their samples and their counts so far.

    A ban takes effect in the round after the one that records it.
    """
    with open_history(source.target()) as history:
        page = history.clients(limit, cursor)
    if json:
        console.print_response(page)
        return
    rows: Sequence[Mapping[str, Any]] = page["clients"]
    if csv:
        console.print_csv(_CLIENT_COLUMNS, rows)
        return
    shown = [[console.shortened(row[column]) for column in _CLIENT_COLUMNS] for row in rows]
    console.print_table("clients", (*_CLIENT_COLUMNS[:-1], "banned in"), shown)
    if page["records_missing"]:
        console.print_line(
            f"The records of {page['records_missing']} rounds are missing: the outcomes of their "
            "scores are unknown."
        )
    console.print_cursor(page["next_cursor"])


@clients_app.command("show")
def show_client(
    source: options.HistoryOptions, client: Client, json: console.AsJson = False
) -> None:
    """Show one client: its address, samples and counts so far."""
    with open_history(source.target()) as history:
        response = history.client(client)
    if json:
        console.print_response(response)
        return
    for name, value in response["client"].items():
        if name != "links":
            console.print_line(f"{name:15} {'' if value is None else value}".rstrip())
    if (ban := response["ban"]) is not None:
        proof = f"block {ban['block']}, transaction {ban['transaction']}"
        console.print_line(f"{'reason':15} {_text('ban', ban['signed_twice'])}: {proof}")


@clients_app.command("rounds")
def rounds(
    source: options.HistoryOptions,
    client: Client,
    span: options.RoundRange,
    limit: options.Limit = 20,
    oldest: Annotated[bool, "List the oldest first."] = False,
    cursor: options.Cursor = None,
    json: console.AsJson = False,
) -> None:
    """Show one client's rounds: rank, outcome, scores and votes."""
    query = RoundQuery(order=Order.OLDEST if oldest else Order.NEWEST, rounds=span)
    with open_history(source.target()) as history:
        page = history.client_rounds(client, query, limit, cursor)
    if json:
        console.print_response(page)
        return
    rows: Sequence[Mapping[str, Any]] = page["rounds"]
    cells = [[row[column] for column in _ROUND] for row in rows]
    shown = [[", ".join(each) if isinstance(each, list) else each for each in row] for row in cells]
    console.print_page(page, f"rounds of client {client}", _ROUND, shown)


AWAY_SECONDS = 60.0  # without an answer for this time, the service counts as gone
STILL_SECONDS = 60.0  # without a block for this time, the chain counts as stalled
MOST_NAMED = 12  # late clients named in one line


def watch(
    api: Annotated[
        str | None, "URL of a service with a mailbox, up to /v1.", Option("--api", is_eager=True)
    ] = None,
    api_token_file: options.ApiTokenFile = None,
    run: options.RunName = None,
    address: options.Address = None,
    chain_id: options.ChainId = None,
    poll: Annotated[float, Option(min=0.1, max=3_600, help="Seconds between two requests.")] = 1.0,
    worker: Annotated[list[Path] | None, "Folder of a worker, to show its errors."] = None,
    json: console.AsJson = False,
) -> None:
    """Follow the open round of a live federation.

    The command polls a service with a mailbox (cmfl serve --mailbox) until the run is finished, or
    until a minute without a response. A worker's errors are only in its own folder.
    """
    remote = RemoteService.of(api, api_token_file)
    if remote is None:
        raise ConfigurationError("--api: name a service with a mailbox (cmfl serve --mailbox)")
    deployment = deployment_at(remote.service(), chain_id, address, run)
    last_line = newest = ""
    since, is_reported, stage = 0.0, False, ""
    ended: set[int] | None = None
    reported: set[str] = set()
    while stage != "finished":
        if ended is not None:
            time.sleep(poll)
        answer = _poll(deployment, poll)
        block, stage, now = answer["as_of"], answer["stage"], time.monotonic()
        if block["hash"] != newest:
            newest, since, is_reported = block["hash"], now, False
        elif stage != "finished" and not is_reported and now - since >= STILL_SECONDS:
            is_reported = True
            console.complain(f"no block for {STILL_SECONDS:g} s: {block['number']} is the newest")
        over = {each["round"]: each for each in answer["rounds"] if each["ended"] is not None}
        new = [each for number, each in over.items() if ended is not None and number not in ended]
        if not json:
            console.print_lines(_end(each) for each in reversed(new))
        ended = {*over}
        troubles = _troubles(worker or [])
        for trouble in sorted(troubles - reported):
            console.complain(trouble)
        reported = troubles
        if (line := line_of(answer)) != last_line:
            last_line = line
            if json:
                # Escaped: a service may send control sequences of a terminal.
                results().write(dumps(answer) + "\n")
                results().flush()
            else:
                console.print_line(line)


def _troubles(folders: Sequence[Path]) -> set[str]:
    """Return the newest error of each worker in trouble, as its own folder has it."""
    from clients.worker.status import WorkerFolder, read_status

    found = {folder: read_status(WorkerFolder(folder).status) for folder in folders}
    return {f"{where}: {it.get('last_error')}" for where, it in found.items() if it.get("troubles")}


def _poll(deployment: RemoteDeployment, poll: float) -> FederationAnswer:
    """Return an answer; a service that is away for a moment is asked again."""
    from api.client import ServiceProblemError

    since: float | None = None
    while True:
        try:
            return deployment.federation()
        except ServiceError as error:
            if isinstance(error, ServiceProblemError) and error.status < 500:
                raise
            now = time.monotonic()
            if since is None:
                since = now
                console.complain(f"{error}; retrying for {AWAY_SECONDS:g} s")
            elif now - since >= AWAY_SECONDS:
                raise
        time.sleep(poll)


def line_of(answer: FederationAnswer) -> str:
    """Return the status of a federation, without the time: equal lines for equal status."""
    open_round = answer["open"]
    if open_round is None:
        return f"{answer['stage']}: no round is open"
    parts = [f"round {open_round['round']}: {_stage(open_round)}"]
    late = {
        client["client"]: client
        for client in open_round["clients"]
        if client["late_since"] is not None
    }
    if late:
        named = [
            f"{client} ({', '.join(awaited['act'] for awaited in late[client]['awaited'])})"
            for client in open_round["late"]
            if client in late
        ]
        rest = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
        parts.append(f"late: {', '.join(named[:MOST_NAMED])}{rest}")
    if not answer["mailbox"]["read"]:
        parts.append("the mailbox is only partly readable")
    return "; ".join(parts)


def _stage(open_round: OpenRound) -> str:
    stage = open_round["stage"]
    clients = [each for each in open_round["clients"] if each["role"] != "empty_seat"]
    committed = sum(client["committed_block"] is not None for client in clients)
    if stage == "committing":
        window = open_round["window_block"]
        return f"{committed} of {len(clients)} committed, until block {window}"
    view = open_round["view"]
    if view is not None:
        return f"{view['phase']}, view {view['number'] + 1}, primary {view['primary']}"
    if stage == "exhausted":
        return f"all views failed, can be abandoned from block {open_round['deadline_block']}"
    if stage == "deciding":
        return "both votes are certified, the decision is pending"
    published = sum(client["payload"] is not None for client in clients)
    return f"{stage}, {published} of {committed} payloads published"


def _end(paced: PacedRound) -> str:
    views = paced["views"]
    in_views = "" if views is None else f" in views {views[0] + 1} and {views[1] + 1}"
    return f"round {paced['round']}: {paced['status']}{in_views}, after {paced['seconds']} s"
