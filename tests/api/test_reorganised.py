"""A chain that really forks below a service: what is final stays, and no audit is misled."""

from __future__ import annotations

import shutil
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

from api.http.encoded_answer import CHANGING, IMMUTABLE
from api.routes.verification_routes import AuditTask, run_audit
from api.settings import Settings
from clients.configuration.loading import load
from clients.runs.open_run import open_run
from clients.runs.run_folder import manifest_of
from ledger.audit.checks.common import REORGANISED
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.embedded_reader import EmbeddedReader
from ledger.history.paths import ChainPath
from ledger.storage.blobs import FolderBlobs
from tests.api.conftest import read, refused, root_of, serving
from tests.chain.rpc.forking_node import ForkingNode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx

    from clients.runs.metrics import RoundMetrics
    from ledger.audit.report import AuditReport, Need

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


def verified(home: Path, node: ForkingNode, *, moves: bool) -> tuple[AuditReport, list[Need]]:
    """Return the report of an audit on request, and what it could not check.

    Args:
        home: with manifest and blobs.
        node: over the chain.
        moves: whether it goes over to its other branch after the first round was audited.
    """
    manifest = manifest_of(home, "first")
    path = ChainPath(manifest.chain_id, bytes.fromhex(manifest.genesis_hash[2:]))
    settings = Settings(
        home=home, rpc_url=node.url, chain_id=manifest.chain_id, rpc_timeout_seconds=30.0
    )
    task = AuditTask(settings, path, manifest.address, manifest.block)

    def move(_done: int, _total: int) -> None:
        if moves:
            node.reorganise()

    report = run_audit(task, move)
    missing = [one.need for step in report.steps for one in step.missing]
    return report, missing


def test_a_reorganisation_during_an_audit_leaves_the_run_open(
    forked: tuple[Path, Path, int],
) -> None:
    home, _, _ = forked
    with node_over(forked) as node:
        before, nothing = verified(home, node, moves=False)
        assert (before.outcome, before.rounds, nothing) == ("passed", ROUNDS, [])
        during, missing = verified(home, node, moves=True)
        assert during.outcome == "incomplete"
        assert REORGANISED in missing
        after, nothing = verified(home, node, moves=False)
        assert (after.outcome, nothing) == ("passed", [])
        assert after.deployment["head"] != before.deployment["head"]
        assert after.deployment["final_head"] == before.deployment["final_head"]


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


def test_a_round_that_lacks_its_record_is_read_again(
    forked: tuple[Path, Path, int], tmp_path: Path
) -> None:
    with served_over(forked) as (_, http, root):
        digest = read(http, f"{root}/rounds/{ROUNDS}")["record"]["digest"]
        [record] = (forked[0] / "blobs").rglob(digest.removeprefix("0x"))
        away = record.rename(tmp_path / "record")
        path = f"{root}/rounds/{ROUNDS}/updates"
        assert not read(http, path)["record"]["available"]
        away.rename(record)
        assert read(http, path)["record"]["available"]


def test_a_final_round_is_read_from_the_final_chain(forked: tuple[Path, Path, int]) -> None:
    with served_over(forked) as (node, http, root):
        path = f"{root}/rounds/{SHARED_ROUNDS + 1}"
        ended = read(http, path)["ended"]
        node.final = ended["number"]
        final = http.get(path)
        assert final.headers["cache-control"] == IMMUTABLE
        assert final.json()["as_of"] == {
            "number": ended["number"],
            "hash": ended["hash"],
            "finalized": True,
        }


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
