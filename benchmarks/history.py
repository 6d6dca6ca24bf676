"""Cost of a long history: look-ups of single rounds in a short and in a long run.

`python -m benchmarks.history` makes one real run of 10,000 rounds (12 clients, C = 4, n = 6,
softmax on digits, all blobs) and looks single rounds up twice, after 100 rounds and at the end:
through the contract's events, the command line (in this process, without the start of Python),
and the REST service over loopback. It also gives the bytes that a round adds to chain and blobs.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from queue import Queue
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from api.serve import serve
from api.settings import Settings
from clients.configuration.loading import load
from clients.runs.open_run import open_run
from clients.runs.run_folder import manifest_of
from cmfl.commands.application import app
from ledger.chain.contract.deployment import connect
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.history.paths import ChainPath, DeploymentPath
from ledger.io.home import Home
from ledger.storage.blobs import FolderBlobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ledger.chain.contract.committee_ledger import CommitteeLedger

SHORT = 100
LOOK_UPS = 25
RESULTS = Path(__file__).parent / "results"
Row = dict[str, Any]


def main() -> None:
    """Record a long run, look rounds up in it, print and write down what that took."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10_000, help="rounds of the long history")
    length = parser.parse_args().rounds
    if length <= SHORT:
        parser.error(f"--rounds must be over {SHORT}")
    with tempfile.TemporaryDirectory() as folder:
        rows = _record(Path(folder), length)
    table = Table("", *(f"{row['rounds']:,} rounds" for row in rows), title="history")
    for key in rows[0]:
        table.add_row(key, *(f"{row[key]:,}" for row in rows))
    Console().print(table)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "history.json").write_text(json.dumps(rows, indent=1) + "\n", "utf-8")


def _record(home: Path, length: int) -> list[Row]:
    """Return the rows of a short and a long history of one run."""
    configuration = load("smoke", settings=(f"protocol.rounds={length}",))
    blobs = FolderBlobs(Home(home).blobs)
    rows = []
    with EmbeddedChain.create(Home(home).chain) as chain:
        empty = _bytes_below(home)
        with open_run(home, "long", configuration, chain, blobs) as run:
            address = _served(home)
            ledger = connect(chain, manifest_of(home, "long"))
            bar = iter(track(range(length), description="rounds", console=Console(stderr=True)))
            next(bar)

            def on_round(row: Any) -> None:
                next(bar, None)
                if row.round in {SHORT, length}:
                    row_times = _look_ups(home, ledger, f"{address}{_root(ledger)}", row.round)
                    rows.append(row_times | _growth(home, empty, row.round))

            run.go_on(on_round)
    return rows


def _served(home: Path) -> str:
    """Start the REST service in a thread of this process; return its address."""
    listening: Queue[str] = Queue()
    arguments = (Settings(home=home), "127.0.0.1", 0, listening.put)
    threading.Thread(target=serve, args=arguments, daemon=True).start()
    return listening.get(timeout=30)


def _root(ledger: CommitteeLedger) -> DeploymentPath:
    """Return where the service answers about the contract."""
    chain = ChainPath(ledger.chain.chain_id, ledger.chain.genesis_hash)
    return DeploymentPath(chain, ledger.address)


def _look_ups(home: Path, ledger: CommitteeLedger, url: str, recorded: int) -> Row:
    """Return median milliseconds of looking single rounds of all ages up."""
    numbers = np.linspace(1, recorded, LOOK_UPS, dtype=int).tolist()

    def through_events(number: int) -> None:
        ledger.opening(number)
        ledger.round_events(number)

    def through_cli(number: int) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            app(
                ["rounds", "show", str(number), "--json", "--home", str(home)],
                standalone_mode=False,
            )

    def through_api(number: int) -> None:
        with urllib.request.urlopen(f"{url}/rounds/{number}") as answer:
            answer.read()

    return {
        "rounds": recorded,
        "events ms": _median_ms(through_events, numbers),
        "cmfl rounds show ms": _median_ms(through_cli, numbers),
        "REST round ms": _median_ms(through_api, numbers),
    }


def _growth(home: Path, empty: dict[str, int], recorded: int) -> Row:
    sizes = _bytes_below(home)
    return {
        f"{name} bytes per round": round((sizes[name] - empty[name]) / recorded) for name in sizes
    }


def _bytes_below(home: Path) -> dict[str, int]:
    """Return the bytes of the chain with its log, and of all blobs."""
    return {
        "chain": sum(file.stat().st_size for file in home.glob("chain.sqlite*")),
        "blob": sum(file.stat().st_size for file in home.glob("blobs/*/*")),
    }


def _median_ms(look_up: Callable[[int], None], numbers: Iterable[int]) -> float:
    times = []
    for number in numbers:
        started = time.perf_counter()
        look_up(number)
        times.append((time.perf_counter() - started) * 1e3)
    return round(median(times), 2)


if __name__ == "__main__":
    main()
