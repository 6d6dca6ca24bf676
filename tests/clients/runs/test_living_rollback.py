"""A run that is being played notices that its node came back with an older state."""

from __future__ import annotations

import json
import subprocess
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from clients.configuration.loading import load
from clients.runs.open_run import open_run
from ledger.chain.ports import ChainRolledBackError
from ledger.chain.rpc.rpc_chain import RpcChain
from ledger.chain.rpc.rpc_reader import RpcSettings
from ledger.io.home import Home
from ledger.storage.blobs import FolderBlobs
from tests.chain.anvil import anvil_program
from tests.chain.rpc.faulty_proxy import FaultyProxy
from tests.chain.test_port_contract import ANVIL_KEY, anvil, listening_address
from tests.chain.web3_provider import transport_to
from tests.cmfl.commands.conftest import cmfl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from clients.runs.metrics import RoundMetrics

pytestmark = [pytest.mark.network, pytest.mark.slow]

ROUNDS = 6
SETTINGS = RpcSettings(poll_seconds=0.05, replace_seconds=0.3, receipt_timeout_seconds=60.0)


def play(chain: RpcChain, home: Path, watch: Callable[[RoundMetrics], None]) -> None:
    configuration = load("smoke", settings=(f"protocol.rounds={ROUNDS}", "training.path=plain"))
    blobs = FolderBlobs(Home(home).blobs)
    with open_run(home, "run", configuration, chain, blobs) as run:
        run.go_on(watch)


def told(chain: RpcChain, method: str, *parameters: Any) -> Any:
    return transport_to(chain).ask(method, *parameters)


def rows_of(home: Path) -> list[int]:
    lines = Home(home).run("run").metrics.read_bytes().splitlines()
    return [json.loads(line)["round"] for line in lines]


def resumed(home: Path, url: str, chain_id: int) -> str:
    """Return what a second process answers that takes the run up."""
    node = ("--rpc-url", url, "--chain-id", chain_id)
    result = cmfl("run", "--home", home, "--resume", *node)
    assert result.code == 2
    return result.err.removeprefix("cmfl: ").strip()


@pytest.mark.parametrize("when", ["between rounds", "within a round"])
def test_a_living_run_rejects_a_chain_that_lost_its_rounds(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CMFL_PRIVATE_KEY", ANVIL_KEY.hex())
    home, saved = tmp_path / "home", list[str]()
    for chain in anvil(tmp_path, settings=SETTINGS):
        assert isinstance(chain, RpcChain)
        send, due = chain.send, list[bool]()

        def watch(row: RoundMetrics, chain: RpcChain = chain, due: list[bool] = due) -> None:
            if row.round == 1:
                saved.append(told(chain, "evm_snapshot"))
            elif row.round == 3 and when == "between rounds":
                assert told(chain, "evm_revert", saved[0])
            elif row.round == 3:
                due.append(True)

        def sending(
            *call: Any, chain: RpcChain = chain, due: list[bool] = due, send: Any = send
        ) -> Any:
            receipt = send(*call)
            if due:  # the first transaction of the round is the last that this state has
                due.clear()
                assert told(chain, "evm_revert", saved[0])
            return receipt

        monkeypatch.setattr(chain, "send", sending)
        with pytest.raises(ChainRolledBackError) as rejected:
            play(chain, home, watch)
        assert rows_of(home) == [1, 2, 3], "no round is noted twice"
        assert "has round 2 with head" in str(rejected.value)
        assert "--accept-rollback" in str(rejected.value)
        assert resumed(home, str(chain.node), chain.chain_id) == str(rejected.value)


def test_a_living_run_rejects_a_node_that_was_killed_and_has_an_older_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CMFL_PRIVATE_KEY", ANVIL_KEY.hex())
    home, saved = tmp_path / "home", list[str]()
    with (
        started(tmp_path) as first,
        FaultyProxy(first.url) as proxy,
        RpcChain(proxy.url, ANVIL_KEY, chain_id=31337, settings=SETTINGS) as chain,
        ExitStack() as later,
    ):

        def watch(row: RoundMetrics) -> None:
            if row.round == 1:
                saved.append(told(chain, "anvil_dumpState"))
            elif row.round == 3:
                first.process.kill()
                second = later.enter_context(started(tmp_path))
                proxy.node_url = second.url
                assert told(chain, "anvil_loadState", saved[0])

        with pytest.raises(ChainRolledBackError) as rejected:
            play(chain, home, watch)
        assert rows_of(home) == [1, 2, 3]
        assert resumed(home, proxy.url, 31337) == str(rejected.value)


@dataclass(frozen=True)
class Started:
    """A running anvil."""

    url: str
    process: subprocess.Popen[bytes]


@contextmanager
def started(folder: Path) -> Iterator[Started]:
    """Start an anvil whose block 0 is always the same, with a block each second."""
    command = [anvil_program(), "--port", "0", "--hardfork", "prague", "--timestamp", "1700000000"]
    with (
        tempfile.TemporaryFile("w+b") as said,
        subprocess.Popen([*command, "--block-time", "1"], cwd=folder, stdout=said) as process,
    ):
        try:
            yield Started(f"http://{listening_address(process, said)}", process)
        finally:
            process.kill()
