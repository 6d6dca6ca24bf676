"""Cost of a long history: its fold, lists, look-ups and counts in memory, and a start on a node.

`python -m benchmarks.history` folds 5,000 generated rounds with 18 trainers and 1,000 rounds with
86 trainers (`generated_rounds.py`: events as a contract logs them, and records without signatures).
Generating the rounds is not counted. It prints the cost beside its aim, and writes it down.

`python -m benchmarks.history --node` serves 5,000 generated rounds (86 clients, C = 8, n = 18) by
JSON-RPC from another process on this machine, and reads them as a new process does: first from the
node alone, then with the table of verified events that the first reading has left, and once more
after 10 further rounds. A real network adds its own time to each request.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import threading
import tracemalloc
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.generated_rounds import ADDRESS, GeneratedChain
from benchmarks.harness import RESULTS, Row, keep, show, timed
from ledger.chain.contract.event_log import EventTable, complete_ledger
from ledger.chain.contract.ledger import CommitteeLedger
from ledger.chain.ports import LogQuery
from ledger.chain.rpc import wire
from ledger.chain.rpc.node import RpcReader
from ledger.history.fields import AskedRole, RoundQuery
from ledger.history.history import DeploymentFold, FoldedHistory
from ledger.protocol.encoding import to_hex
from ledger.protocol.types import ClientId
from ledger.storage.blobs import MemoryBlobs

LOOK_UPS = 400
PAGE = 50
CASES = (
    (5_000, {"clients": 26, "trainers": 18, "members": 6}, 50),
    (1_000, {"clients": 105, "trainers": 86, "members": 14}, 150),
)
"""Rounds, sizes, and the aim for the memory in MB."""


def main() -> None:
    """Print and write down the costs of long histories, or print those of a start on a node."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--node", action="store_true", help="read the rounds from a node instead")
    if parser.parse_args().node:
        show(_starts(5_000), "5,000 rounds")
        return
    rows = [_measure(*case) for case in CASES]
    show(rows, heads=[f"{r['rounds']:,} rounds, {r['trainers']} trainers" for r in rows])
    keep(RESULTS / "history.json", rows)


def _measure(rounds: int, sizes: dict[str, int], most_megabytes: int) -> Row:
    blobs = MemoryBlobs()
    chain = _played(rounds, blobs, **sizes)
    history, folding = timed(lambda: FoldedHistory.of(chain.ledger, blobs))
    return {
        "rounds": rounds,
        "trainers": sizes["trainers"],
        "fold, ms a round": round(folding.wall / rounds * 1e3, 3),
        **_look_ups(history, sizes["clients"]),
        f"aim: {PAGE} rounds, ms": 0.2,
        f"aim: {PAGE} rounds of a client, ms": 1.0,
        **_memory(chain, blobs),
        "aim: memory, MB": most_megabytes,
    }


def _played(rounds: int, blobs: MemoryBlobs | None = None, **sizes: int) -> GeneratedChain:
    chain = GeneratedChain(**sizes)
    chain.published = blobs
    chain.register()
    chain.play(rounds)
    return chain


def _look_ups(history: FoldedHistory, count: int) -> Row:
    """Return median milliseconds of each look-up, and of the first of those that read ahead."""
    rng = np.random.default_rng(1)
    numbers = rng.integers(1, history.newest(), LOOK_UPS).tolist()
    clients = [ClientId(int(client)) for client in rng.integers(0, count, LOOK_UPS)]
    ends = [round_.end for round_ in history.some(numbers)]

    def dropped_out(place: int) -> object:
        query = RoundQuery(client=clients[place], role=AskedRole.DROPPED_OUT)
        return history.page(query, PAGE, None)

    def of_digest(place: int) -> object:
        end = ends[place]
        return None if end is None else history.occurrences(end.head, 0, 20)

    def milliseconds(read: Callable[[int], object], place: int) -> float:
        return timed(lambda: read(place))[1].wall * 1e3

    row = {
        "all counts, first, ms": round(milliseconds(lambda _: history.tally(), 0), 1),
        "a digest, first, ms": round(milliseconds(of_digest, 0), 1),
    }
    many: dict[str, Callable[[int], object]] = {
        "a round, ms": lambda place: history.round(numbers[place]),
        f"{PAGE} rounds, ms": lambda _: history.page(RoundQuery(), PAGE, None),
        f"{PAGE} rounds of a client, ms": lambda place: _parts(history, clients[place]),
        f"{PAGE} rounds that a client dropped out of, ms": dropped_out,
        "a digest, ms": of_digest,
        "all counts, ms": lambda _: history.tally(),
    }
    for name, read in many.items():
        row[name] = round(median(milliseconds(read, place) for place in range(LOOK_UPS)), 3)
    return row


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


