"""`cmfl rounds`: what is recorded of rounds, in tables, JSON and plain words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.console import AsJson, console, counted_from_one, print_json, print_table, shortened
from cli.where import DEFAULT_HOME, Address, ChainId, Home, RpcUrl, RunName, Where
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from ledger.audit.history import RoundHistory
    from ledger.protocol.documents import RunDocument

app = typer.Typer(help="What is recorded of rounds.", no_args_is_help=True)

Round = Annotated[int, typer.Argument(min=1, max=2**32 - 1, help="Number of the round.")]


@app.command("list")
def list_rounds(
    home: Home = DEFAULT_HOME,
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

    with Where(home, run, address, rpc_url, chain_id).reader() as chain:
        ledger = Where(home, run, address, rpc_url, chain_id).ledger(chain)
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
    home: Home = DEFAULT_HOME,
    run: RunName = None,
    address: Address = None,
    rpc_url: RpcUrl = None,
    chain_id: ChainId = None,
    json: AsJson = False,
) -> None:
    """Show one round: its ranking, its sets, its model."""
    where = Where(home, run, address, rpc_url, chain_id)
    history, _ = _read(where, round_number)
    facts = _facts(history)
    if json:
        print_json(facts)
        return
    for name in ("status", "committee", "next_committee", "model", "views", "primaries", "head"):
        console.print(f"{name:15} {shortened(facts[name])}")
    if facts["dropouts"]:
        console.print(f"{'dropouts':15} {facts['dropouts']}")
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
    home: Home = DEFAULT_HOME,
    run: RunName = None,
    address: Address = None,
    rpc_url: RpcUrl = None,
    chain_id: ChainId = None,
    json: AsJson = False,
) -> None:
    """Say in plain words who was accepted or refused and why, who voted, who was elected."""
    from ledger.audit.explain import explain_round

    history, document = _read(Where(home, run, address, rpc_url, chain_id), round_number)
    lines = explain_round(history, document)
    if json:
        print_json({"round": round_number, "sentences": lines})
        return
    for line in lines:
        console.print(line)


def _read(where: Where, round_number: int) -> tuple[RoundHistory, RunDocument | None]:
    from ledger.audit.history import read_round, read_run

    with where.reader() as chain:
        ledger = where.ledger(chain)
        sizes = ledger.deployment()
        history = read_round(ledger, sizes, round_number, where.blobs())
    if history is None:
        raise ConfigurationError(f"round {round_number} has not opened (T = {sizes.rounds})")
    return history, read_run(where.blobs(), sizes.config)


def _facts(history: RoundHistory) -> dict[str, Any]:
    """Return a round as plain data."""
    from ledger.protocol.encoding import word_client, word_distance

    event, accepted = history.decided, set(history.decided.accepted if history.decided else ())
    ranking = []
    for rank, word in enumerate(event.ranking if event else ()):
        client = word_client(word)
        row: dict[str, Any] = {"rank": rank, "client": client, "distance": word_distance(word)}
        row |= {"distance_bits": str(word >> 32), "accepted": client in accepted}
        ranking.append(row | {"payload": history.commitments.get(client)})
    ended = history.decided or history.abandoned
    return {
        "round": history.round,
        "status": history.status,
        "seed": history.seed,
        "committee": history.committee,
        "trainers": history.trainers,
        "committed": sorted(history.commitments),
        "ranking": ranking,
        "accepted": event.accepted if event else (),
        "next_committee": ended.next_committee if ended else (),
        "model": event.model if event else None,
        "views": [view + 1 for view in event.views] if event else [],
        "primaries": event.primaries if event else (),
        "banned": history.banned,
        "dropouts": [list(entry) for entry in history.record.dropouts] if history.record else [],
        "head": ended.head if ended else None,
        "block": history.ended.block_number if history.ended else None,
    }
