"""A run over JSON-RPC: against our own server, and against anvil where it is installed."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ledger.chain.embedded.chain_store import DEFAULT_CHAIN_ID
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.evm import TEST_KEYS, address_of
from ledger.chain.ports import TransactionRefusedError
from ledger.chain.rpc.rpc_chain import RpcChain
from ledger.chain.rpc.server import RpcServer
from ledger.io.retry import Backoff, RetryPolicy
from tests.chain.test_port_contract import ANVIL_KEY, anvil
from tests.cmfl.commands.conftest import SETTINGS, refusal, settings_of, succeeds
from tests.patience import PATIENCE_SECONDS, slowness

if TYPE_CHECKING:
    from tests.processes import Forks


ROUNDS = 2
RUN = ["run", "--preset", "smoke", *settings_of(*SETTINGS), "--rounds", ROUNDS, "--json"]
# The first round of this seed is abandoned, on every processor.
RUN += settings_of("seed=4")


@dataclass(frozen=True)
class Node:
    url: str
    chain_id: int
    key: bytes

    @property
    def options(self) -> list[object]:
        return ["--rpc-url", self.url, "--chain-id", self.chain_id]


def served(folder: Path) -> Iterator[Node]:
    with EmbeddedChain.create(folder / "node.sqlite") as chain, RpcServer(chain) as server:
        yield Node(server.url, DEFAULT_CHAIN_ID, TEST_KEYS[0])


def of_anvil(folder: Path) -> Iterator[Node]:
    for chain in anvil(folder):
        yield Node(chain._node.shown_url, chain.chain_id, ANVIL_KEY)  # type: ignore[attr-defined]


@pytest.fixture(
    params=[served, pytest.param(of_anvil, marks=pytest.mark.network)], ids=["server", "anvil"]
)
def node(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Node]:
    for found in request.param(tmp_path):
        monkeypatch.setenv("CMFL_PRIVATE_KEY", found.key.hex())
        yield found


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("near") / "home"
    succeeds(*RUN, "--home", path, "--chain-id", DEFAULT_CHAIN_ID)
    return path


def test_a_run_over_a_node_has_the_embedded_head(node: Node, home: Path, tmp_path: Path) -> None:
    found = succeeds(*RUN, "--home", tmp_path / "far", *node.options).json
    near = json.loads((home / "runs" / "run" / "deployment.json").read_bytes())
    here, there = (
        [json.loads(line) for line in (path / "runs/run/metrics.jsonl").read_bytes().splitlines()]
        for path in (home, tmp_path / "far")
    )
    assert there[-1]["head"] == found["head"]
    # A record holds signatures, which name chain and contract: another deployer, another head.
    assert (here[-1]["head"] == found["head"]) == (near["address"] == found["address"])
    assert node.key != TEST_KEYS[0] or near["address"] == found["address"]
    # Each row holds a head too.
    assert portable(here) == portable(there)
    assert not (tmp_path / "far" / "chain.sqlite").exists()
    shown = [("rounds", "show", number) for number in range(1, ROUNDS + 1)]
    for command in ("rounds", "list"), ("clients", "list"), *shown:
        far = succeeds(*command, "--home", tmp_path / "far", *node.options, "--json").json
        assert portable(far) == portable(succeeds(*command, "--home", home, "--json").json)
    report = succeeds("audit", "--home", tmp_path / "far", *node.options, "--json").json
    assert report["outcome"] == "passed"
    again = succeeds("run", "--home", tmp_path / "far", "--resume", *node.options, "--json").json
    assert again["rounds_now"] == 0


def portable(value: object) -> object:
    """Return an answer without what differs from chain to chain: blocks, and what is signed."""
    if isinstance(value, list):
        return [portable(entry) for entry in value]
    if isinstance(value, dict):
        differs = {"record", "incidents", "incidents_document", "head", "result"}
        differs |= {"ended", "opened_block", "links", "signature"}
        return {name: portable(entry) for name, entry in value.items() if name not in differs}
    return value


def test_a_deployment_over_a_node_is_done_once(node: Node, tmp_path: Path) -> None:
    arguments = ["deploy", "--preset", "smoke", "--home", tmp_path, *node.options, "--json"]
    first = succeeds(*arguments).json
    assert succeeds(*arguments).json == first
    assert first == json.loads((tmp_path / "runs" / "run" / "deployment.json").read_bytes())
    assert "has another configuration" in refusal(*arguments, "--set", "seed=1")


def test_a_run_is_played_by_one_process_at_a_time(node: Node, forks: Forks, tmp_path: Path) -> None:
    run = ("--home", tmp_path / "home", *node.options)
    rows = tmp_path / "home" / "runs" / "run" / "metrics.jsonl"
    with forks.start("run", "--preset", "smoke", "--rounds", 1000, *run) as first:
        waiting = RetryPolicy(Backoff(0.01, 1), deadline_seconds=PATIENCE_SECONDS)
        assert waiting.poll(lambda: rows.exists() or None)
        first.send_signal(signal.SIGSTOP)
        for command in ("run", "--resume"), ("deploy", "--preset", "smoke"):
            said = refusal(*command, *run)
            assert said.startswith(f"run 'run': process {first.pid} (cmfl run) plays or deploys it")
        first.kill()
    assert succeeds("runs", "show", "run", *run, "--json").json["rounds"] > 0


def test_rounds_are_decided_while_somebody_sends_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CMFL_PRIVATE_KEY", TEST_KEYS[0].hex())
    is_over, seconds = threading.Event(), 0.25 * slowness()
    begun = time.monotonic()

    def send(url: str) -> None:
        with RpcChain(url, TEST_KEYS[1], chain_id=DEFAULT_CHAIN_ID) as client:
            while not is_over.is_set():
                with suppress(TransactionRefusedError):  # as many wait as may
                    client.submit(client.sender, b"", 21_000)

    with (
        EmbeddedChain.create(tmp_path / "node.sqlite") as chain,
        RpcServer(chain, block_seconds=seconds) as server,
        ThreadPoolExecutor() as pool,
    ):
        sending = pool.submit(send, server.url)
        node = ["--rpc-url", server.url, "--chain-id", DEFAULT_CHAIN_ID]
        times = ["--set", "protocol.commit_blocks=16", "--set", "protocol.deadline_blocks=64"]
        options = ["--preset", "smoke", "--rounds", 1, *times, "--home", tmp_path / "home"]
        try:
            succeeds("run", *options, *node)
        finally:
            is_over.set()
        sending.result()
        listed = ("--home", tmp_path / "home", *node, "--json")
        rounds = succeeds("rounds", "list", *listed).json["rounds"]
        assert [one["status"] for one in rounds] == ["decided"]
        assert chain.account(address_of(TEST_KEYS[1]))[0] > 0
        assert chain.head().number <= (time.monotonic() - begun) / seconds


def test_a_wrong_chain_id_and_a_poor_sender_are_refused(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["deploy", "--preset", "smoke", "--home", tmp_path, "--rpc-url", node.url]
    said = refusal(*arguments, "--chain-id", 1)
    assert said == f"{node.url}: has chain id {node.chain_id}, expected 1"
    monkeypatch.setenv("CMFL_PRIVATE_KEY", "11" * 32)
    refusal(*arguments, "--chain-id", node.chain_id)
    assert not (tmp_path / "runs" / "run" / "deployment.json").exists()