def _starts(rounds: int) -> list[Row]:
    chain = _played(rounds, clients=86, trainers=18, members=8)
    with tempfile.TemporaryDirectory() as folder:
        table = EventTable(Path(folder) / "event_log.sqlite")
        rows = [
            {"start": "without the table", **_start(chain, None)},
            {"start": "without, and writes the table", **_start(chain, table)},
            {"start": "with the table", **_start(chain, table)},
        ]
        chain.play(10)
        rows.append({"start": "with the table, 10 rounds later", **_start(chain, table)})
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
    return [*rows, dict.fromkeys(rows[0], "") | {"start": f"table of {size / 2**20:.1f} MiB"}]


def _start(chain: GeneratedChain, table: EventTable | None) -> Row:
    """Return seconds and own CPU seconds of reading all events, and requests to the node."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    node = context.Process(target=_serve, args=(chain, theirs), daemon=True)
    node.start()
    url = f"http://127.0.0.1:{ours.recv()}"
    try:
        with RpcReader(url, chain_id=chain.chain_id) as reader:
            ledger = CommitteeLedger(reader, ADDRESS, 1)
            _, spent = timed(lambda: complete_ledger(ledger, table))
        ours.send("count")
        return {
            "seconds": f"{spent.wall:.2f}",
            "CPU seconds": f"{spent.cpu:.2f}",
            "requests": ours.recv(),
        }
    finally:
        node.terminate()
        node.join()


def _serve(chain: GeneratedChain, pipe: Any) -> None:
    counted: list[str] = []

    def block(tag: str, _: bool) -> dict[str, str]:
        found = chain.head() if tag == "latest" else chain.block(int(tag, 16))
        return {
            "number": hex(found.number),
            "hash": to_hex(found.hash),
            "parentHash": to_hex(found.parent_hash),
            "timestamp": hex(found.timestamp),
        }

    def logs(query: dict[str, Any]) -> list[dict[str, Any]]:
        first, last = (int(query[end], 16) for end in ("fromBlock", "toBlock"))
        found = chain.logs(LogQuery(None, [], first, last))
        if len(found) > 10_000:
            raise ValueError("query returned more than 10000 results")
        return [wire.log_json(log, log.log_index) for log in found]

    def call(request: dict[str, str], tag: str) -> str:
        number = None if tag == "latest" else int(tag, 16)
        return to_hex(chain.call(ADDRESS, bytes.fromhex(request["data"][2:]), number))

    methods: dict[str, Callable[..., Any]] = {
        "eth_chainId": lambda: hex(chain.chain_id),
        "eth_getBlockByNumber": block,
        "eth_getLogs": logs,
        "eth_call": call,
    }

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            counted.append(asked["method"])
            answer: dict[str, Any] = {"jsonrpc": "2.0", "id": asked["id"]}
            try:
                answer["result"] = methods[asked["method"]](*asked["params"])
            except ValueError as error:
                answer["error"] = {"code": -32005, "message": str(error)}
            data = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    pipe.send(server.server_address[1])
    threading.Thread(target=server.serve_forever, daemon=True).start()
    pipe.recv()
    pipe.send(len(counted))
    pipe.recv()


if __name__ == "__main__":
    main()
