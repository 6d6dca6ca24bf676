"""Real `cmfl` processes for tests that are about a process, and not about its start.

To import what training needs takes seconds of one core. What is forked from a process that has
imported it once is a process of its own all the same: own memory and group, own streams, an exit
code, and it can be interrupted, stopped and killed outright.

The start itself (what is imported, streams that are missing, the encoding that Python takes from
its environment) is not played this way: tests that are about it begin a Python of their own.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self
from unittest.mock import patch

from clients.testnet.network import ENTRY
from clients.testnet.network import MODULES as OF_A_FEDERATION
from ledger.io.processes import CommandProcess, CommandRunner
from tests.patience import PATIENCE_SECONDS

MODULES = (
    *OF_A_FEDERATION,
    *("torch.nn.functional", "clients.experiments.run"),
    *("ledger.audit.report_text", "ledger.chain.embedded.embedded_chain"),
    *("ledger.history.answers_rounds", "api.app", "api.store.app"),
    *("clients.training.pool_engine", "ledger.audit.round_checker"),
)
_POLL_SECONDS = 0.01


def run_script() -> None:
    """Run the script that is the first argument, as `python script.py` would.

    An entry of `Forks`, for scripts that need not import everything first.
    """
    runpy.run_path(sys.argv[1], run_name="__main__")


def run_forking() -> None:
    """Run the command line with processes that compute for it as forks of it.

    An entry of `Forks`, for commands that begin such processes.
    """
    from cmfl.commands.main import run

    with patch("ledger.io.processes._SPAWN", multiprocessing.get_context("fork")):
        run()


def run_with_cheap_keys() -> None:
    """Run the command line, whose new keystores cost as little as those of test keys.

    An entry of `Forks`, for commands that make keys and open them again and again.
    """
    from clients.registration import ScryptCost, write_keystore
    from cmfl.commands.main import run

    write_keystore.__defaults__ = (ScryptCost.OF_TEST_KEYS,)
    run()


class Forked:
    """One forked `cmfl`, with the methods that `subprocess.Popen` has.

    What it prints goes to files, so that it never waits for somebody to read.
    """

    def __init__(self, process: CommandProcess) -> None:
        self._process = process
        self.pid = process.pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return its exit code, negative for the signal that ended it; None while it is alive."""
        if self.returncode is None:
            self.returncode = self._process.code()
        return self.returncode

    def wait(self, seconds: float = PATIENCE_SECONDS) -> int:
        """Return its exit code once it has ended."""
        deadline = time.monotonic() + seconds
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(self._process.name, seconds)
            time.sleep(_POLL_SECONDS)
        return code

    def communicate(self, seconds: float = PATIENCE_SECONDS) -> tuple[str, str]:
        self.wait(seconds)
        return _text_of(self._process.output), _text_of(self._process.log)

    def first_line(self, seconds: float = PATIENCE_SECONDS) -> str:
        """Return the first line of its standard output as soon as it is whole."""
        deadline = time.monotonic() + seconds
        while True:
            has_ended = self.poll() is not None
            line, end, _ = _text_of(self._process.output).partition("\n")
            if end or has_ended:
                return line + end
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(self._process.name, seconds)
            time.sleep(_POLL_SECONDS)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal; one that has ended gets none."""
        self._process.signal(number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self._process.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.poll()


def _text_of(path: Path) -> str:
    """Return what a file was printed; nothing of a pipe, and of a process killed at its start."""
    return path.read_text("utf-8") if path.is_file() else ""


class Forks:
    """Begins `cmfl` by forks; all of them end with it."""

    def __init__(self, folder: Path, entry: str = ENTRY) -> None:
        """Begin the server of the forks, which goes on to import while this process does."""
        self._commands = CommandRunner(entry, folder, MODULES)
        self._folder = folder
        self._numbers = itertools.count()

    def start(self, *arguments: object, **variables: str) -> Forked:
        """Return a started `cmfl`, in the folder of this process."""
        return self._start(self._name(arguments), arguments, variables)

    def start_printing(
        self, *arguments: object, output: Path | None = None, errors: Path | None = None
    ) -> Forked:
        """Return a started `cmfl` that prints on a device or a pipe.

        Args:
            output: its standard output; a file of its own if not given.
        """
        name = self._name(arguments)
        for ending, target in (("out", output), ("log", errors)):
            if target is not None:
                (self._folder / f"{name}.{ending}").symlink_to(target)
        return self._start(name, arguments, {})

    def _name(self, arguments: tuple[object, ...]) -> str:
        return f"{next(self._numbers)}-{arguments[0] if arguments else 'cmfl'}"

    def _start(self, name: str, arguments: tuple[object, ...], variables: dict[str, str]) -> Forked:
        environment = dict(os.environ) | variables
        return Forked(self._commands.start(name, arguments, environment=environment))

    @contextmanager
    def children(self) -> Iterator[None]:
        """Let processes that compute for this one (`ledger.io.processes`) be forks meanwhile.

        They then have the variables of the server, whatever they are to start with.
        """
        with patch("ledger.io.processes._SPAWN", multiprocessing.get_context("forkserver")):
            yield

    def close(self) -> None:
        self._commands.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
