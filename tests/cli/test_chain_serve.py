"""The home's own chain as a node: a real process, which other commands run against."""

from __future__ import annotations

import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ledger.chain.embedded.machine.accounts import TEST_KEYS
from ledger.chain.embedded.reader import EmbeddedReader
from ledger.chain.rpc.reader import RpcReader
from tests.cli.conftest import SHARED, refusal, succeeds
from tests.e2e.sessions import PATIENCE_SECONDS, start

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

    import pytest

pytestmark = SHARED


@contextmanager
def serving(home: Path, *options: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Yield the first line of a `cmfl chain serve` that is ended by Ctrl-C at last."""
    command = ["chain", "serve", "--home", str(home), "--port", "0", *options]
    process = start(command, PYTHONUNBUFFERED="1")
    assert process.stdout is not None
    try:
        yield process.stdout.readline(), process
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_SECONDS)


def test_a_run_goes_over_a_served_chain_which_takes_no_other_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CMFL_PRIVATE_KEY", TEST_KEYS[0].hex())
    served, home = tmp_path / "served", tmp_path / "home"
    with serving(served) as (line, process):
        url, _, _, chain_id, *_ = line.split()
        assert line.endswith("at block 0, until Ctrl-C\n")
        node = ["--rpc-url", url, "--chain-id", chain_id.rstrip(",")]
        succeeds("run", "--preset", "smoke", "--rounds", 2, "--home", home, *node)
        assert succeeds("audit", "--home", home, *node, "--json").json["outcome"] == "passed"
        assert f"process {process.pid} writes to this chain" in refusal(
            "run", "--preset", "smoke", "--home", served
        )
        port = url.rpartition(":")[2]
        said = refusal("chain", "serve", "--home", tmp_path / "new", "--port", port)
        assert f"127.0.0.1:{port}: cannot listen here" in said
        assert not (tmp_path / "new").exists()
    assert process.returncode == 0
    with EmbeddedReader.open(served / "chain.sqlite") as chain:
        assert chain.head().number > 0


def test_a_block_time_lets_deadlines_pass_until_the_service_is_told_to_end(tmp_path: Path) -> None:
    with serving(tmp_path, "--block-time", "0.1") as (line, process):
        url, _, _, chain_id, *_ = line.split()
        deadline = time.monotonic() + PATIENCE_SECONDS
        with RpcReader(url, chain_id=int(chain_id.rstrip(","))) as chain:
            while chain.head().number < 3:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        process.terminate()
        process.wait(PATIENCE_SECONDS)
    assert process.returncode == 0
    with EmbeddedReader.open(tmp_path / "chain.sqlite") as own:
        own.verify()
