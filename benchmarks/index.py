"""Cost of the index: rounds per second to build it, and look-ups in a short and a long one.

`python -m benchmarks.index` indexes 100,000 generated rounds (12 clients, C = 4, n = 6; see
`generated_rounds.py`: events as a contract would log them, and records without signatures) and asks
for rounds, pages, clients' histories, counts and digests twice, after 1,000 rounds and at the end.
Each look-up is a separate reading, as a request is. Generating the rounds is not counted. Then the
service is asked by wrk, with 16 connections (`served_rounds.py`). `--rounds 2000 --seconds 1` is a
quick look.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.generated_rounds import GeneratedChain
from benchmarks.served_rounds import served_rows
from ledger.history.queries import RoundQuery, Span
from ledger.history.status import AskedRole
from ledger.index.database import Database
from ledger.index.index import Index
from ledger.index.indexer import Indexer
from ledger.index.schema import make_schema
from ledger.index.updater import catch_up
from ledger.protocol.documents.run import RunDocument, encode_run
from ledger.protocol.encoding import sha256
from ledger.protocol.parameters import Parameters
from ledger.protocol.types import Address, ClientId, RegisteredClient
from ledger.storage.blobs import MemoryBlobs

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.index.index import IndexReading
    from ledger.index.indexed_history import IndexedHistory

SHORT = 1_000
PLAYED = 2_000
LOOK_UPS = 400
PAGE = 50
RESULTS = Path(__file__).parent / "results"
Row = dict[str, Any]

CONFIGURATION = RunDocument(
    Parameters(12, 833_333, 400_000, 400_000, 2**31, 1, commit_blocks=2, deadline_blocks=6),
    tuple(RegisteredClient(Address((i + 1).to_bytes(20)), 10 + i) for i in range(12)),
    sha256(b"model 0"),
    (("w", (1,)),),
    {},
)
"""What the generated rounds are rounds of: a proof begins with it."""


def main() -> None:
    """Index a long generated history, look things up in it, print and write down what that took."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100_000, help="rounds of the long history")
    parser.add_argument("--index", help="postgresql://..., instead of a new SQLite file")
    parser.add_argument("--seconds", type=float, default=10, help="of requests of each kind")
    arguments = parser.parse_args()
    if arguments.rounds <= SHORT:
        parser.error(f"--rounds must be over {SHORT}")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        where = arguments.index or home / "index.sqlite"
        rows = _measure(where, arguments.rounds, home, arguments.seconds)
    table = Table("", *(f"{row['rounds']:,} rounds" for row in rows), title="index")
    for key in rows[0]:
        table.add_row(key, *(_shown(row.get(key, "")) for row in rows))
    Console().print(table)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "index.json").write_text(json.dumps(rows, indent=1) + "\n", "utf-8")


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def _measure(where: Path | str, length: int, home: Path, seconds: float) -> list[Row]:
    """Return the rows of a short and a long history of one deployment."""
    database = Database(where, read_only=False)
    make_schema(database)
    blobs = MemoryBlobs()
    chain = GeneratedChain(config=blobs.put(encode_run(CONFIGURATION)))
    chain.published = blobs
    chain.register()
    indexer = Indexer(database, chain.ledger, blobs)
    rows, ended, wall, cpu = [], 0, 0.0, 0.0
    for target in (SHORT, length):
        while ended < target:
            played = min(PLAYED, target - ended)
            chain.play(played)
            ended += played
            wall -= time.perf_counter()
            cpu -= time.process_time()
            catch_up(indexer)
            wall += time.perf_counter()
            cpu += time.process_time()
        row = {
            "rounds": target,
            "built, rounds/s": round(target / wall),
            "built, rounds/s of CPU": round(target / cpu),
        }
        if isinstance(where, Path):
            size = sum(f.stat().st_size for f in where.parent.glob(f"{where.name}*"))
            row["bytes per round"] = round(size / target)
        row |= _look_ups(Index(where), chain, target)
        rows.append(row | served_rows(chain, home, str(where), seconds))
    database.close()
    return rows


def _look_ups(index: Index, chain: GeneratedChain, recorded: int) -> Row:
    """Return median and 99th percentile, in microseconds, of each look-up at all ages."""
    rng = np.random.default_rng(1)
    numbers = rng.integers(1, recorded, LOOK_UPS).tolist()
    clients = rng.integers(0, 12, LOOK_UPS).tolist()
    with index.reading() as reading:
        own = _history(reading, chain)
        heads = [own.rounds(number, number)[0].end for number in numbers]

    def page(walk: RoundQuery) -> Callable[[int], object]:
        def look_up(_: int) -> object:
            with index.reading() as reading:
                return _history(reading, chain).page(walk, PAGE, None)

        return look_up

    def one_round(place: int) -> object:
        with index.reading() as reading:
            return _history(reading, chain).round(numbers[place])

    def of_client(place: int) -> object:
        client = ClientId(clients[place])
        with index.reading() as reading:
            own = _history(reading, chain)
            page = own.page(RoundQuery("rounds", client=client), PAGE, None)
            return own.parts(client, page.rounds)

    def of_digest(place: int) -> object:
        end = heads[place]
        with index.reading() as reading:
            return None if end is None else reading.look_up(end.head)

    def counts(_: int) -> object:
        with index.reading() as reading:
            return _history(reading, chain).tally()

    first = RoundQuery("rounds", blocks=Span(1, 500))
    look_ups: dict[str, Callable[[int], object]] = {
        "a round": one_round,
        f"a page of {PAGE} rounds": page(RoundQuery("rounds")),
        f"{PAGE} rounds of a client": of_client,
        f"{PAGE} rounds that a client dropped out of": page(
            RoundQuery("rounds", client=ClientId(1), role=AskedRole.DROPPED_OUT)
        ),
        f"{PAGE} rounds of a later view": page(RoundQuery("rounds", view_min=1)),
        "rounds of 500 old blocks": page(first),
        "a digest": of_digest,
        "all counts": counts,
    }
    row: Row = {}
    for name, look_up in look_ups.items():
        took = [_microseconds(look_up, place) for place in range(LOOK_UPS)]
        row[f"{name}, median us"] = round(float(np.median(took)))
        row[f"{name}, p99 us"] = round(float(np.percentile(took, 99)))
    index.close()
    return row


def _history(reading: IndexReading, chain: GeneratedChain) -> IndexedHistory:
    blobs = chain.published or MemoryBlobs()
    return reading.history(chain.genesis_hash, chain.ledger.address, blobs)


def _microseconds(look_up: Callable[[int], object], place: int) -> float:
    started = time.perf_counter()
    look_up(place)
    return (time.perf_counter() - started) * 1e6


if __name__ == "__main__":
    main()
