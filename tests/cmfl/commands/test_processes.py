"""The command as its own process: exit codes, interruption, and parts that are not installed."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ledger.chain.embedded.reader import EmbeddedReader
from tests.cmfl.commands.conftest import succeeds
from tests.e2e.sessions import Home, finish
from tests.patience import PATIENCE_SECONDS, wait_until

if TYPE_CHECKING:
    from tests.processes import Forks

pytestmark = pytest.mark.xdist_group("processes")


def ended(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def test_a_clock_before_1970_keeps_nobody_from_deploying(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: -1.0)
    succeeds("deploy", "--preset", "smoke", "--home", tmp_path)
    with EmbeddedReader.open(tmp_path / "chain.sqlite") as chain:
        assert [chain.block(number).timestamp for number in range(3)] == [0, 1, 1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_an_interrupted_run_prints_the_command_that_continues_it(
    forks: Forks, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    home = Home(tmp_path, ("training.path=plain", "protocol.rounds=8"))
    with home.start(forks) as process:
        wait_until(lambda: home.rows() >= 2 or process.poll() is not None)
        process.send_signal(number)
        out, err = process.communicate()
    assert (process.returncode, out, err.count("\n")) == (code, "", 1)
    assert err.startswith("cmfl: interrupted; continue with: ")
    _, *words = shlex.split(err.partition("continue with: ")[2])
    assert finish(forks.start(*words, "--json"))["round"] == 8
    assert home.rows() == 8


@pytest.mark.parametrize(
    ("package", "command", "extra"),
    [("torch", ("run", "--preset", "smoke"), "clients"), ("uvicorn", ("serve",), "api")],
)
def test_a_command_without_its_extra_names_it_and_does_nothing(
    package: str, command: tuple[str, ...], extra: str, tmp_path: Path
) -> None:
    blocked = (
        f"import sys; sys.modules[{package!r}] = None; from cmfl.commands import main; main.run()"
    )
    found = ended("-c", blocked, *command, "--home", str(tmp_path / "home"))
    assert found.returncode == 2
    assert f"the extra [{extra}]: pip install" in found.stderr
    assert len(found.stderr.splitlines()) == 1
    assert not (tmp_path / "home").exists()
