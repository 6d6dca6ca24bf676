"""Commands of `cmfl` and of Flower as processes that reach this machine alone."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

BIN = Path(sys.executable).parent
CHAIN_ID = "4711"
SECONDS = 300.0
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "OMP_NUM_THREADS": "1",
}
CONNECTION = """[superlink]
default = "here"

[superlink.here]
address = "127.0.0.1:{port}"
insecure = true
"""
_HEAD = re.compile(r"head (0x[0-9a-f]{64})")


def run(*words: object, folder: Path, seconds: float = SECONDS) -> str:
    ended = subprocess.run(
        [BIN / str(words[0]), *map(str, words[1:])],
        env=environment(folder),
        capture_output=True,
        timeout=seconds,
        check=False,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return ended.stdout + ended.stderr


def head_in(output: str) -> str:
    heads = _HEAD.findall(output)
    assert heads, output[-3000:]
    return str(heads[-1])


def environment(folder: Path) -> dict[str, str]:
    return {
        **os.environ,
        **QUIET,
        "FLWR_HOME": str(folder / "flwr"),
        "PATH": f"{BIN}:{os.environ['PATH']}",
    }


class Background:
    """Processes, each with its own group and log, killed when the context ends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *words: object, **variables: str) -> None:
        with self.log(name).open("wb") as log:
            self._running[name] = subprocess.Popen(
                [BIN / str(words[0]), *map(str, words[1:])],
                env=environment(self.folder) | variables,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill(self, name: str) -> None:
        process = self._running.pop(name)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def wait(self, name: str, seconds: float = SECONDS) -> int:
        return self._running[name].wait(seconds)

    def until(self, name: str, is_there: Callable[[str], bool], seconds: float = SECONDS) -> str:
        deadline = time.monotonic() + seconds
        while not is_there(text := self.text(name)):
            assert time.monotonic() < deadline, text[-3000:]
            assert self._running[name].poll() is None or is_there(self.text(name)), text[-3000:]
            time.sleep(0.2)
        return text

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def text(self, name: str) -> str:
        return self.log(name).read_text(errors="replace")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._running):
            self.kill(name)
