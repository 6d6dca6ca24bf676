"""A node may hide, repeat or alter anything: the answer is a success or a problem that names it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings

from api.settings import Settings
from ledger.chain.embedded.reader import EmbeddedReader
from tests.api.conftest import deployments, refused, serving
from tests.chain.rpc.lying_node import EVENTS, Lie, LyingNode, lies
from tests.faults import times

PARTS = ["", "/updates", "/scores", "/votes", "/committee", "/aggregation"]
SOUND = {200, 400, 404, 422, 502, 503}


@pytest.fixture(scope="module")
def node(home: Path) -> Iterator[LyingNode]:
    with EmbeddedReader.open(home / "chain.sqlite") as chain, LyingNode(chain) as node:
        yield node


@pytest.fixture(scope="module")
def chosen(home: Path, node: LyingNode) -> Settings:
    return Settings(
        home=home / "none",
        rpc_url=node.url,
        chain_id=node.chain_id,
        manifests=(home / "runs" / "first" / "deployment.json",),
        blobs=home / "blobs",
    )


def paths(root: str) -> list[str]:
    rounds = [f"{root}/rounds/1", *(f"{root}/rounds/8{part}" for part in PARTS)]
    queries = ["", "?order=oldest&limit=3", "?client=3&role=trained"]
    lists = [f"{root}/rounds{query}" for query in queries]
    clients = [f"{root}/clients{path}" for path in ("", "/13", "/3/rounds")]
    return ["/v1/status", "/v1/chains", root.rpartition("/")[0], root, *rounds, *lists, *clients]


@settings(max_examples=times(1, 400))
@given(told=lies)
@example(told=[Lie("LedgerOpened", "hide")])
@example(told=[Lie("ClientsRegistered", "hide")])
@example(told=[Lie("RoundDecided", "hide", which=2)])
@example(told=[Lie("ClientBanned", "topic", value=2**200)])
@example(told=[Lie("eth_getLogs", "hide")])
@example(told=[Lie("eth_call", "word", place=6, value=77)])
def test_no_answer_is_service_error(
    chosen: Settings, node: LyingNode, root: str, told: list[Lie]
) -> None:
    node.lies = told
    with serving(chosen) as client:
        for path in paths(root):
            answer = client.get(path)
            assert answer.status_code in SOUND, (told, path, answer.text)


ANSWERED = (
    *("/rounds", "/rounds/1", "/clients", "/clients/3/rounds", "/rounds/1/proof/6"),
    *("/rounds/1/proof/6?whole=true", f"/digests/0x{'00' * 32}"),
)


def test_truthful_node_is_answered_for(chosen: Settings, node: LyingNode, root: str) -> None:
    node.lies = []
    with serving(chosen) as client:
        deployments(client)
        for path in ANSWERED:
            assert client.get(f"{root}{path}").status_code == 200, path


@pytest.mark.parametrize(
    ("event", "which"),
    [(event, None) for event in EVENTS]
    + [(event, 0) for event in EVENTS[-times(2, len(EVENTS)) :]],
)
def test_a_node_that_leaves_logs_out_is_answered_for_nowhere(
    chosen: Settings, node: LyingNode, root: str, event: str, which: int | None
) -> None:
    """Neither is a decided round open, nor a banned client none, nor a proof made of it."""
    node.lies = []
    with serving(chosen) as client:
        deployments(client)
        node.lies = [Lie(event, "hide", which)]
        for path in ANSWERED:
            told = refused(client.get(f"{root}{path}"), 502, "chain-not-served")
            assert told["detail"] == "the node's logs do not match the contract's state"
