"""The wheel in a fresh environment: `python3 -m tests.packaging.wheel`.

Source distribution and wheel are built and checked by twine; the wheel goes into an environment in
a temporary folder, with the pinned packages and not editable, and its commands run in a folder that
holds no checkout: demo (one seed), run, audit, serve, experiment and network. All is removed at
the end.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from tests.packaging.environments import CONSTRAINTS, TORCH, Environment, build, table

EXTRAS = "cli,clients,fast,data,plots,api"
PATIENCE_SECONDS = 1800
EXPERIMENT = """
title = "From the wheel"
number = 1
preset = "smoke"
settings = ["protocol.rounds=2"]
seeds = [200]

[[methods]]
name = "CMFL-I"

[[conditions]]
name = "clean"
"""


class WrongAnswerError(Exception):
    """A command ended well and answered what is not so."""


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="cmfl-wheel-") as folder:
        rows = [["what", "minutes"]]
        for name, seconds in _steps(Path(folder)):
            rows.append([name, f"{seconds / 60:.1f}"])
            sys.stdout.write(f"{name}: {seconds:.0f} s\n")
            sys.stdout.flush()
    sys.stdout.write(f"\n{table(rows)}\n")
    return 0


def _steps(folder: Path) -> Iterator[tuple[str, float]]:
    """Do one step after the other; yield the name and the seconds of each."""
    begin = time.monotonic()
    _, wheel = build(folder)
    yield "build and twine check", time.monotonic() - begin
    environment = Environment.create(folder / "fresh")
    seconds = environment.pip("install", "--quiet", TORCH)
    seconds += environment.pip(
        "install", "--quiet", "--constraint", CONSTRAINTS, f"{wheel}[{EXTRAS}]"
    )
    yield f"install ({environment.bytes() / 1e9:.1f} GB)", seconds
    _require_installed(environment)
    yield "demo with one seed", environment.run("cmfl", "demo", "--seeds", "1")[1]
    yield "run", environment.run("cmfl", "run", "--preset", "smoke", "--home", "home")[1]
    yield "audit", _audited(environment)
    yield "serve", _served(environment, "serve", "--home", "home", "--port", "8765")
    (environment.folder / "own.toml").write_text(EXPERIMENT, "utf-8")
    experiment = ("experiment", "run", "own.toml", "--out", "rows")
    yield "experiment", environment.run("cmfl", *experiment)[1]
    network = ("network", "--home", "net", "--workers", "4", "--rounds", "3")
    yield "network", environment.run("cmfl", *network)[1]


def _require_installed(environment: Environment) -> None:
    names = ("cmfl", "ledger", "clients", "api", "contracts")
    script = f"import {', '.join(names)}; print(*({', '.join(f'{n}.__file__' for n in names)}))"
    for path in environment.run("python", "-c", script)[0].split():
        if not Path(path).is_relative_to(environment.path):
            raise WrongAnswerError(f"{path} is not in the environment")


def _audited(environment: Environment) -> float:
    output, seconds = environment.run("cmfl", "audit", "--home", "home", "--json")
    report = json.loads(output[output.index("{") : output.rindex("}") + 1])
    if report["outcome"] != "passed":
        raise WrongAnswerError(f"the audit says {output:.500}")
    return seconds


def _served(environment: Environment, *words: str) -> float:
    begin = time.monotonic()
    process = subprocess.Popen(
        [environment.path / "bin/cmfl", *words],
        cwd=environment.folder,
        env=environment.variables() | {"PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        try:
            _ask(_address(process))
            process.send_signal(signal.SIGINT)
            code = process.wait(60)
        finally:
            process.kill()
    if code != 0:
        raise WrongAnswerError(f"{words[0]} ended with {code} when it was interrupted")
    return time.monotonic() - begin


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        for word in line.split():
            if word.startswith("http://"):
                return word.rstrip("/.,;")
    raise WrongAnswerError(f"no service was started: {''.join(lines)[-3000:]}")


def _ask(address: str) -> None:
    """Ask a service for its health, its status and its dashboard, once it answers."""
    for _ in range(60):
        try:
            urllib.request.urlopen(f"{address}/health", timeout=60).close()
            break
        except OSError:
            time.sleep(1)
    for path in ("/health", "/v1/status", "/"):
        with urllib.request.urlopen(address + path, timeout=60) as answer:
            answer.read()


if __name__ == "__main__":
    sys.exit(main())
