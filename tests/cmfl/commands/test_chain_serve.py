"""The home's own chain as a node: a real process, which other commands run against."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ledger.chain.embedded.evm import TEST_KEYS
from ledger.chain.embedded.reader import EmbeddedReader
from ledger.chain.rpc.node import RpcReader
from tests.cmfl.commands.conftest import refusal, succeeds
from tests.patience import wait_until

if TYPE_CHECKING:
    from tests.processes import Forked, Forks

pytestmark = pytest.mark.xdist_group("processes")


@contextmanager
def serving(forks: Forks, home: Path, *options: str) -> Iterator[tuple[str, Forked]]:
    """Yield the first line of a `cmfl chain serve` that is ended by Ctrl-C at last."""
    with forks.start("chain", "serve", "--home", home, "--port", 0, *options) as process:
        yield process.first_line(), process
        process.send_signal(signal.SIGINT)
        process.wait()


def test_a_run_uses_a_served_chain_that_refuses_other_writers(
    forks: Forks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CMFL_PRIVATE_KEY", TEST_KEYS[0].hex())
    served, home = tmp_path / "served", tmp_path / "home"
    with serving(forks, served) as (line, process):
        url, _, _, chain_id, *_ = line.split()
        assert line.endswith("at block 0, until Ctrl-C\n")
        node = ["--rpc-url", url, "--chain-id", chain_id.rstrip(",")]
        succeeds("run", "--preset", "smoke", "--rounds", 2, "--home", home, *node)
        assert succeeds("audit", "--home", home, *node, "--json").json["outcome"] == "passed"
        assert f"process {process.pid} (cmfl chain) writes to this chain" in refusal(
            "run", "--preset", "smoke", "--home", served
        )
        port = url.rpartition(":")[2]
        said = refusal("chain", "serve", "--home", tmp_path / "new", "--port", port)
        assert f"127.0.0.1:{port}: cannot listen here" in said
        assert not (tmp_path / "new").exists()
    assert process.returncode == 0
    with EmbeddedReader.open(served / "chain.sqlite") as chain:
        assert chain.head().number > 0


def test_with_a_block_time_deadlines_pass_until_the_service_stops(
    forks: Forks, tmp_path: Path
) -> None:
    with serving(forks, tmp_path, "--block-time", "0.1") as (line, process):
        url, _, _, chain_id, *_ = line.split()
        with RpcReader(url, chain_id=int(chain_id.rstrip(","))) as chain:
            wait_until(lambda: chain.head().number >= 3)
        process.terminate()
        process.wait()
    assert process.returncode == 0
    with EmbeddedReader.open(tmp_path / "chain.sqlite") as own:
        own.verify()
