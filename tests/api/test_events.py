"""Events as they happen: none missed, none twice, and what is taken back is said."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from api.settings import Settings
from ledger.history.answers_rounds import RoundFollower
from ledger.history.history import FoldedHistory
from tests.api.conftest import ROUNDS, deployments, make_run, read, refused, serving
from tests.api.test_rounds import Truth, truth  # noqa: F401 - a fixture
from tests.clients.played import PLAIN
from tests.patience import PATIENCE_SECONDS, wait_until

if TYPE_CHECKING:
    from tests.processes import Forks


def received(client: httpx.Client, path: str, count: int, **headers: str) -> list[dict[str, Any]]:
    """Return the first events of a stream."""
    found: list[dict[str, Any]] = []
    event: dict[str, Any] = {}
    with client.stream("GET", path, headers=headers, timeout=PATIENCE_SECONDS) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        for line in answer.iter_lines():
            name, _, value = line.partition(": ")
            if name in {"id", "event", "data"}:
                event[name] = json.loads(value) if name == "data" else value
            if not line and event:
                found.append(event)
                event = {}
            if len(found) == count:
                break
    return found


def test_a_client_that_comes_back_misses_no_round(client: httpx.Client, root: str) -> None:
    rounds = read(client, f"{root}/rounds", order="oldest")["rounds"]
    told = received(client, f"{root}/events", ROUNDS, **{"Last-Event-ID": "0"})
    assert [event["data"] for event in told] == rounds
    assert [event["id"] for event in told] == [str(t) for t in range(1, ROUNDS + 1)]
    later = received(client, f"{root}/events", 2, **{"Last-Event-ID": str(ROUNDS - 2)})
    assert [event["data"] for event in later] == rounds[-2:]


def test_rounds_are_told_while_a_run_plays_them(tmp_path: Path) -> None:
    home = tmp_path / "home"
    make_run(home, "first", ("protocol.rounds=1",))
    with serving(Settings(home=home)) as client:
        # Asked once before: what a framework makes at its first request minds other threads.
        first = deployments(client)[0]["links"]["events"]
        assert received(client, first, 1, **{"Last-Event-ID": "0"})[0]["data"]["round"] == 1
        player = threading.Thread(target=make_run, args=(home, "second", ("protocol.rounds=2",)))
        player.start()
        while len(deployments(client)) < 2:
            pass
        path = next(one for one in deployments(client) if one["run"] == "second")["links"]["events"]
        told = received(client, path, 2, **{"Last-Event-ID": "0"})
        player.join()
        ended = [event for event in told if event["event"] == "round_ended"]
        rest = 2 - len(ended)
        if rest:
            ended += [
                event
                for event in received(client, path, rest, **{"Last-Event-ID": told[-1]["id"]})
                if event["event"] == "round_ended"
            ]
    assert [event["data"]["round"] for event in ended] == [1, 2]


def test_head_of_a_stream_ends(client: httpx.Client, root: str) -> None:
    answer = client.head(f"{root}/events")
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"].startswith("text/event-stream")


def test_excess_streams_are_refused(client: httpx.Client, root: str, home: Path) -> None:
    for text in ("x", "-1", "1e3", "9" * 11, "01"):
        told = refused(
            client.get(f"{root}/events", headers={"Last-Event-ID": text}), 422, "request-invalid"
        )
        assert told["errors"][0]["place"] == "header"
    refused(client.get(f"{root[:-1]}0/events"), 422, "request-invalid")
    with serving(Settings(home=home, most_streams=1)) as other:
        path = f"{deployments(other)[0]['links']['self']}/events"
        with other.stream("GET", path, headers={"Last-Event-ID": "0"}) as first:
            lines = first.iter_lines()
            next(lines)
            refused(other.get(path), 503, "streams-exhausted")


@contextmanager
def asked_at_once(client: httpx.Client, path: str, count: int) -> Iterator[list[int]]:
    """Yield the statuses of as many requests, all sent before any answer is read."""
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: 0\r\n\r\n".encode()
    place = (client.base_url.host, client.base_url.port or 80)
    with ExitStack() as stack:
        open_ = [
            stack.enter_context(socket.create_connection(place, PATIENCE_SECONDS))
            for _ in range(count)
        ]
        for connection in open_:
            connection.sendall(head)
        yield [int(connection.recv(12).split()[1]) for connection in open_]


@pytest.mark.parametrize("part", ["events", "federation/events"])
def test_streams_asked_for_at_once_pass_no_bound(home: Path, tmp_path: Path, part: str) -> None:
    settings = Settings(home=home, mailbox=str(tmp_path), most_streams=3)
    with serving(settings) as other:
        path = f"{deployments(other)[0]['links']['self']}/{part}"
        with asked_at_once(other, path, 24) as statuses:
            assert sorted(statuses) == [200] * 3 + [503] * 21


def test_one_address_cannot_take_the_streams_of_others(home: Path) -> None:
    settings = Settings(
        home=home,
        trusted_proxies=(ip_network("127.0.0.1/32"),),
        most_streams=5,
        most_streams_of_address=2,
    )
    with serving(settings) as other, ExitStack() as stack:
        path = f"{deployments(other)[0]['links']['self']}/events"

        def asked(address: str) -> httpx.Response:
            headers = {"X-Forwarded-For": address, "Last-Event-ID": "0"}
            answer = stack.enter_context(other.stream("GET", path, headers=headers))
            if answer.status_code != 200:
                answer.read()
            return answer

        first, second = asked("10.0.0.1"), asked("10.0.0.1")
        assert (first.status_code, second.status_code) == (200, 200)
        third = asked("10.0.0.1")
        refused(third, 429, "streams-of-address-exhausted")
        assert int(third.headers["retry-after"]) >= 1
        # Addresses of one /64 network are one user's.
        assert [asked(f"2001:db8::{host}").status_code for host in (1, 2, 3)] == [200, 200, 429]
        assert asked("10.0.0.2").status_code == 200
        refused(asked("10.0.0.3"), 503, "streams-exhausted")
        first.close()
        while asked("10.0.0.1").status_code != 200:
            pass  # the service hears a moment later that a reader has gone


def test_a_refused_or_ended_stream_frees_its_slot(home: Path) -> None:
    with serving(Settings(home=home, most_streams=1)) as other:
        deployment = deployments(other)[0]["links"]["self"]
        unknown = f"{deployment.rpartition('/')[0]}/0x{'11' * 20}/events"
        for _ in range(3):
            refused(other.get(unknown), 404, "deployment-not-found")
        for method in ("HEAD", "GET", "HEAD", "GET"):
            # The service hears a moment later that a reader has gone.
            while not begins(other, method, f"{deployment}/events"):
                pass


def begins(client: httpx.Client, method: str, path: str) -> bool:
    """Return whether a stream begins; the other answer is that it is one too many."""
    with client.stream(method, path, timeout=PATIENCE_SECONDS) as answer:
        assert answer.status_code in {200, 503}
        return answer.status_code == 200


def test_a_reorganised_round_is_reported_and_sent_again(
    truth: Truth,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    history = truth.history
    follower = RoundFollower(ROUNDS - 2)
    first = follower.poll(history, final_block=0)
    assert [event.kind for event in first] == ["round_ended", "round_ended"]
    assert follower.poll(history, final_block=0) == [], "nothing is told twice"

    def without_last(self: FoldedHistory) -> int:
        return ROUNDS - 1

    monkeypatch.setattr(FoldedHistory, "newest", without_last)
    (back,) = follower.poll(history, final_block=0)
    assert (back.kind, back.position) == ("taken_back", ROUNDS - 1)
    assert back.response == {"from_round": ROUNDS}
    monkeypatch.undo()
    (again,) = follower.poll(history, final_block=0)
    assert (again.kind, again.response) == ("round_ended", first[1].response)
    assert follower.poll(history, final_block=2**40) == []


# The service reads while another process plays a run into the same home.


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
