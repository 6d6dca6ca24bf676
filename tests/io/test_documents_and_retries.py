"""JSON and TOML of strangers, bounded; retries and servers that end."""

from __future__ import annotations

import asyncio
import gc
import inspect
import math
import socket
import subprocess
import sys
import time

import pytest

from api.http.server import stop_accepting
from ledger.io.parsing import MAX_DOTS, MAX_TOML_BYTES, parse_json, parse_toml
from ledger.io.retry import Backoff, RetryPolicy
from ledger.protocol.errors import ConfigurationError


@pytest.mark.parametrize("opening", ["[", '{"a":', '["\\"]]]",', '[[],{"]":1},'])
def test_a_document_too_deep_is_refused_and_ends_no_process(opening: str) -> None:
    code = "import sys; sys.setrecursionlimit(100_000); "
    code += f"from ledger.io.parsing import parse_json; parse_json({opening!r} * 100_000)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (ended.returncode, b"nested more than" in ended.stderr) == (1, True)


def test_a_document_too_deep_for_its_caller_is_refused() -> None:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 200)
    try:
        with pytest.raises(ValueError, match="nested too deeply"):
            parse_json("[" * 900 + "]" * 900)
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.parametrize("data", ["", "{", b"\xff", "[1".encode("utf-16"), "[" * 5])
def test_what_is_no_json_is_a_value_error(data: bytes | str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_json(data)


def test_a_string_that_never_ends_is_looked_at_once() -> None:
    with pytest.raises(ValueError, match="more than 1000 levels"):
        parse_json("[" * 1_001 + '"' + '\\"' * 300_000)


def test_a_duplicate_key_is_refused_on_request() -> None:
    assert parse_json('{"a": 1, "a": 2}') == {"a": 2}
    assert parse_json('[{"a": 1}, {"a": 2}]', unique_keys=True) == [{"a": 1}, {"a": 2}]
    with pytest.raises(ValueError, match="a map has a key twice"):
        parse_json('[{"a": {"b": 1, "b": 1}}]', unique_keys=True)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a" + ".a" * (MAX_DOTS + 1) + " = 1", "line 1 has 65 dots, more than 64"),
        ("x = 1\n" + '"a".' * (MAX_DOTS + 1) + "b = 1", "line 2 has 65 dots, more than 64"),
        ("#" * (MAX_TOML_BYTES + 1), "100001 bytes, more than 100000"),
        ("#" + "\u00e5" * (MAX_TOML_BYTES // 2), "100001 bytes, more than 100000"),
        ("a =", "not TOML: Invalid value"),
        ("a = " + "[" * 50_000, "not TOML: "),
        ("a = " + "9" * 5_000, "not TOML: "),
        ("a = '\udcff'\n=", "not TOML: "),
    ],
)
def test_what_is_too_much_or_no_toml_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse_toml(text)
    assert sentence in str(refused.value)


def lines_of(line: str) -> str:
    """Return as many numbered copies of a line as one document may hold."""
    numbered = (line.replace("#", str(number)) for number in range(MAX_TOML_BYTES))
    text: list[str] = []
    size = 0
    for one in numbered:
        size += len(one)
        if size > MAX_TOML_BYTES:
            return "".join(text)
        text.append(one)
    raise AssertionError("the lines are too short")


@pytest.mark.parametrize(
    "line",
    [
        "x." * MAX_DOTS + "k# = 1\n",
        "[[" + "x." * MAX_DOTS + "x]]\n",
        "k# = 1\n",
        "k#.x = {y.z = 1}\n",
    ],
)
def test_the_slowest_documents_take_no_second(line: str) -> None:
    begun = time.process_time()
    parse_toml(lines_of(line))
    assert time.process_time() - begun < 5, "a fifth of a second on an idle core"
    with pytest.raises(ConfigurationError, match="has 40000 dots"):
        parse_toml("a." * 40_000 + "a = 1")
    assert time.process_time() - begun < 5


class Clock:
    """Time that passes only during pauses and attempts."""

    def __init__(self) -> None:
        self.now = 0.0
        self.attempted_at: list[float] = []

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def attempt(self, seconds: float) -> None:
        self.attempted_at.append(self.now)
        self.now += seconds

    def fail(self, seconds: float) -> str:
        self.attempt(seconds)
        raise ValueError("not now")

    def policy(self, attempts: int | None = 3, deadline: float = math.inf) -> RetryPolicy:
        return RetryPolicy(Backoff(1.0, 3), attempts, deadline, self.sleep, self.time)


def test_pauses_grow_up_to_a_bound() -> None:
    backoff = Backoff(0.5, 2, longest_seconds=3)
    assert [backoff.pause(failures) for failures in (1, 2, 3, 4, 10_000)] == [0.5, 1, 2, 3, 3]


@pytest.mark.parametrize(
    ("seconds", "deadline", "attempted_at"),
    [(0.0, 60.0, [0, 1, 4]), (2.0, 60.0, [0, 3, 8]), (2.0, 4.0, [0, 3]), (5.0, 4.0, [0])],
)
def test_no_attempt_begins_after_the_deadline(
    seconds: float, deadline: float, attempted_at: list[float]
) -> None:
    clock = Clock()
    with pytest.raises(ValueError, match="not now"):
        clock.policy(deadline=deadline).call(lambda: clock.fail(seconds), lambda _: True)
    assert clock.attempted_at == attempted_at


def test_an_error_may_ask_for_a_longer_pause() -> None:
    clock = Clock()
    with pytest.raises(ValueError, match="not now"):
        clock.policy().call(lambda: clock.fail(0), lambda _: True, least_pause=lambda _: 2.0)
    assert clock.attempted_at == [0, 2, 5]


def test_transient_results_are_retried_and_the_last_one_returned() -> None:
    clock, results = Clock(), [503, 503, 503, 200]
    assert (
        clock.policy().call(
            lambda: results.pop(0),
            lambda _: False,
            is_transient_result=lambda status: status == 503,
        )
        == 503
    )
    assert results == [200]
    assert clock.now == 4


def test_polling_ends_with_a_result_or_at_the_deadline() -> None:
    clock, results = Clock(), [None, None, "here"]
    assert clock.policy(None).poll(lambda: results.pop(0)) == "here"
    assert clock.now == 4

    def nothing() -> str | None:
        clock.attempt(0)
        return None

    assert clock.policy(None, deadline=10).poll(nothing) is None
    assert clock.attempted_at == [4, 5, 8, 17]


async def accepted_before_the_end(iterations: int) -> list[asyncio.BaseTransport]:
    """Return the connections of a server that is closed some iterations after clients connect."""
    made: list[asyncio.BaseTransport] = []

    class Connection(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            made.append(transport)

    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    clients = [socket.create_connection(address) for _ in range(3)]
    for _ in range(iterations):
        await asyncio.sleep(0)
    await stop_accepting(server)
    for transport in made:
        transport.close()
    await asyncio.sleep(0)
    for client in clients:
        client.close()
    return made


def test_a_closed_server_leaves_no_accepted_connection_behind() -> None:
    for iterations in range(5):
        made = asyncio.run(accepted_before_the_end(iterations))
        assert len(made) in {0, 3}, iterations
    # Once for all of them, for it takes a second: pytest fails a test whose sockets were left open.
    gc.collect()


def test_a_server_can_be_closed_twice() -> None:
    async def closed_twice() -> bool:
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        await stop_accepting(server)
        await stop_accepting(server)
        return server.is_serving()

    assert not asyncio.run(closed_twice())
