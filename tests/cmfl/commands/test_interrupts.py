"""Ctrl-C, TERM and HUP are one line and 128 plus the signal, also while a command imports."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cmfl.commands.process import END_SIGNALS
from tests.patience import PATIENCE_SECONDS
from tests.processes import Forks

pytestmark = pytest.mark.xdist_group("processes")

AT_AN_IMPORT = "from tests.cmfl.commands.interrupted import at_an_import; at_an_import()"


def begun(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", AT_AN_IMPORT, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    with process:
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    return process.returncode, out, err


def ended_fork(entry: str, folder: Path, *arguments: object) -> tuple[int, str, str]:
    """Return what a forked `cmfl` came to that begins with a function of `interrupted.py`."""
    entry = f"tests.cmfl.commands.interrupted:{entry}"
    with Forks(folder / "forks", entry) as forks, forks.start(*arguments) as process:
        out, err = process.communicate()
        return process.wait(), out, err


def test_an_interrupted_import_is_one_line_and_leaves_no_home(tmp_path: Path) -> None:
    home = tmp_path / "home"
    command = ("run", "--preset", "smoke", "--home", str(home))
    modules = ("typer", "cmfl.commands.application", "torch.nn.functional")
    processes = [begun(module, *command) for module in modules]
    found = [ended(process) for process in processes]
    # What comes after torch is imported by a fork, which has torch already.
    found.append(ended_fork("at_an_import", tmp_path, "cmfl.tracking", *command))
    assert found == [(130, "", "cmfl: interrupted\n")] * 4
    assert not home.exists()


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_command_that_a_signal_ends_is_one_line(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    command = (int(number), "rounds", "list", "--home", tmp_path)
    assert ended_fork("at_a_step", tmp_path, *command) == (code, "", "cmfl: interrupted\n")


def test_an_ignored_hangup_stays_ignored(tmp_path: Path) -> None:
    command = (int(signal.SIGHUP), "rounds", "list", "--home", tmp_path)
    code, _, err = ended_fork("with_hangup_ignored", tmp_path, *command)
    assert code != 129
    assert "cmfl: interrupted" not in err


def test_a_forked_copy_ends_by_a_signal_without_a_word(tmp_path: Path) -> None:
    command = ("rounds", "list", "--home", tmp_path)
    found = ended_fork("with_a_child", tmp_path, *command)
    assert found == (100 - signal.SIGTERM, "", "")


def test_the_service_ends_in_order_also_while_it_looks_for_an_event_loop(tmp_path: Path) -> None:
    serve = ("uvloop", "serve", "--home", tmp_path, "--port", 0)
    assert ended_fork("at_an_import", tmp_path, *serve) == (0, "", "")


@pytest.mark.parametrize("number", END_SIGNALS)
def test_a_serving_command_ends_in_order_by_each_signal(
    tmp_path: Path, forks: Forks, number: signal.Signals
) -> None:
    for command in ("serve", "--home", tmp_path), ("log", "serve", tmp_path):
        with forks.start(*command, "--port", 0) as process:
            assert process.first_line()
            process.send_signal(number)
            _, err = process.communicate()
        assert (process.returncode, err) == (0, "")
