"""Start of a service or a command on a node: with the table of verified events, and without.

`python -m benchmarks.event_log` serves 5,000 generated rounds (86 clients, C = 8, n = 18; see
`generated_rounds.py`) by JSON-RPC from another process on this machine, and reads them as a new
process does: first from the node alone, then with the table that the first reading has left, and
once more after 10 further rounds. A real network adds its own time to each request.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.generated_rounds import ADDRESS, ChainSizes, GeneratedChain
from ledger.chain.contract.event_log import EventTable, complete_ledger
from ledger.chain.contract.ledger import CommitteeLedger
from ledger.chain.ports import LogQuery
from ledger.chain.rpc import wire
from ledger.chain.rpc.node import RpcReader
from ledger.protocol.encoding import to_hex

FURTHER = 10


def main() -> None:
    """Print seconds, requests and bytes of each start."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5_000, help="rounds of the history")
    rounds = parser.parse_args().rounds
    chain = GeneratedChain(ChainSizes(clients=86, trainers=18, members=8))
    chain.register()
    chain.play(rounds)
    shown = Table("start", "seconds", "CPU seconds", "requests", title=f"{rounds:,} rounds")
    with tempfile.TemporaryDirectory() as folder:
        table = EventTable(Path(folder) / "event_log.sqlite")
        shown.add_row("without the table", *_start(chain, None))
        shown.add_row("without, and writes the table", *_start(chain, table))
        shown.add_row("with the table", *_start(chain, table))
        chain.play(FURTHER)
        shown.add_row(f"with the table, {FURTHER} rounds later", *_start(chain, table))
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
    Console().print(shown)
    Console().print(f"The table has {size / 2**20:.1f} MiB.")


def _start(chain: GeneratedChain, table: EventTable | None) -> tuple[str, ...]:
    """Return seconds and own CPU seconds of reading all events, and requests to the node."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    node = context.Process(target=_serve, args=(chain, theirs), daemon=True)
    node.start()
    port = ours.recv()
    try:
        begin, used = time.perf_counter(), time.process_time()
        with RpcReader(f"http://127.0.0.1:{port}", chain_id=chain.chain_id) as reader:
            complete_ledger(CommitteeLedger(reader, ADDRESS, 1), table)
        seconds, used = time.perf_counter() - begin, time.process_time() - used
        ours.send("count")
        return f"{seconds:.2f}", f"{used:.2f}", str(ours.recv())
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
        found = chain.logs(
            LogQuery(None, [], int(query["fromBlock"], 16), int(query["toBlock"], 16))
        )
        if len(found) > 10_000:
            raise ValueError("query returned more than 10000 results")
        return [wire.log_json(log, log.log_index) for log in found]

    def call(request: dict[str, str], tag: str) -> str:
        data = bytes.fromhex(request["data"][2:])
        number = None if tag == "latest" else int(tag, 16)
        return to_hex(chain.call(ADDRESS, data, number))

    methods: dict[str, Any] = {
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
