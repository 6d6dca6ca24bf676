"""Processor time of the service for one request, in multiples of that for /health.

`python -m benchmarks.request_costs` serves generated rounds from a separate process, as
`served_rounds.py` does, and asks for each kind of answer in turns: /health, rounds that are kept
(final, and asked for before), and on the same chain with nothing final, rounds that were asked for
before, rounds that were not (each URL once in the whole run), and lists from the index. A ratio is
the median over the turns of two neighbours'.
"""

from __future__ import annotations

import argparse
import itertools
import json
import socket
import tempfile
from pathlib import Path
from statistics import median
from typing import IO, TYPE_CHECKING
from urllib.parse import urlsplit

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.generated_rounds import ADDRESS, GeneratedChain
from benchmarks.index import CONFIGURATION
from benchmarks.served_rounds import processor_seconds, serving
from benchmarks.stored_rounds import write_logs
from ledger.history.paths import ChainPath, DeploymentPath
from ledger.index.database import Database
from ledger.index.indexer import Indexer
from ledger.index.schema import make_schema
from ledger.index.updater import catch_up
from ledger.protocol.documents.run import encode_run
from ledger.storage.blobs import MemoryBlobs

if TYPE_CHECKING:
    from collections.abc import Iterator

CONNECTIONS = 16
HEALTH = "/health"
KEPT = "a round, kept"
NOT_FINAL = "a round, not final, asked for before"
FIRST = "a round, asked for the first time"
RESULTS = Path(__file__).parent / "results"


def main() -> None:
    """Measure what the command line asks for, print it and write it down."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2_000, help="of the history")
    parser.add_argument("--requests", type=int, default=1_600, help="of each kind in a turn")
    parser.add_argument("--turns", type=int, default=7, help="of each kind")
    arguments = parser.parse_args()
    if arguments.rounds < 100 or arguments.requests < CONNECTIONS or arguments.turns < 1:
        parser.error(f"--rounds at least 100, --requests {CONNECTIONS}, --turns 1")
    with tempfile.TemporaryDirectory() as folder:
        rows = _measured(Path(folder), arguments.rounds, arguments.requests, arguments.turns)
    table = Table("request", "ms of CPU", "of /health", title="the service, for one request")
    for name, row in rows.items():
        table.add_row(name, f"{row['ms of CPU']:.3f}", f"{row['of /health']:.2f}")
    Console().print(table)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "request_costs.json").write_text(json.dumps(rows, indent=1) + "\n", "utf-8")


def _measured(home: Path, rounds: int, requests: int, turns: int) -> dict[str, dict[str, float]]:
    chain, index = _indexed(home, rounds)
    root = str(DeploymentPath(ChainPath(chain.chain_id, chain.genesis_hash), ADDRESS))
    numbers = np.random.default_rng(2).integers(1, rounds - 1, 200).tolist()
    paths = [f"{root}/rounds/{number}" for number in numbers]
    clients = [f"{root}/clients/{client}/rounds" for client in range(8)]
    final, logs = chain.final, home / "logs.sqlite"
    rows: dict[str, dict[str, float]] = {}
    kinds: dict[str, Iterator[str]]
    for last_final, kinds in (
        (final, {HEALTH: _again([HEALTH]), KEPT: _again(paths)}),
        (
            0,
            {
                HEALTH: _again([HEALTH]),
                NOT_FINAL: _again(paths),
                FIRST: _spelt_anew(root, numbers),
                "a page of 20 rounds": _again([f"{root}/rounds"]),
                "20 rounds of a client": _again(clients),
            },
        ),
    ):
        chain.final = last_final
        with serving(chain, logs, home, index) as (url, process):
            rows |= _ratios(url, process, kinds, requests, turns)
    return rows


def _again(paths: list[str]) -> Iterator[str]:
    return itertools.cycle(paths)


def _spelt_anew(root: str, numbers: list[int]) -> Iterator[str]:
    """Yield paths of rounds, each once: characters of the address are percent-encoded by turns."""
    start, end = root[:-16], root[-16:]
    for turn in itertools.count(1):
        spelt = "".join(
            f"%{ord(character):02X}" if turn >> place & 1 else character
            for place, character in enumerate(end)
        )
        yield from (f"{start}{spelt}/rounds/{number}" for number in numbers)


def _indexed(home: Path, rounds: int) -> tuple[GeneratedChain, str]:
    """Return a chain of generated rounds, its logs in a file, and the place of its index."""
    index, blobs = home / "index.sqlite", MemoryBlobs()
    database = Database(index, read_only=False)
    make_schema(database)
    chain = GeneratedChain(config=blobs.put(encode_run(CONFIGURATION)))
    chain.published = blobs
    chain.register()
    chain.play(rounds)
    catch_up(Indexer(database, chain.ledger, blobs))
    database.close()
    write_logs(chain, home / "logs.sqlite")
    return chain, str(index)


def _ratios(
    url: str, process: int, kinds: dict[str, Iterator[str]], requests: int, turns: int
) -> dict[str, dict[str, float]]:
    costs: dict[str, list[float]] = {name: [] for name in kinds}
    with _Clients(url) as clients:
        for turn in range(turns + 1):
            for name, paths in kinds.items():
                before = processor_seconds(process)
                clients.ask(paths, requests)
                if turn:  # the first fills the cache
                    costs[name].append(1e3 * (processor_seconds(process) - before) / requests)
    return {
        name: {
            "ms of CPU": round(median(each), 3),
            "of /health": round(
                median(one / other for one, other in zip(each, costs[HEALTH], strict=True)), 2
            ),
        }
        for name, each in costs.items()
    }


class _Clients:
    """Connections that each have one request open, and cost the service nothing but answers."""

    def __init__(self, url: str) -> None:
        self._host = urlsplit(url).netloc
        name, _, port = self._host.rpartition(":")
        self._sockets = [socket.create_connection((name, int(port))) for _ in range(CONNECTIONS)]
        self._files = [each.makefile("rb") for each in self._sockets]

    def __enter__(self) -> _Clients:
        return self

    def __exit__(self, *_: object) -> None:
        for file, each in zip(self._files, self._sockets, strict=True):
            file.close()
            each.close()

    def ask(self, paths: Iterator[str], requests: int) -> None:
        """Send requests on all connections, each with the next path, until all are answered."""
        turns = itertools.islice(paths, requests)
        while batch := [path for _, path in zip(self._sockets, turns, strict=False)]:
            for each, path in zip(self._sockets, batch, strict=False):
                each.sendall(f"GET {path} HTTP/1.1\r\nHost: {self._host}\r\n\r\n".encode())
            for file, _ in zip(self._files, batch, strict=False):
                _read_answer(file)


def _read_answer(file: IO[bytes]) -> None:
    """Read one answer to its end."""
    status = file.readline()
    assert b" 200 " in status, status
    length = 0
    while (line := file.readline()) != b"\r\n":
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    body = file.read(length)
    assert len(body) == length


if __name__ == "__main__":
    main()
