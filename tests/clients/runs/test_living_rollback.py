"""A run that is being played notices that its node came back with an older state."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clients.configuration.loading import load
from clients.runs.metrics import RoundMetrics
from clients.runs.open_run import open_run
from ledger.chain.ports import ChainRolledBackError
from ledger.chain.rpc.node import RpcSettings
from ledger.chain.rpc.rpc_chain import RpcChain
from ledger.io.home import Home
from ledger.storage.blobs import FolderBlobs
from tests.chain.test_port_contract import ANVIL_KEY, anvil
from tests.chain.web3_provider import transport_to
from tests.cmfl.commands.conftest import cmfl

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
