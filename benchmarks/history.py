"""Cost of a long history: its fold and look-ups in memory, and the answers of a service.

`python -m benchmarks.history` prints and writes down the cost of 5,000 generated rounds with 18
trainers and 1,000 with 86, beside its aim. Generating the rounds is not counted.

`python -m benchmarks.history --service` serves a home of 1,000 rounds of the preset `smoke`, which
stays in the temporary folder, as `cmfl serve` does: uvicorn with h11 on a socket. Bare FastAPI apps
give the same answers: one returns prepared objects from plain functions, by the service's own
types, and one prepared bytes from coroutines. Each server is a separate process; they take turns,
and the processor time of each one counts.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Mapping
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from fastapi import FastAPI, Request, Response

from api.app import server_for
from api.http.server import GracefulServer, bounded, listening_socket
from api.settings import Settings
from benchmarks.generated_rounds import GeneratedChain
from benchmarks.harness import MEASURED, RESULTS, Row, keep, machine, show, timed
from clients.experiments.report import markdown
from ledger.history.answers_clients import ClientRoundsAnswer, DigestAnswer
from ledger.history.answers_rounds import RoundAnswer, RoundsAnswer
from ledger.history.fields import RoundQuery
from ledger.history.history import DeploymentFold, FoldedHistory
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
    """Print and write down the costs of long histories, or those of a service's answers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--service", action="store_true", help="measure answers of a service")
    if parser.parse_args().service:
        _measure_service()
        return
    rows = [_measure(*case) for case in CASES]
    show(rows, heads=[f"{r['rounds']:,} rounds, {r['trainers']} trainers" for r in rows])
    keep(RESULTS / "history.json", rows)


def _measure(rounds: int, sizes: dict[str, int], most_megabytes: int) -> Row:
    chain, blobs = GeneratedChain(**sizes), MemoryBlobs()
    chain.published = blobs
    chain.register()
    chain.play(rounds)
    history, folding = timed(lambda: FoldedHistory.of(chain.ledger, blobs))
    reads: dict[str, Callable[[], object]] = {
        f"{PAGE} rounds, ms": lambda: history.page(RoundQuery(), PAGE, None),
        f"{PAGE} rounds of a client, ms": lambda: _parts(history, ClientId(1)),
        "a digest, ms": lambda: history.occurrences(history.fixed.config, 0, 20),
        "all counts, ms": history.tally,
    }
    costs = {
        name: round(median(timed(read)[1].cpu * 1e3 for _ in range(LOOK_UPS)), 3)
        for name, read in reads.items()
    }
    return {
        "rounds": rounds,
        "trainers": sizes["trainers"],
        "fold, ms a round": round(folding.cpu / rounds * 1e3, 3),
        **costs,
        f"aim: {PAGE} rounds, ms": 0.2,
        f"aim: {PAGE} rounds of a client, ms": 1.0,
        **_memory(chain, blobs),
        "aim: memory, MB": most_megabytes,
    }


def _parts(history: FoldedHistory, client: ClientId) -> list[object]:
    page = history.page(RoundQuery(client=client), PAGE, None)
    return [history.documented(round_).part(client) for round_ in page.entries]


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


TURN = 50  # requests that a server answers before it is the next one's turn


class Asked(NamedTuple):
    """Requests of one kind: a route, the type of its answers, and paths."""

    kind: str
    route: str
    answer: Any
    paths: list[str]


def _measure_service() -> None:
    """Print and write down what answers cost on a recorded home, beside bare FastAPI."""
    settings = Settings(home=_recorded_home())
    prepared, service = (_ServerProcess(partial(server_for, settings)) for _ in range(2))
    requests = _requests(prepared)
    bodies = {path: prepared.get(path) for each in requests for path in each.paths}
    fastapi, raw = (
        _ServerProcess(partial(_bare_server, requests, bodies, x)) for x in (True, False)
    )
    service.get(f"{requests[2].route}?limit=1")  # folds the history
    servers = {"service": service, "FastAPI": fastapi, "bytes": raw}
    rows = [{"request": each.kind, **_costs(each.paths, servers)} for each in requests]
    show(rows, "1,000 recorded rounds: milliseconds of a processor")
    table = markdown(tuple(rows[0]), [[*row.values()] for row in rows])
    command = "python -m benchmarks.history --service"
    keep(MEASURED / "service.json", {"command": command, "machine": machine(), "table": table})


