"""Nobody keeps readers out of a service by holding connections; who follows a run is not cut."""

from __future__ import annotations

import contextlib
import socket
import time
from typing import TYPE_CHECKING

from api.settings import Settings
from tests.api.conftest import deployments, read, serving

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

MOST = 8
SHORT = 0.2


def test_idle_connections_shut_no_reader_out(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.serve.MAX_CONCURRENT", MOST)
    with serving(Settings(home=home)) as client, contextlib.ExitStack() as stack:
        address = client.base_url.host, client.base_url.port or 80
        for _ in range(2 * MOST):
            held = stack.enter_context(socket.create_connection(address, timeout=20))
            with contextlib.suppress(ConnectionError):
                held.sendall(b"GET /v1/status HT")
        for _ in range(3):
            assert "refused" in read(client, "/v1/status")


def test_who_follows_a_run_where_nothing_happens_is_not_cut(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.http.connections.TURN_SECONDS", SHORT)
    with serving(Settings(home=home)) as client:
        address = client.base_url.host, client.base_url.port or 80
        path = deployments(client)[0]["links"]["events"]
        with socket.create_connection(address, timeout=20) as following:
            following.sendall(f"GET {path} HTTP/1.1\r\nHost: {address[0]}\r\n\r\n".encode())
            assert following.recv(65_536).startswith(b"HTTP/1.1 200 ")
            time.sleep(3 * SHORT)
            following.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                assert following.recv(65_536) != b"", "the service has cut the stream"
