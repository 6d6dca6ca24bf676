"""Requests a second of the service over generated rounds, measured by wrk on this machine.

The service is a separate process, forked with the chain in memory. Every figure is printed with
that of `/health` in the same run, and with the processor time that the service spent on one
request. `kept` are answers about final rounds that were asked for before; `not final` are the same
rounds on a chain on which nothing is final: the first request for each reads it, a later one only
looks whether its last block is still there.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import uvicorn

from api.app import create_app
from api.settings import Settings
from api.sockets import listening_socket, url_of
from benchmarks.generated_rounds import ADDRESS, GeneratedChain
from benchmarks.stored_rounds import StoredChain, StoredHistories, write_logs
from ledger.chain.contract.committee_ledger import CommitteeLedger
from ledger.history.paths import ChainPath, DeploymentPath
from ledger.storage.blobs import MemoryBlobs

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

CONNECTIONS = 16
ASKED = 2_000
"""Different URLs of one kind, in turn."""

Row = dict[str, Any]

_SCRIPT = """
local paths, headers, at = {}, {}, 0
for line in io.lines("%s") do
  local path, tag = line:match("^(%%S+)%%s*(.*)$")
  paths[#paths + 1] = path
  headers[#headers + 1] = tag ~= "" and {["If-None-Match"] = tag} or nil
end
request = function()
  at = at %% #paths + 1
  return wrk.format("GET", paths[at], headers[at])
end
done = function(summary, latency, requests)
  io.write(string.format("MEASURED %%d %%d %%f %%f %%d\\n", summary.requests, summary.duration,
    latency:percentile(50), latency:percentile(99),
    summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout))
end
"""


def served_rows(chain: GeneratedChain, home: Path, index: str, seconds: float) -> Row:
    """Return requests a second, latencies and processor time of each kind of request.

    Args:
        chain: generated rounds, all of them indexed.
        home: a folder for the logs.
        index: where the index is.
        seconds: for each kind.
    """
    if shutil.which("wrk") is None:
        return {"service": "not measured: there is no wrk here (apt-get install wrk)"}
    logs = home / "logs.sqlite"
    logs.unlink(missing_ok=True)
    write_logs(chain, logs)
    newest = chain.state.round - 1
    root = str(DeploymentPath(ChainPath(chain.chain_id, chain.genesis_hash), ADDRESS))
    rng = np.random.default_rng(2)
    numbers = rng.integers(1, newest, ASKED).tolist()
    clients = rng.integers(0, 12, ASKED).tolist()
    rounds = [f"{root}/rounds/{number}" for number in numbers]
    row: Row = {}
    cached, final = {"/health": ["/health"], "a round, kept": rounds[:200]}, chain.final
    with serving(chain, logs, home, index) as (url, process):
        cached["a round, 304"] = [f"{path} {_tag(url, path)}" for path in rounds[:200]]
        row |= _measured(url, process, cached, seconds)
    proofs = zip(rounds, clients, strict=True)
    pages = [f"{root}/rounds", f"{root}/rounds?order=oldest", f"{root}/rounds?status=decided"]
    read = {
        "/health again": ["/health"],
        "a round, not final": rounds,
        "a page of 20 rounds": pages,
        "20 rounds of a client": [f"{root}/clients/{client}/rounds" for client in clients],
        "20 rounds that a client's update entered": [
            f"{root}/rounds?client={client}&role=accepted" for client in clients
        ],
        "a proof": [f"{path}/proof/{client}" for path, client in proofs],
        "a digest": [f"{root}/digests/{head}" for head in _heads(chain, numbers[:200])],
    }
    chain.final = 0
    try:
        with serving(chain, logs, home, index) as (url, process):
            row |= _measured(url, process, read, seconds)
    finally:
        chain.final = final
    return row


def _heads(chain: GeneratedChain, numbers: list[int]) -> list[str]:
    """Return heads of some of the newest rounds, which are found without reading all."""
    newest = chain.head().number
    ended = [
        event for event in chain.ledger.events(newest - 500, newest) if hasattr(event.event, "head")
    ]
    return [ended[number % len(ended)].event.head.hex() for number in numbers]  # type: ignore[union-attr]


@contextlib.contextmanager
def serving(chain: GeneratedChain, logs: Path, home: Path, index: str) -> Iterator[tuple[str, int]]:
    """Run the service in a separate process; yield its URL and process id."""
    with listening_socket("127.0.0.1", 0) as listener:
        process = multiprocessing.get_context("fork").Process(
            target=_serve, args=(chain, logs, home, index, listener)
        )
        process.start()
        try:
            url = url_of(listener)
            _wait(url)
            assert process.pid is not None
            yield url, process.pid
        finally:
            os.kill(process.pid or 0, signal.SIGINT)
            process.join(20)
            process.kill()


def _serve(
    chain: GeneratedChain, logs: Path, home: Path, index: str, listener: socket.socket
) -> None:
    gc.freeze()  # the generated rounds are nothing that a service would have to look through
    stored, blobs = StoredChain(chain, logs), chain.published or MemoryBlobs()
    ledger = CommitteeLedger(stored, ADDRESS, 1)
    app = create_app(
        Settings(home=home, index=index),
        lambda settings, beside: StoredHistories(settings, beside, stored, ledger, blobs),
    )
    config = uvicorn.Config(app, ws="none", http="h11", log_level="warning", server_header=False)
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listener])


def _wait(url: str) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _tag(url: str, path: str) -> str:
    with urllib.request.urlopen(f"{url}{path}") as answer:
        return str(answer.headers["ETag"])


def _measured(url: str, process: int, asked: dict[str, list[str]], seconds: float) -> Row:
    row: Row = {}
    health = 0.0
    for name, lines in asked.items():
        with urllib.request.urlopen(f"{url}{lines[0].split()[0]}") as answer:
            assert answer.status == 200, name
        used = processor_seconds(process)
        count, took, middle, late = _wrk(url, lines, seconds)
        if not count:  # on a machine that does a lot else
            row[f"{name}, requests/s"] = 0
            continue
        rate = count / took
        health = rate if name.startswith("/health") else health
        row[f"{name}, requests/s"] = round(rate)
        row[f"{name}, of /health"] = round(rate / (health or rate), 2)
        row[f"{name}, p50 ms"] = round(middle, 2)
        row[f"{name}, p99 ms"] = round(late, 2)
        spent = processor_seconds(process) - used
        row[f"{name}, ms of CPU each"] = round(1e3 * spent / count, 2)
    return row


def _wrk(url: str, lines: list[str], seconds: float) -> tuple[int, float, float, float]:
    """Return how many requests were answered, in how many seconds, and p50 and p99 in ms."""
    with tempfile.TemporaryDirectory() as folder:
        paths, script = Path(folder) / "paths", Path(folder) / "ask.lua"
        paths.write_text("\n".join(lines) + "\n", "utf-8")
        script.write_text(_SCRIPT % paths, "utf-8")
        command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds:g}s", "-s", str(script), url]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    measured = re.search(r"MEASURED (\d+) (\d+) ([\d.]+) ([\d.]+) (\d+)", done.stdout)
    assert measured is not None, done.stdout
    is_conditional = '"' in lines[0]  # which wrk counts among "Non-2xx or 3xx" only beyond 399
    assert is_conditional or "Non-2xx" not in done.stdout, done.stdout
    count, microseconds, middle, late, errors = measured.groups()
    assert int(errors) == 0, done.stdout
    return int(count), int(microseconds) / 1e6, float(middle) / 1e3, float(late) / 1e3


def processor_seconds(process: int) -> float:
    """Return the processor time that a process has spent, also in the system."""
    fields = Path(f"/proc/{process}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
