"""Nobody keeps readers out of a store by holding connections that do nothing."""

from __future__ import annotations

import contextlib
import socket
import time
from typing import TYPE_CHECKING

import pytest

from tests.api.store.conftest import path_of, stored

if TYPE_CHECKING:
    from pathlib import Path

    from tests.api.store.conftest import Contract, Store

MOST = 8
SHORT = 0.3


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store with room for few connections."""
    monkeypatch.setattr("api.store.serve.MAX_CONCURRENT", MOST)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that waits for nobody for long."""
    monkeypatch.setattr("api.http.connections.TURN_SECONDS", SHORT)
    monkeypatch.setattr("api.http.connections.LEAST_BYTES_PER_SECOND", 2**30)


def connected(store: Store, receives: int | None = None) -> socket.socket:
    host, port = store.url.removeprefix("http://").split(":")
    connection = socket.socket()
    if receives is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives)
    connection.settimeout(20)
    connection.connect((host, int(port)))
    return connection


def is_cut(connection: socket.socket) -> bool:
    """Say whether the other side has closed a connection; nothing is waited for."""
    try:
        connection.send(b"X")
        return connection.recv(1, socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except (BrokenPipeError, ConnectionResetError):
        return True


@pytest.mark.usefixtures("few")
def test_idle_connections_shut_no_reader_out(tmp_path: Path, contract: Contract) -> None:
    with stored(tmp_path / "store", contract) as store, contextlib.ExitStack() as stack:
        held = [stack.enter_context(connected(store)) for _ in range(2 * MOST)]
        for connection in held:
            with contextlib.suppress(ConnectionError):
                connection.sendall(b"GET /health HT")
        for _ in range(3):
            assert store.http.get("/health", headers={"Connection": "close"}).text == "ok\n"


@pytest.mark.usefixtures("few")
def test_who_is_answered_is_not_cut_for_who_comes(tmp_path: Path, contract: Contract) -> None:
    data = b"slowly"
    with stored(tmp_path / "store", contract) as store, contextlib.ExitStack() as stack:
        slow = stack.enter_context(connected(store))
        head = f"PUT {path_of(data)} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n"
        head += f"Authorization: {store.header(data)}\r\nConnection: close\r\n"
        slow.sendall(f"{head}Expect: 100-continue\r\n\r\n".encode())
        assert slow.recv(100).startswith(b"HTTP/1.1 100 "), "its turn is over"
        for _ in range(2 * MOST):
            stack.enter_context(connected(store))
        assert store.http.get("/health").text == "ok\n"
        slow.sendall(data)
        assert slow.recv(100).startswith(b"HTTP/1.1 201 ")


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("before", [b"", b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"])
def test_half_a_head_is_not_waited_for(tmp_path: Path, contract: Contract, before: bytes) -> None:
    with stored(tmp_path / "store", contract) as store, connected(store) as connection:
        if before:
            connection.sendall(before)
            answer = b""
            while not answer.endswith(b"ok\n"):
                answer += connection.recv(65_536)
        connection.sendall(b"GET /health HTTP/1.1\r\nA: ")
        deadline = time.monotonic() + 10
        while not is_cut(connection):  # and so it drips
            assert time.monotonic() < deadline
            time.sleep(SHORT / 10)


@pytest.mark.usefixtures("short")
def test_who_takes_no_answer_is_not_waited_for(tmp_path: Path, contract: Contract) -> None:
    data = bytes(8 << 20)
    with stored(tmp_path / "store", contract) as store:
        assert store.put(data).status_code == 201
        with connected(store, receives=4_096) as connection:
            asked = f"GET {path_of(data)} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
            connection.sendall(asked)
            deadline = time.monotonic() + 10
            with contextlib.suppress(ConnectionError):
                while True:  # to ask for more is not to take what is there
                    assert time.monotonic() < deadline
                    connection.sendall(asked[:20])
                    time.sleep(SHORT / 10)


@pytest.mark.usefixtures("short")
def test_a_body_may_take_longer_than_a_head(tmp_path: Path, contract: Contract) -> None:
    data = b"piece by piece"
    with stored(tmp_path / "store", contract) as store, connected(store) as connection:
        head = f"PUT {path_of(data)} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n"
        head += f"Authorization: {store.header(data)}\r\nConnection: close\r\n\r\n"
        connection.sendall(head.encode() + data[:3])
        time.sleep(2 * SHORT)
        connection.sendall(data[3:])
        assert connection.recv(100).startswith(b"HTTP/1.1 201 ")
