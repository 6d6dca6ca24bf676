"""A finished round's bytes never change; what may still change says so."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.http.answers import CHANGING, IMMUTABLE
from api.settings import Settings
from clients.configuration.loading import load
from clients.runs.metrics import RoundMetrics
from clients.runs.open_run import open_run
from clients.runs.run_folder import manifest_of
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.reader import EmbeddedReader
from ledger.storage.blobs import FolderBlobs
from tests.api.conftest import (
    ROUNDS,
    deployments_path,
    make_run,
    read,
    refused,
    root_of,
    rounds_that_are,
    serving,
)
from tests.chain.rpc.forking_node import ForkingNode

PARTS = (
    *("", "/updates", "/scores", "/votes", "/committee", "/aggregation"),
    "/scores?include=vectors",
)


def paths(root: str) -> list[str]:
    return [f"{root}/rounds/{t}{part}" for t in range(1, ROUNDS + 1) for part in PARTS]


def test_finished_rounds_are_immutable_under_a_strong_tag(client: httpx.Client, root: str) -> None:
    tags = set()
    for path in paths(root):
        answer = client.get(path)
        assert answer.headers["cache-control"] == IMMUTABLE
        assert answer.headers["etag"].startswith('"')
        tags.add(answer.headers["etag"])
        again = client.get(path)
        assert (again.content, again.headers["etag"]) == (answer.content, answer.headers["etag"])
    with_vectors = ROUNDS - len(rounds_that_are(client, root, "abandoned"))
    assert len(tags) == ROUNDS * (len(PARTS) - 1) + with_vectors, "other bytes, other tags"


def test_what_the_client_has_is_not_sent_again(client: httpx.Client, root: str) -> None:
    for path in (f"{root}/rounds/1", f"{root}/rounds", root, "/v1/status", f"{root}/clients/1"):
        tag = client.get(path).headers["etag"]
        for known in (tag, f'"other", {tag}', f"W/{tag.removeprefix('W/')}", "*"):
            answer = client.get(path, headers={"If-None-Match": known})
            assert answer.status_code == 304
            assert answer.content == b""
            assert answer.headers["etag"] == tag
        for other in ('"other"', tag.strip('W/"'), ""):
            answer = client.get(path, headers={"If-None-Match": other})
            assert answer.status_code == 200


def test_changing_answer_has_weak_etag_and_is_revalidated(client: httpx.Client, root: str) -> None:
    for path in (
        "/v1/status",
        "/v1/chains",
        root.rpartition("/")[0],
        root,
        f"{root}/rounds",
        f"{root}/clients",
    ):
        answer = client.get(path)
        assert answer.headers["cache-control"] == CHANGING
        assert answer.headers["etag"].startswith('W/"')


def test_head_is_get_without_the_body(client: httpx.Client, root: str) -> None:
    for path in ("/health", "/v1/status", root, f"{root}/rounds/1", f"{root}/rounds"):
        one, other = client.head(path), client.get(path)
        assert (one.status_code, one.content) == (200, b"")
        for name in ("etag", "cache-control", "content-length", "content-type"):
            assert one.headers.get(name) == other.headers.get(name), (path, name)
    assert client.head(f"{root}/rounds/999").status_code == 404


def test_a_long_answer_is_compressed_for_who_asks(client: httpx.Client, root: str) -> None:
    path = f"{root}/rounds/1?full=true"
    for _ in range(2):  # the second is from what is kept
        plain = client.get(path, headers={"Accept-Encoding": "identity"})
        short = client.get(path, headers={"Accept-Encoding": "br, gzip;q=0.5"})
        assert "content-encoding" not in plain.headers
        assert short.headers["content-encoding"] == "gzip"
        assert int(short.headers["content-length"]) < len(plain.content) / 2
        assert short.content == plain.content
        assert short.headers["etag"] != plain.headers["etag"], "other bytes, another tag"
        assert short.headers["vary"] == "Accept-Encoding"
        for tag in (plain.headers["etag"], short.headers["etag"]):
            answer = client.get(path, headers={"If-None-Match": tag})
            assert (answer.status_code, answer.content) == (304, b"")
    for refusing in ("gzip;q=0", "gzip; q=0.0, br", "identity", "x" * 5_000):
        answer = client.get(path, headers={"Accept-Encoding": refusing})
        assert "content-encoding" not in answer.headers


def test_two_homes_share_an_address_and_no_path(tmp_path: Path) -> None:
    """What a browser keeps of one home for a year is never shown for another."""
    one, other = tmp_path / "one", tmp_path / "other"
    other.mkdir()
    EmbeddedChain.create(other / "chain.sqlite", chain_id=7).close()
    address = make_run(one, "first", ("protocol.rounds=1",))
    assert make_run(other, "first", ("protocol.rounds=1",)) == address
    with serving(Settings(home=one)) as client:
        path = f"{root_of(client, address)}/rounds/1"
        assert client.get(path).headers["cache-control"] == IMMUTABLE
    with serving(Settings(home=other)) as client:
        told = refused(client.get(path), 404, "chain-not-found")
        assert told["detail"].endswith(f"{deployments_path(client).split('/')[3]} is")
        assert client.get(f"{root_of(client, address)}/rounds/1").status_code == 200


def test_a_missing_record_is_told_and_its_answers_may_change(tmp_path: Path) -> None:
    home = tmp_path / "home"
    address = make_run(home, "first", ("protocol.rounds=1",))
    with serving(Settings(home=home)) as client:
        root = root_of(client, address)
        digest = read(client, f"{root}/rounds/1")["record"]["digest"][2:]
        blob = home / "blobs" / digest[:2] / digest
        data = blob.read_bytes()
        blob.unlink()
        assert client.get(f"{root}/rounds/1").headers["cache-control"] == IMMUTABLE, "it was whole"
    with serving(Settings(home=home)) as client:
        for part in ("", "/updates", "/scores", "/committee", "/aggregation"):
            answer = client.get(f"{root}/rounds/1{part}")
            assert answer.headers["cache-control"] == CHANGING
            assert answer.json()["record"] == {"digest": f"0x{digest}", "available": False}
        for entry in read(client, f"{root}/rounds/1/updates")["updates"]:
            assert entry["commitment"] is not None, "the chain has it"
            assert entry["payload"] is None, "only the record opens it"
        votes = client.get(f"{root}/rounds/1/votes")
        assert votes.headers["cache-control"] == IMMUTABLE, "the chain has them"
        assert len(votes.json()["certificates"]) == 2
        # Another blob under its name is none either.
        blob.write_bytes(data[:-1] + b"\0")
        assert not read(client, f"{root}/rounds/1/scores")["record"]["available"]
        blob.write_bytes(data)
        assert client.get(f"{root}/rounds/1/scores").headers["cache-control"] == IMMUTABLE


# A chain that really forks below a service: what is final stays, and no audit is misled.


PLAYED, SHARED_ROUNDS, DEADLINE = 4, 2, 3
SETTINGS = (
    f"protocol.rounds={PLAYED}",
    "protocol.commit_blocks=1",
    f"protocol.deadline_blocks={DEADLINE}",
)


class LeftError(Exception):
    """The run is left where it is."""


def play(home: Path, rounds: int, empty_blocks: int = 0) -> None:
    """Play so many rounds of a run, or all that are left."""

    def stop(row: RoundMetrics) -> None:
        if row.round == rounds < PLAYED:
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
    play(one, PLAYED)
    # Its third round misses its deadline; the blobs of both are in one folder, as on a network.
    play(other, PLAYED, empty_blocks=DEADLINE + 1)
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
    for number in range(SHARED_ROUNDS + 1, PLAYED + 1):
        assert after[number] != before[number]
        assert not immutable[number]
    assert [before[3][0]["status"], after[3][0]["status"]] == ["decided", "abandoned"]


def asked_of(node: ForkingNode, http: httpx.Client, path: str) -> tuple[httpx.Response, list[str]]:
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


def test_node_that_fails_is_problem(
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
    for number in range(1, PLAYED + 1):
        one = f"{root}/rounds/{number}"
        facts = [read(http, f"{one}{part}") for part in ("", "/updates", "/explanation")]
        for answer in facts:
            del answer["as_of"]
        found[number] = facts
        kept[number] = "immutable" in http.get(one).headers["cache-control"]
    return found, kept
