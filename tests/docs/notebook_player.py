"""Notebooks played in this process, which has imported what they need already.

A kernel of Jupyter is a Python of its own: to import torch once more takes longer than most
notebooks. Here the same shell runs the cells, without the messages of a kernel; one notebook is
played in a kernel that is a fork. The `cmfl` that a notebook begins is a fork for the same reason.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import nbformat
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from cmfl.commands.main import run

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from IPython.core.interactiveshell import ExecutionResult

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
ENTRY = "tests.docs.notebook_player:play"
KERNEL = "ipykernel_launcher"
SMALLER = {
    "adapters": {"    rounds=5,\n": "    rounds=2,\n"},
    "attack-study": {"    rounds=4,\n": "    rounds=1,\n", "    rounds=3,\n": "    rounds=1,\n"},
}
"""What is played smaller than it is shown: as many runs, of fewer rounds."""


def play() -> None:
    """Run the cells of the notebook that the first argument names, up to the first that fails.

    Or be a kernel of Jupyter, with the arguments that one gets.
    """
    if sys.argv[1] == KERNEL:
        del sys.argv[1]
        runpy.run_module(KERNEL, run_name="__main__")
        return
    notebook = nbformat.read(FOLDER / f"{sys.argv[1]}.ipynb", as_version=4)
    subprocess.run = _run  # type: ignore[assignment]
    subprocess.Popen = _ForkedCommand  # type: ignore[assignment,misc]
    config = Config()
    config.HistoryManager.enabled = False
    shell = _Shell.instance(config=config)
    run_cell: Callable[[str], ExecutionResult] = shell.run_cell
    codes = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    for shown, played in SMALLER.get(sys.argv[1], {}).items():
        assert sum(shown in code for code in codes) == 1, shown
        codes = [code.replace(shown, played) for code in codes]
    for code in codes:
        if not run_cell(code).success:
            sys.exit(1)


class _Shell(InteractiveShell):
    """The shell of a kernel, but for where it tells of errors, those of displays included."""

    def _showtraceback(self, _kind: object, _error: object, lines: list[str]) -> None:
        sys.stderr.write("\n".join(lines) + "\n")


class _ForkedCommand:
    """A `cmfl` of its own process, with what the notebooks use of `subprocess.Popen`."""

    def __init__(self, command: list[str], **options: Any) -> None:
        assert command[:3] == [sys.executable, "-m", "cmfl"], command
        assert set(options) <= {"stdout", "text", "check", "capture_output"}, options
        reader, writer = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _become(command[3:], writer)
        os.close(writer)
        self.stdout: IO[str] = os.fdopen(reader)

    def terminate(self) -> None:
        os.kill(self.pid, 15)

    def wait(self) -> int:
        self.stdout.close()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def _become(words: list[str], output: int) -> NoReturn:
    code = 1
    try:
        os.dup2(output, 1)
        sys.argv = ["cmfl", *words]
        run()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
        sys.stdout.flush()
    finally:
        os._exit(code)


def _run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    process = _ForkedCommand(command, **options)
    out = process.stdout.read()
    code = process.wait()
    if code and options.get("check"):
        raise subprocess.CalledProcessError(code, command, out)
    return subprocess.CompletedProcess(command, code, out)
