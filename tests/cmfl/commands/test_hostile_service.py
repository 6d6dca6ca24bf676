"""A service that lies, swells, stalls or leads astray: nothing it sends passes for a proof."""

from __future__ import annotations

import gzip
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ledger.audit.proofs.documents import proof_bytes
from ledger.audit.proofs.recorded import make_proof
from ledger.protocol.types import ClientId
from tests.audit.proofs.mutations import changed, paths
from tests.cmfl.commands.conftest import (
    SHARED,
    Result,
    cmfl,
    decided_rounds,
    first_decided,
    succeeds,
)
from tests.faults import times
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    import httpx

    from tests.audit.runs import Run

pytestmark = SHARED

ODD = "\x1b[2J<img onerror=alert(1)>[/red]\u202e"


class Liar(ThreadingHTTPServer):
    """Passes on what a true service answers, but for the paths that it lies at."""

    daemon_threads = True

    def __init__(self, service: httpx.Client) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.service = service
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.kept: dict[str, httpx.Response] = {}
        self.at = "/nowhere"
        self.has_lied = False
        self.lie: Callable[[Handler], None] = truth

    def handle_error(self, request: object, client_address: object) -> None:
        """Whoever is lied to may hang up."""


class Handler(BaseHTTPRequestHandler):
    server: Liar

    def do_GET(self) -> None:
        with suppress(OSError):
            if self.server.at in self.path:
                self.server.has_lied = True
                self.server.lie(self)
            else:
                truth(self)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nobody reads it."""

    def true(self, path: str | None = None) -> httpx.Response:
        asked = path or self.path
        if asked not in self.server.kept:
            self.server.kept[asked] = self.server.service.get(asked)
        return self.server.kept[asked]

    def send(
        self, body: bytes, status: int = 200, kind: str = "application/json", **headers: str
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def truth(handler: Handler) -> None:
    answer = handler.true()
    handler.send(answer.content, answer.status_code, answer.headers["content-type"])


def body(data: bytes, status: int = 200, kind: str = "application/json") -> Callable[..., None]:
    return lambda handler: handler.send(data, status, kind)


def endless(handler: Handler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.end_headers()
    while True:
        handler.wfile.write(b" " * 65_536)


def dripping(handler: Handler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.end_headers()
    while True:
        handler.wfile.write(b" ")
        time.sleep(0.1)


def huge_header(handler: Handler) -> None:
    handler.send(b"{}", X_Long="y" * 1_000_000)


def packed(handler: Handler) -> None:
    handler.send(gzip.compress(bytes(10_000_000)), Content_Encoding="gzip")


def elsewhere(handler: Handler) -> None:
    handler.send(b"", 302, Location=f"{handler.server.service.base_url}{handler.path}")


def cut(handler: Handler) -> None:
    handler.send(handler.true().content[:-9])


def of_html(handler: Handler) -> None:
    handler.send(handler.true().content, kind="text/html")


def flipped(handler: Handler) -> None:
    true = handler.true()
    data = bytearray(true.content)
    data[len(data) // 2] ^= 1
    handler.send(bytes(data), kind=true.headers["content-type"])


def a_problem(handler: Handler) -> None:
    told = {"type": ODD, "title": ODD, "status": 404, "detail": ODD * 100, "instance": ODD}
    handler.send(json.dumps(told).encode(), 404, "application/problem+json")


WIRE: dict[str, Callable[[Handler], None]] = {
    "endless": endless,
    "dripping": dripping,
    "a huge header": huge_header,
    "a packed body": packed,
    "another place": elsewhere,
    "a cut body": cut,
    "another type": of_html,
    "a problem in odd words": a_problem,
    "nothing": body(b""),
    "deep": body(b'{"a":' * 50_000),
    "no UTF-8": body(b"\xff\xfe{}"),
    "no number": body(b'{"chains": [NaN]}'),
    "odd words": body(json.dumps({ODD: ODD}).encode()),
}


@pytest.fixture(scope="module")
def liar(service: httpx.Client) -> Iterator[Liar]:
    with Liar(service) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def honest_again(liar: Liar, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("api.client.MAX_PROOF_BYTES", 4 << 20)
    monkeypatch.setattr("api.client.MAX_ANSWER_BYTES", 4 << 20)
    yield
    liar.at = "/nowhere"


@pytest.fixture(scope="module")
def number(home: Path) -> int:
    return first_decided(home)


@pytest.fixture(scope="module")
def client(home: Path, number: int) -> int:
    shown = succeeds("rounds", "show", number, "--home", home, "--json").json
    return int(shown["parts"]["aggregation"]["accepted"][0]["client"])


@pytest.fixture(scope="module")
def other(home: Path) -> int:
    return int(decided_rounds(home)[1]["round"])


def lied_to(liar: Liar, at: str, lie: Callable[[Handler], None], *arguments: object) -> Result:
    """Return what a command makes of a lie: no success, no traceback, nothing a terminal obeys."""
    liar.at, liar.lie = at, lie
    liar.has_lied = False
    patience = 1.0 if lie is dripping else PATIENCE_SECONDS
    found = cmfl(*arguments, "--api", liar.url, "--api-timeout", patience)
    while not liar.has_lied:  # a slow machine may take longer over the honest answers before it
        patience *= 4
        assert patience <= PATIENCE_SECONDS, found
        found = cmfl(*arguments, "--api", liar.url, "--api-timeout", patience)
    assert found.code in {1, 2, 3}, found
    assert not found.out.startswith(("PROVEN", "PASSED"))
    assert "Traceback" not in found.out + found.err
    assert not {"\x1b", "\u202e"} & set(found.out + found.err)
    if found.code == 2:
        assert (found.out, found.err.count("\n")) == ("", 1)
    return found


@pytest.mark.parametrize("lie", WIRE.values(), ids=WIRE)
def test_an_invalid_answer_is_refused_in_one_line_in_time(
    liar: Liar, number: int, client: int, head: str, lie: Callable[[Handler], None]
) -> None:
    asked = ("verify", "client", "--round", number, "--client", client, "--head", head)
    assert lied_to(liar, "/proof/", lie, *asked).code == 2


def test_a_proof_of_something_else_is_none(
    liar: Liar,
    number: int,
    other: int,
    client: int,
    head: str,
    honest: Run,
    node: tuple[object, ...],
) -> None:
    def true_of(told: int, round_number: int) -> Callable[[Handler], None]:
        def lie(handler: Handler) -> None:
            path = handler.path.replace(f"/rounds/{number}/", f"/rounds/{round_number}/")
            own = path.replace(f"/proof/{client}", f"/proof/{told}")
            handler.send(handler.true(own).content)

        return lie

    def elsewhere_deployed(handler: Handler) -> None:
        document = json.loads(handler.true().content)
        handler.send(json.dumps(document | {"address": "0x" + "11" * 20}).encode())

    foreign = proof_bytes(make_proof(honest.ledger, honest.blobs, 1, ClientId(3), whole=True))
    asked = ("verify", "client", "--round", number, "--client", client)
    for trusted in (("--head", head), node):
        for lie in (true_of((client + 1) % 14, number), true_of(client, other)):
            found = lied_to(liar, "/proof/", lie, *asked, *trusted)
            assert (found.code, "  NO  question: " in found.out) == (1, True)
        for lie in (elsewhere_deployed, body(foreign)):
            lied_to(liar, "/proof/", lie, *asked, *trusted)


def test_a_changed_proof_proves_nothing_but_the_truth(
    liar: Liar, number: int, client: int, node: tuple[object, ...]
) -> None:
    asked = ("verify", "client", "--round", number, "--client", client, *node, "--api", liar.url)
    true = cmfl(*asked, "--json")
    assert true.code == 0
    document: dict[str, Any] = next(
        json.loads(answer.content)
        for path, answer in liar.kept.items()
        if path.partition("?")[0].endswith(f"/rounds/{number}/proof/{client}")
    )
    rng = random.Random(4)
    for path in rng.choices(list(paths(document)), k=times(4, 500)):
        liar.at = "/proof/"
        liar.lie = body(json.dumps(changed(document, path, rng)).encode())
        found = cmfl(*asked, "--json")
        assert found.code in {0, 1, 2, 3}, found
        assert "Traceback" not in found.err
        if found.code == 0:
            assert found.json["sentence"] == true.json["sentence"], path


def test_a_flipped_or_foreign_bundle_is_refused(
    liar: Liar, number: int, other: int, node: tuple[object, ...]
) -> None:
    def of_another_round(handler: Handler) -> None:
        path = handler.path.replace(f"/rounds/{number}/", f"/rounds/{other}/")
        handler.send(handler.true(path).content, kind="application/x-tar")

    for lie in (flipped, of_another_round):
        found = lied_to(liar, "/bundle", lie, "verify", "round", number, *node)
        assert found.code == 2
        assert "bundle" in found.err or "sha256" in found.err


def test_an_audit_names_each_unavailable_blob(
    liar: Liar, home: Path, number: int, node: tuple[object, ...]
) -> None:
    shown = succeeds("rounds", "show", number, "--home", home, "--json").json
    blob = shown["record"]["digest"].removeprefix("0x")
    found = lied_to(liar, blob, flipped, "audit", *node, "--jobs", 1)
    assert found.code == 3
    assert f"blob {blob} cannot be read: {liar.url} returned other bytes" in found.out
    assert lied_to(liar, "/v1/blobs/", dripping, "audit", *node, "--jobs", 1).code == 3
