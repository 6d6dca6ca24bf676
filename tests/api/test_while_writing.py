"""The service reads while another process plays a run into the same home."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from api.settings import Settings
from tests.api.conftest import make_run, read, serving
from tests.clients.played import PLAIN
from tests.patience import PATIENCE_SECONDS, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    from tests.processes import Forks

RUN = ["run", "--preset", "smoke", "--set", "protocol.rounds=100000"]
SEEN = 4
"""How many rounds are seen while they are the newest, and then until one of them is seen open."""


def wait_for_run(client: httpx.Client) -> str:
    """Return the path of the run that the writer has just deployed."""

    def found() -> str:
        for entry in read(client, "/v1/status")["deployments"]:
            if entry["run"] == "second" and entry["round"] >= 1:
                return str(entry["links"]["self"])
        return ""

    return wait_until(found)


def walked(client: httpx.Client, root: str, order: str) -> list[int]:
    found: list[int] = []
    parameters: dict[str, Any] = {"order": order, "limit": 2}
    while True:
        page = read(client, f"{root}/rounds", **parameters)
        found += [entry["round"] for entry in page["rounds"]]
        if page["next_cursor"] is None:
            return found
        parameters["cursor"] = page["next_cursor"]


def test_new_rounds_appear_and_every_answer_is_one_blocks(tmp_path: Path, forks: Forks) -> None:
    home = tmp_path / "home"
    make_run(home, "first", ("protocol.rounds=1",))
    newest, heads, open_rounds = [0], [0], 0
    with (
        serving(Settings(home=home)) as client,
        forks.start(*RUN, "--set", PLAIN, "--home", home, "--run", "second") as writer,
    ):
        root = wait_for_run(client)
        ends = time.monotonic() + PATIENCE_SECONDS
        while len(set(newest)) < SEEN or not open_rounds:
            assert writer.poll() is None
            assert time.monotonic() < ends, newest
            time.sleep(0.05)  # who writes is to have its share of the processor
            told = read(client, root)
            heads.append(told["as_of"]["number"])
            newest.append(told["state"]["round"])
            assert told["state"]["opened_block"] <= told["as_of"]["number"]
            # What was open may have ended since; it never comes back.
            answer = client.get(f"{root}/rounds/{newest[-1]}")
            if answer.json()["status"] == "open":
                open_rounds += 1
                assert answer.headers["cache-control"] == "no-cache"
                assert answer.json()["ended"] is None
            for order in ("oldest", "newest"):
                rounds = walked(client, root, order)
                assert len(rounds) >= newest[-1]
                ascending = rounds if order == "oldest" else rounds[::-1]
                assert ascending == list(range(1, len(rounds) + 1)), "each round exactly once"
        assert heads == sorted(heads)
        assert newest == sorted(newest)


def test_many_readers_get_the_same_bytes(client: httpx.Client, root: str) -> None:
    paths = [f"{root}/rounds/{t}/votes" for t in range(1, 9)] + [f"{root}/rounds?limit=100", root]
    expected = {path: client.get(path).content for path in paths}
    wrong: list[str] = []

    def reader(first: int) -> None:
        for turn in range(10):
            path = paths[(first + turn) % len(paths)]
            if client.get(path).content != expected[path]:
                wrong.append(path)

    threads = [threading.Thread(target=reader, args=(first,)) for first in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
