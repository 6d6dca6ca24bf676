"""`cmfl rounds`: what is recorded of rounds, in tables, JSON and plain words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

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

if TYPE_CHECKING:
    from enum import IntEnum

    from ledger.audit.history import RoundHistory
    from ledger.protocol.documents.record import Dropout, RefusedScores
    from ledger.protocol.documents.run import RunDocument

app = typer.Typer(help="What is recorded of rounds.", no_args_is_help=True)

Round = Annotated[int, typer.Argument(min=1, max=2**32 - 1, help="Number of the round.")]


@app.command("list")
def list_rounds(
    home: HomeFolder = DEFAULT_HOME,
    run: RunName = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many rounds.")] = 20,
    oldest: Annotated[bool, typer.Option("--oldest", help="Oldest first.")] = False,
    address: Address = None,
    rpc_url: RpcUrl = None,
    chain_id: ChainId = None,
    json: AsJson = False,
) -> None:
    """List ended rounds, newest first."""
    from ledger.protocol.ledger_state import RoundAbandoned, RoundDecided

    where = Where(home, run, address, rpc_url, chain_id)
    with where.reader() as chain:
        ledger = where.ledger(chain)
        ended = ledger.outcomes(limit, descending=not oldest)
    rows: list[dict[str, Any]] = []
    for recorded in ended:
        event = recorded.event
        if isinstance(event, RoundDecided):
            facts = {"ranked": len(event.ranking), "accepted": len(event.accepted)}
            facts |= {"views": max(event.views) + 1}
            rows.append({"round": event.round, "status": "decided"} | facts)
            rows[-1]["model"] = f"0x{event.model.hex()}"
        elif isinstance(event, RoundAbandoned):
            facts = {"ranked": 0, "accepted": 0, "views": 0}
            rows.append({"round": event.round, "status": "abandoned"} | facts | {"model": None})
        rows[-1]["block"] = recorded.block_number
    if json:
        print_json(rows)
        return
    columns = ("round", "status", "ranked", "accepted", "views", "block", "model")
    print_table(
        f"rounds of {ledger.address}",
        columns,
        [[shortened(row[column]) for column in columns] for row in rows],
    )


@app.command("show")
def show(
    round_number: Round,
    home: HomeFolder = DEFAULT_HOME,
    run: RunName = None,
    address: Address = None,
    rpc_url: RpcUrl = None,
    chain_id: ChainId = None,
    json: AsJson = False,
) -> None:
    """Show one round: its ranking, its sets, its model. Nothing is verified; cmfl audit does."""
    where = Where(home, run, address, rpc_url, chain_id)
    history, _ = _read(where, round_number)
    facts = _facts(history)
    if json:
        print_json(facts)
        return
    names = ("status", "committee", "next_committee", "base", "reveal", "record", "incidents")
    for name in (*names, "model", "views", "primaries", "head"):
        if facts[name]:
            print_line(f"{name:15} {whole(facts[name])}")
    for line in (*_left_out(history), *_gone(where, history)):
        print_line(line)
    columns = ("rank", "client", "distance", "accepted", "payload")
    print_table(
        f"ranking of round {round_number}",
        columns,
        [
            [shortened(row[column]) for column in columns]
            for row in map(counted_from_one, facts["ranking"])
        ],
    )


@app.command("explain")
def explain(
    round_number: Round,
    home: HomeFolder = DEFAULT_HOME,
    run: RunName = None,
    address: Address = None,
    rpc_url: RpcUrl = None,
    chain_id: ChainId = None,
    json: AsJson = False,
) -> None:
    """Say in plain words who was accepted or refused and why, who voted, who was elected.

    The words say what chain and record say; whether that is true, cmfl audit tells.
    """
    from ledger.audit.explain import explain_round

    where = Where(home, run, address, rpc_url, chain_id)
    history, document = _read(where, round_number)
    lines = [*explain_round(history, document), *_gone(where, history)]
    if json:
        print_json({"round": round_number, "sentences": lines})
        return
    for line in lines:
        print_line(line)


def _read(where: Where, round_number: int) -> tuple[RoundHistory, RunDocument | None]:
    from ledger.audit.history import read_round, read_run

    with where.reader() as chain:
        ledger = where.ledger(chain)
        sizes = ledger.deployment()
        history = read_round(ledger, sizes, round_number, where.blobs())
    if history is None:
        raise ConfigurationError(f"round {round_number} has not opened (T = {sizes.rounds})")
    return history, read_run(where.blobs(), sizes.config)


def _left_out(history: RoundHistory) -> list[str]:
    """Return who was left out and why, in words."""
    from ledger.audit.sentences import why
    from ledger.protocol.types import RefusalReason

    if history.record is None:
        return []
    lines = [
        f"{'dropout':15} client {dropout.client}: {why(dropout.reason)}"
        for dropout in history.record.dropouts
    ]
    return lines + [
        f"{'refused scores':15} member {entry.signed.scores.member}: {why(entry.reason)}"
        f"{f' (client {entry.client})' if entry.reason is RefusalReason.FALSE_DISTANCE else ''}"
        for entry in history.record.refused
    ]


def _gone(where: Where, history: RoundHistory) -> list[str]:
    """Return in words whose payload is not kept, nothing if all of them are."""
    from ledger.audit.explain import explain_gone
    from ledger.audit.history import gone_payloads

    return explain_gone(history, gone_payloads(history, where.blobs()))


def _facts(history: RoundHistory) -> dict[str, Any]:
    """Return a round as plain data."""
    event, record = history.decided, history.record
    ended = history.decided or history.abandoned
    return {
        "round": history.round,
        "status": history.status,
        "seed": history.seed,
        "committee": history.committee,
        "empty_seats": history.empty_seats,
        "trainers": history.trainers,
        "committed": sorted(history.commitments),
        "ranking": _ranking(history),
        "accepted": event.accepted if event else (),
        "next_committee": ended.next_committee if ended else (),
        "base": event.base if event else None,
        "reveal": event.reveal if event else None,
        "model": event.model if event else None,
        "views": [view + 1 for view in event.views] if event else [],
        "primaries": event.primaries if event else (),
        "banned": history.banned,
        "record": event.record if event else None,
        "dropouts": [_dropout(dropout) for dropout in record.dropouts] if record else [],
        "refused": [_refused(entry) for entry in record.refused] if record else [],
        "incidents": event.incidents if event and any(event.incidents) else None,
        "head": ended.head if ended else None,
        "block": history.ended.block_number if history.ended else None,
    }


def _ranking(history: RoundHistory) -> list[dict[str, Any]]:
    from ledger.protocol.encoding import word_client, word_distance

    if history.decided is None:
        return []
    accepted, payloads = set(history.decided.accepted), history.payloads
    rows: list[dict[str, Any]] = []
    for rank, word in enumerate(history.decided.ranking):
        client = word_client(word)
        row: dict[str, Any] = {"rank": rank, "client": client, "distance": word_distance(word)}
        row |= {"distance_bits": str(word >> 32), "accepted": client in accepted}
        row |= {"commitment": history.commitments.get(client), "payload": payloads.get(client)}
        rows.append(row)
    return rows


def _dropout(dropout: Dropout) -> dict[str, Any]:
    reason = _coded(dropout.reason)
    return {"client": dropout.client, "reason": reason, "payload": dropout.payload}


def _refused(entry: RefusedScores) -> dict[str, Any]:
    from ledger.protocol.types import RefusalReason

    claim, named = entry.signed.scores, entry.reason is RefusalReason.FALSE_DISTANCE
    return {
        "member": claim.member,
        "digest": claim.digest,
        "reason": _coded(entry.reason),
        "named": entry.client if named else None,
    }


def _coded(reason: IntEnum) -> dict[str, Any]:
    """Return a reason as programs compare it: its number, and its stable name."""
    return {"code": int(reason), "name": reason.name.lower()}