def _recorded_home() -> Path:
    """Return a home with 1,000 rounds, which the first call plays."""
    home = Path(tempfile.gettempdir()) / "cmfl-1000-rounds-of-smoke"
    if not home.exists():
        with tempfile.TemporaryDirectory(dir=home.parent) as folder:
            words = ["run", "--preset", "smoke", "--rounds", "1000", "--home", f"{folder}/home"]
            subprocess.run([sys.executable, "-m", "cmfl", *words], check=True)
            Path(folder, "home").rename(home)
    return home


class _ServerProcess:
    """A server in a process that ends with this one, and one connection to it."""

    def __init__(self, make: Callable[[], GracefulServer]) -> None:
        listener = listening_socket("127.0.0.1", 0)
        context = multiprocessing.get_context("fork")
        self._process = context.Process(target=lambda: make().run(sockets=[listener]), daemon=True)
        self._process.start()
        self._connection = HTTPConnection(*listener.getsockname())

    def get(self, path: str) -> bytes:
        self._connection.request("GET", path)
        answer = self._connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise ValueError(f"{path}: {answer.status} {body!r:.200}")
        return body

    def milliseconds(self) -> float:
        """Return the processor time of the process, by the clock of clock_getcpuclockid(3)."""
        assert self._process.pid is not None, "it has started"
        return time.clock_gettime(~self._process.pid << 3 | 2) * 1e3


def _requests(service: _ServerProcess) -> list[Asked]:
    chain = json.loads(service.get("/v1/chains"))["chains"][0]["links"]["deployments"]
    run = json.loads(service.get(chain))["deployments"][0]["links"]["self"]
    pages, models = [f"{run}/rounds?limit={PAGE}"], []
    while (page := json.loads(service.get(pages[-1])))["next_cursor"]:
        models += [each["model"] for each in page["rounds"]]
        pages.append(f"{pages[0]}&cursor={page['next_cursor']}")
    rounds = [f"{run}/rounds/{number}" for number in range(1, 1_001)]
    clients = [f"{run}/clients/{client}/rounds?limit={PAGE}" for client in range(12)]
    digests = [f"{run}/digests/{model}" for model in models]
    of_round, of_client = f"{run}/rounds/{{number}}", f"{run}/clients/{{number}}/rounds"
    return [
        Asked("a round, not read before", of_round, RoundAnswer, rounds),
        Asked("the same round again", of_round, RoundAnswer, rounds[-1:] * 10 * TURN),
        Asked(f"a page of {PAGE} rounds", f"{run}/rounds", RoundsAnswer, pages * 25),
        Asked(f"{PAGE} rounds of a client", of_client, ClientRoundsAnswer, clients * 25),
        Asked("the uses of a digest", f"{run}/digests/{{digest}}", DigestAnswer, digests),
    ]


def _costs(paths: list[str], servers: Mapping[str, _ServerProcess]) -> dict[str, str]:
    """Return the median milliseconds of a request to each server, over its turns."""
    turns: list[list[float]] = []
    for first in range(0, len(paths), TURN):
        asked = paths[first : first + TURN]
        turns.append([])
        for server in servers.values():
            before = server.milliseconds()
            for path in asked:
                server.get(path)
            turns[-1].append((server.milliseconds() - before) / len(asked))
    medians = map(median, zip(*turns, strict=True))
    ratio = median(service / fastapi for service, fastapi, _ in turns)
    shown = {name: f"{cost:.2f}" for name, cost in zip(servers, medians, strict=True)}
    return {**shown, "service / FastAPI": f"{ratio:.2f}"}


def _bare_server(
    requests: list[Asked], bodies: Mapping[str, bytes], has_types: bool
) -> GracefulServer:
    """Return a server that sends prepared bodies: as objects of the routes' types, or as bytes."""
    app = FastAPI(openapi_url=None)
    objects = {path: json.loads(body) for path, body in bodies.items()}

    def asked(request: Request) -> str:
        query = request.scope["query_string"].decode()
        return f"{request.scope['path']}?{query}" if query else str(request.scope["path"])

    def as_object(request: Request) -> Any:  # in a thread, as the service's own functions
        return objects[asked(request)]

    async def as_bytes(request: Request) -> Response:
        return Response(bodies[asked(request)], media_type="application/json")

    for each in requests:
        endpoint, model = (as_object, each.answer) if has_types else (as_bytes, None)
        app.add_api_route(each.route, endpoint, response_model=model)
    return GracefulServer(bounded(app))


if __name__ == "__main__":
    main()
