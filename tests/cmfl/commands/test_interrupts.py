"""Ctrl-C is one line and exit code 130, wherever the command is: also while it imports."""

from __future__ import annotations

import importlib
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from cmfl.commands import main
from cmfl.commands.interrupts import until_interrupted
from tests.processes import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.xdist_group("processes")

# The signal comes at the first import of a module, so the moments are the same each time.
AT_AN_IMPORT = """
import os, signal, sys
waiting = [sys.argv.pop(1)]
def interrupt(event, arguments):
    if event == "import" and waiting == [arguments[0]]:
        waiting.clear()
        os.kill(os.getpid(), signal.SIGINT)
sys.addaudithook(interrupt)
from cmfl.commands.main import run
run()
"""
AT_A_STEP = """
import os, signal, sys
from cmfl.commands import rounds
from cmfl.commands.main import run
rounds.open_history = lambda *_, **__: os.kill(os.getpid(), signal.SIGINT)
run()
"""


def begun(script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    with process:
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    return process.returncode, out, err


def test_an_interrupted_import_is_one_line_and_leaves_no_home(tmp_path: Path) -> None:
    home = tmp_path / "home"
    command = ("run", "--preset", "smoke", "--home", str(home))
    modules = (
        *("typer", "cmfl.commands.application", "torch.nn.functional", "eth.vm.forks.prague"),
    )
    processes = [begun(AT_AN_IMPORT, module, *command) for module in modules]
    found = [ended(process) for process in processes]
    assert found == [(130, "", "cmfl: interrupted\n")] * len(modules)
    assert not home.exists()


def test_an_interrupted_command_is_one_line(tmp_path: Path) -> None:
    process = begun(AT_A_STEP, "rounds", "list", "--home", str(tmp_path))
    assert ended(process) == (130, "", "cmfl: interrupted\n")


def test_a_server_ends_in_order_also_while_a_module_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "interrupting.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    reached: list[str] = []
    monkeypatch.setattr(main, "_end_at_once", lambda: reached.append("the end at once"))
    before = signal.signal(signal.SIGINT, main._interrupt)
    try:
        with until_interrupted():
            importlib.import_module("interrupting")
            reached.append("the next line")
        assert signal.getsignal(signal.SIGINT) is main._interrupt
    finally:
        signal.signal(signal.SIGINT, before)
    assert not reached


def test_the_service_ends_in_order_also_while_it_looks_for_an_event_loop(tmp_path: Path) -> None:
    process = begun(AT_AN_IMPORT, "uvloop", "serve", "--home", str(tmp_path), "--port", "0")
    assert ended(process) == (0, "", "")
