"""A path is whole, slow, cut, silent or wrong, for whoever is behind it and nobody else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from tests.federation.relay import LinkCondition, Relay, Relays
from tests.patience import PATIENCE_SECONDS


class Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def target() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.fixture
def relays() -> Iterator[Relays]:
    with Relays() as opened:
        yield opened


def asked(relay: Relay, client: httpx.Client, body: bytes = b"something") -> httpx.Response:
    return client.post(relay.url, content=body)


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=PATIENCE_SECONDS, trust_env=False, verify=False) as one:
        yield one


def test_a_cut_path_drops_connections_until_restored(
    relays: Relays, target: int, client: httpx.Client
) -> None:
    relay, other = relays.relay(target), relays.relay(target)
    assert asked(relay, client).status_code == 200
    relays.turn(relay, LinkCondition.CUT)
    for _ in range(2):
        with pytest.raises(httpx.TransportError):
            asked(relay, client)
    assert asked(other, client).status_code == 200, "another's path is whole"
    relays.turn(relay, LinkCondition.WHOLE)
    assert asked(relay, client).status_code == 200


def test_a_silent_path_never_answers(relays: Relays, target: int, client: httpx.Client) -> None:
    relay = relays.relay(target)
    relays.turn(relay, LinkCondition.SILENT)
    with pytest.raises(httpx.TimeoutException):
        client.post(relay.url, content=b"something", timeout=0.2)


def test_a_faulty_path_answers_502_and_non_json_in_turn(
    relays: Relays, target: int, client: httpx.Client
) -> None:
    relay = relays.relay(target)
    relays.turn(relay, LinkCondition.WRONG)
    found = [asked(relay, client) for _ in range(3)]
    assert [answer.status_code for answer in found] == [502, 200, 502]
    with pytest.raises(ValueError, match="codec"):
        found[1].json()
    relays.turn(relay, LinkCondition.WHOLE)
    assert asked(relay, client).content == b"something"
