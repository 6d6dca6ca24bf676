"""A chain that really forks below a service: what is final stays, and no audit is misled."""

from __future__ import annotations

import shutil
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

from api.http.encoded_answer import CHANGING
from api.settings import Settings
from clients.configuration.loading import load
from clients.runs.open_run import open_run
from clients.runs.run_folder import manifest_of
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.embedded_reader import EmbeddedReader
from ledger.storage.blobs import FolderBlobs
from tests.api.conftest import read, refused, root_of, serving
from tests.chain.rpc.forking_node import ForkingNode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx

    from clients.runs.metrics import RoundMetrics

ROUNDS, SHARED_ROUNDS, DEADLINE = 4, 2, 3
SETTINGS = (
    f"protocol.rounds={ROUNDS}",
    "protocol.commit_blocks=1",
    f"protocol.deadline_blocks={DEADLINE}",
)


class LeftError(Exception):
    """The run is left where it is."""


def play(home: Path, rounds: int, empty_blocks: int = 0) -> None:
    """Play so many rounds of a run, or all that are left."""

    def stop(row: RoundMetrics) -> None:
        if row.round == rounds < ROUNDS:
            raise LeftError

    path = home / "chain.sqlite"
    made = EmbeddedChain.open if path.exists() else EmbeddedChain.create
    with made(path, synchronous="NORMAL") as chain:
        chain.mine(empty_blocks)
        blobs = FolderBlobs(home / "blobs")
        configuration = load("smoke", settings=SETTINGS)
        with suppress(LeftError), open_run(home, "first", configuration, chain, blobs) as run:
            run.go_on(stop)


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, int]:
    """Return a home, the home that it might have become, and the last block that both have."""
    folder = tmp_path_factory.mktemp("forked")
    one, other = folder / "one", folder / "other"
    one.mkdir()
    play(one, SHARED_ROUNDS)
    with EmbeddedReader.open(one / "chain.sqlite") as chain:
        final = chain.head().number
    shutil.copytree(one, other)
    play(one, ROUNDS)
    # Its third round misses its deadline; the blobs of both are in one folder, as on a network.
    play(other, ROUNDS, empty_blocks=DEADLINE + 1)
    shutil.copytree(other / "blobs", one / "blobs", dirs_exist_ok=True)
    return one, other, final


@contextmanager
def node_over(forked: tuple[Path, Path, int]) -> Iterator[ForkingNode]:
    one, other, final = forked
    with (
        EmbeddedReader.open(one / "chain.sqlite") as first,
        EmbeddedReader.open(other / "chain.sqlite") as second,
        ForkingNode(first, second, final) as node,
    ):
        yield node


@contextmanager
def served_over(forked: tuple[Path, Path, int]) -> Iterator[tuple[ForkingNode, httpx.Client, str]]:
    home, _, _ = forked
    kept = home / "kept"  # a service that starts again finds the events of the one before
    kept.mkdir(exist_ok=True)
    with node_over(forked) as node:
        settings = Settings(
            home=kept,
            rpc_url=node.url,
            chain_id=node.chain_id,
            manifests=(home / "runs" / "first" / "deployment.json",),
            blobs=home / "blobs",
        )
        with serving(settings) as http:
            yield node, http, root_of(http, manifest_of(home, "first").address)


def test_answers_change_only_for_rounds_that_were_not_final(forked: tuple[Path, Path, int]) -> None:
    with served_over(forked) as (node, http, root):
        before, immutable = told(http, root)
        node.reorganise()
        after, _ = told(http, root)
    for number in range(1, SHARED_ROUNDS + 1):
        assert after[number] == before[number]
        assert immutable[number], "it ended in a final block"
    for number in range(SHARED_ROUNDS + 1, ROUNDS + 1):
        assert after[number] != before[number]
        assert not immutable[number]
    assert [before[3][0]["status"], after[3][0]["status"]] == ["decided", "abandoned"]


def asked_of(node: ForkingNode, http: httpx.Client, path: str) -> tuple[httpx.Response, list[str]]:
    """Return an answer, and the methods by which the service asked the node for it."""
    before = len(node.asked)
    answer = http.get(path)
    return answer, [method for method, _ in node.asked[before:]]


def test_an_ended_round_is_read_once_while_its_block_stands(forked: tuple[Path, Path, int]) -> None:
    with served_over(forked) as (node, http, root):
        path = f"{root}/rounds/{SHARED_ROUNDS + 1}"
        first, needed = asked_of(node, http, path)
        again, repeated = asked_of(node, http, path)
        assert "eth_getLogs" in needed
        assert set(repeated) == {"eth_getBlockByNumber"}, "no log is read again"
        assert (again.content, again.headers["etag"]) == (first.content, first.headers["etag"])
        assert (again.headers["cache-control"], again.json()["as_of"]["finalized"]) == (
            CHANGING,
            False,
        )
        tag = {"If-None-Match": again.headers["etag"]}
        assert http.get(path, headers=tag).status_code == 304

        node.reorganise()
        other, needed = asked_of(node, http, path)
        assert "eth_getLogs" in needed
        assert other.json()["ended"]["hash"] != first.json()["ended"]["hash"]
        assert asked_of(node, http, path)[0].content == other.content


def test_a_node_that_fails_is_a_problem_for_known_rounds(
    forked: tuple[Path, Path, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with served_over(forked) as (node, http, root):
        path = f"{root}/rounds/{SHARED_ROUNDS + 1}"
        assert http.get(path).status_code == 200
        monkeypatch.setattr(node, "answer", lambda _: (200, b"{"))
        for _ in range(2):
            refused(http.get(path), 502, "chain-not-served")
        monkeypatch.undo()
        assert http.get(path).status_code == 200


def told(http: httpx.Client, root: str) -> tuple[dict[int, list[Any]], dict[int, bool]]:
    """Return what is told of each round, but for the block it is told as of, and what is kept."""
    found: dict[int, list[Any]] = {}
    kept: dict[int, bool] = {}
    for number in range(1, ROUNDS + 1):
        one = f"{root}/rounds/{number}"
        facts = [read(http, f"{one}{part}") for part in ("", "/updates", "/explanation")]
        for answer in facts:
            del answer["as_of"]
        found[number] = facts
        kept[number] = "immutable" in http.get(one).headers["cache-control"]
    return found, kept
