"""A real server over a real chain that real clients wrote."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from api.app import server_for
from api.http.server import listening_socket, url_of
from api.settings import Settings
from clients.configuration.loading import load
from clients.runs.open_run import open_run
from clients.runs.run_folder import manifest_of
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.protocol.types import DropoutReason, IncidentKind, RefusalReason
from ledger.storage.blobs import FolderBlobs
from tests.api.served import in_a_thread
from tests.patience import PATIENCE_SECONDS, wait_until
from tests.seeds import course_of, first_that_shows

ROUNDS = 9
CLIENTS, TRAINERS, MEMBERS = 14, 7, 5
SETTINGS = (
    f"protocol.rounds={ROUNDS}",
    f"protocol.clients={CLIENTS}",
    "protocol.active_rate=0.857143",
    "protocol.committee_rate=0.416667",
    "protocol.commit_blocks=1",
    "protocol.deadline_blocks=3",
    "protocol.strategy=3",
    "malice.members.silent=2",
    "malice.members.equivocating=1",
    "malice.members.false-scores=1",
    "malice.members.wrong-proposal=1",
    "malice.trainers.not-finite=1",
    "malice.trainers.silent=1",
)
"""Every fault may come to bear, and some rounds be decided, some abandoned."""

INCIDENTS = {IncidentKind.SILENT, IncidentKind.WRONG_PROPOSAL, IncidentKind.EQUIVOCATION}


def make_run(home: Path, name: str, settings: tuple[str, ...] = ()) -> str:
    """Play a whole run into a home; return the contract's address."""
    home.mkdir(exist_ok=True)
    path = home / "chain.sqlite"
    with (
        EmbeddedChain.open(path) if path.exists() else EmbeddedChain.create(path) as chain,
        open_run(
            home, name, load("smoke", settings=settings), chain, FolderBlobs(home / "blobs")
        ) as run,
    ):
        run.go_on(lambda _: None)
    return manifest_of(home, name).address


@contextmanager
def serving(settings: Settings) -> Iterator[httpx.Client]:
    with running(settings) as (client, _):
        yield client


@contextmanager
def running(settings: Settings) -> Iterator[tuple[httpx.Client, uvicorn.Server]]:
    server = server_for(settings)
    with listening_socket("127.0.0.1", 0) as listener, in_a_thread(server, listener):
        # No certificate is looked at here: to read the trusted ones costs what ten answers do.
        url = url_of(listener)
        with httpx.Client(
            base_url=url, trust_env=False, verify=False, timeout=PATIENCE_SECONDS
        ) as client:
            yield client, server


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a home with one run, in which every fault came to bear; nobody writes to it."""
    folder = tmp_path_factory.mktemp("api")

    def play(seed: int) -> Path:
        home = folder / str(seed) / "home"
        home.parent.mkdir()
        make_run(home, "first", (f"seed={seed}", *SETTINGS))
        return home

    return first_that_shows(_every_fault, play, first=24)


def _every_fault(home: Path) -> bool:
    course = course_of(home, "first")
    return (
        course.is_mixed
        and course.incidents >= INCIDENTS
        and course.dropouts >= {DropoutReason.NO_COMMITMENT, DropoutReason.PAYLOAD_MALFORMED}
        and course.refused >= {RefusalReason.FALSE_DISTANCE}
    )


@pytest.fixture(scope="session")
def address(home: Path) -> str:
    return manifest_of(home, "first").address


@pytest.fixture(scope="session")
def client(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    settings = Settings(home=home, mailbox=str(tmp_path_factory.mktemp("no") / "mail"))
    with serving(settings) as client:
        yield client


@pytest.fixture(scope="session")
def root(client: httpx.Client, address: str) -> str:
    return root_of(client, address)


@pytest.fixture(scope="session")
def verified(client: httpx.Client, root: str) -> dict[str, Any]:
    """One verification of the home's run, for all tests, as it stands at its end."""
    begun = client.post(f"{root}/verifications", json={})
    assert begun.status_code == 202, begun.text
    path = begun.headers["location"]
    again = client.post(f"{root}/verifications", json={})
    refused(again, 409, "verification-running")
    assert again.headers["link"] == f'<{path}>; rel="related"'
    wait_until(lambda: client.get(path).json()["state"] != "running")
    return dict(client.get(path).json())


def deployments_path(http: httpx.Client) -> str:
    (chain,) = read(http, "/v1/chains")["chains"]
    return str(chain["links"]["deployments"])


def root_of(http: httpx.Client, address: str) -> str:
    return f"{deployments_path(http)}/{address}"


def deployments(http: httpx.Client) -> list[dict[str, Any]]:
    return list(read(http, deployments_path(http))["deployments"])


def read(http: httpx.Client, path: str, **parameters: Any) -> Any:
    """Return an answer's JSON, which must be a success that names its block."""
    answer = http.get(path, params=parameters)
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert set(told["as_of"]) == {"number", "hash", "finalized"}
    return told


def refused(answer: httpx.Response, status: int, name: str | None = None) -> Any:
    """Return a problem's JSON, which must be one of RFC 9457."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    told = answer.json()
    assert told["status"] == status
    assert {"type", "title", "detail", "instance"} <= set(told)
    assert told["type"] == (f"urn:cmfl:problem:{name}" if name else "about:blank")
    return told


def rounds_that_are(client: httpx.Client, root: str, status: str) -> list[int]:
    found = read(client, f"{root}/rounds", status=status, limit=100)["rounds"]
    return [entry["round"] for entry in found]
