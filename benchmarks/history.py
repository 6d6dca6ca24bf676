"""Cost of a long history in memory: its fold, lists, look-ups and counts.

`python -m benchmarks.history` folds 5,000 generated rounds with 18 trainers and 1,000 rounds with
86 trainers (`generated_rounds.py`: events as a contract logs them, and records without signatures).
Generating the rounds is not counted. It prints the cost beside its aim, and writes it down.
"""

from __future__ import annotations

import argparse
import json
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.generated_rounds import ChainSizes, GeneratedChain
from ledger.history.history import DeploymentFold, FoldedHistory
from ledger.history.queries import AskedRole, RoundQuery
from ledger.protocol.types import ClientId
from ledger.storage.blobs import MemoryBlobs

RESULTS = Path(__file__).parent / "results"
LOOK_UPS = 400
PAGE = 50
CASES = (
    (5_000, ChainSizes(clients=26, trainers=18, members=6), 50),
    (1_000, ChainSizes(clients=105, trainers=86, members=14), 150),
)
"""Rounds, sizes, and the aim for the memory in MB."""
MAX_PAGE_MS = 0.2
MAX_CLIENT_MS = 1.0
Row = dict[str, Any]


def main() -> None:
    """Fold long generated histories, look things up in them, print and write down the costs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--share", type=float, default=1.0, help="share of the rounds to generate")
    share = parser.parse_args().share
    rows = [_measure(round(rounds * share), sizes, most) for rounds, sizes, most in CASES]
    table = Table("", *(f"{r['rounds']:,} rounds, {r['trainers']} trainers" for r in rows))
    for key in rows[0]:
        table.add_row(key, *(f"{row[key]:,}" for row in rows))
    Console().print(table)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "history.json").write_text(json.dumps(rows, indent=1) + "\n", "utf-8")


def _measure(rounds: int, sizes: ChainSizes, most_megabytes: int) -> Row:
    chain = GeneratedChain(sizes)
    chain.published = MemoryBlobs()
    chain.register()
    chain.play(rounds)
    started = time.perf_counter()
    history = FoldedHistory.of(chain.ledger, chain.published)
    folding = time.perf_counter() - started
    return {
        "rounds": rounds,
        "trainers": sizes.trainers,
        "fold, ms a round": round(folding / rounds * 1e3, 3),
        **_look_ups(history, sizes),
        f"aim: {PAGE} rounds, ms": MAX_PAGE_MS,
        f"aim: {PAGE} rounds of a client, ms": MAX_CLIENT_MS,
        **_memory(chain, chain.published),
        "aim: memory, MB": most_megabytes,
    }


def _look_ups(history: FoldedHistory, sizes: ChainSizes) -> Row:
    """Return median milliseconds of each look-up, and of the first of those that read ahead."""
    rng = np.random.default_rng(1)
    newest = history.newest()
    numbers = rng.integers(1, newest, LOOK_UPS).tolist()
    clients = [ClientId(int(client)) for client in rng.integers(0, sizes.clients, LOOK_UPS)]
    ends = [round_.end for round_ in history.some(numbers)]

    def of_client(place: int) -> object:
        return _parts(history, clients[place])

    def dropped_out(place: int) -> object:
        query = RoundQuery(client=clients[place], role=AskedRole.DROPPED_OUT)
        return history.page(query, PAGE, None)

    def of_digest(place: int) -> object:
        end = ends[place]
        return None if end is None else history.occurrences(end.head, 0, 20)

    once: dict[str, Callable[[], object]] = {
        "all counts, first, ms": history.tally,
        "a digest, first, ms": lambda: of_digest(0),
    }
    first = {name: round(_ms(lambda _, read=read: read(), 0), 1) for name, read in once.items()}  # type: ignore[misc]
    many: dict[str, Callable[[int], object]] = {
        "a round, ms": lambda place: history.round(numbers[place]),
        f"{PAGE} rounds, ms": lambda _: history.page(RoundQuery(), PAGE, None),
        f"{PAGE} rounds of a client, ms": of_client,
        f"{PAGE} rounds that a client dropped out of, ms": dropped_out,
        "a digest, ms": of_digest,
        "all counts, ms": lambda _: history.tally(),
    }
    return first | {
        name: round(median(_ms(read, place) for place in range(LOOK_UPS)), 3)
        for name, read in many.items()
    }


def _parts(history: FoldedHistory, client: ClientId) -> list[object]:
    """Return the parts of a client in its newest rounds."""
    page = history.page(RoundQuery(client=client), PAGE, None)
    return [history.documented(round_).part(client) for round_ in page.rounds]


def _memory(chain: GeneratedChain, blobs: MemoryBlobs) -> Row:
    """Return the memory of a fold, before and after counts and digests were asked for."""
    tracemalloc.start()
    history = DeploymentFold().up_to(chain.ledger, blobs)
    folded = tracemalloc.get_traced_memory()[0]
    history.tally()
    history.occurrences(history.fixed.config, 0, 20)
    for client in map(ClientId, range(history.fixed.clients)):
        _parts(history, client)
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return {"memory, folded, MB": round(folded / 1e6, 1), "memory, MB": round(used / 1e6, 1)}


def _ms(read: Callable[[int], object], place: int) -> float:
    started = time.perf_counter()
    read(place)
    return (time.perf_counter() - started) * 1e3


if __name__ == "__main__":
    main()
