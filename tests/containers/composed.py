"""Services of a compose file as processes of this machine: its commands, volumes and order.

Volumes become folders, and each service sees them where its container would, under a folder of its
own. Each takes a free port and prints it, and those after it are told that one. A command's `cmfl`
is forked, which costs less than a start.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tests.patience import PATIENCE_SECONDS, wait_until

if TYPE_CHECKING:
    from tests.processes import Forked, Forks

FOLDER = Path(__file__).parents[2] / "docs" / "containers"
STATE, SCRIPTS = "/var/lib/cmfl", "/opt/cmfl"  # where containers have volumes and scripts
_POLL_SECONDS = 0.05
_FASTER = {"chain serve": ("--block-time", "0.25"), "worker --rpc-url": ("--poll", "0.25")}
"""What is added to two commands: rounds wait for blocks most of the time."""
_BLOCKS = re.compile(r"(?<=_blocks = )\d+")
"""Window and deadline in the settings: they last as long as with a block a second."""
_PORT = re.compile(r"\b(8545|8600|8000|910[123])\b")
_PRINTED_PORT = re.compile(r"(?:http://[\d.]+:|serves Prometheus metrics on port )(\d+)")

# Asks the test for a cmfl, and becomes what that has printed and its exit code. It waits for that
# at a pipe: to look again and again would take a process each time.
_SHIM = """#!/bin/sh
call=$(mktemp -d "$CALLS/XXXXXX")
for word; do printf '%s\\n' "$word"; done > "$call/words"
env > "$call/environment"
mkfifo "$call/code"
: > "$call/ready"
read -r code < "$call/code"
cat "$call/out"
cat "$call/err" >&2
exit "$code"
"""


def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text("utf-8"))
    return document


@dataclass
class Composed:
    folder: Path
    forks: Forks
    ports: dict[str, str] = field(default_factory=dict)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _calls: dict[Path, Forked] = field(default_factory=dict)
    _answered: set[Path] = field(default_factory=set)
    _healthy: set[str] = field(default_factory=set)

    def volume(self, name: str) -> Path:
        return self.folder / "volumes" / name

    def url(self, port: int) -> str:
        return f"http://127.0.0.1:{self.ports[str(port)]}"

    def learn_port(self, name: str, service: dict[str, Any]) -> None:
        """Wait until a service has printed the port that it took instead of the file's."""
        own = _own_port(service)

        def printed() -> re.Match[str] | None:
            assert self.processes[name].poll() is None, self.log(name)
            mine = [p for call, p in [*self._calls.items()] if call.parent.name == name]
            return _PRINTED_PORT.search("".join(map(printed_by, mine)))

        found = wait_until(printed, lambda: self.log(name))
        assert found is not None
        self.ports[own] = found[1]

    def start(self, name: str, service: dict[str, Any]) -> None:
        """Start a service; one that others wait for to complete has then done so."""
        state = self.folder / "services" / name
        (state / "scripts").mkdir(parents=True)
        for volume in service.get("volumes", []):
            source, place, *_ = volume.split(":")
            self.volume(source).mkdir(parents=True, exist_ok=True)
            (state / Path(place).name).symlink_to(self.volume(source))
        for script in FOLDER.iterdir():
            if script.suffix in {".sh", ".toml"}:
                text = self._here(script.read_text("utf-8"), state)
                text = _BLOCKS.sub(lambda count: str(4 * int(count[0])), text)
                (state / "scripts" / script.name).write_text(text)
        words = [self._here(word.replace("$$", "$"), state) for word in service["command"]]
        variables = {key: self._here(x, state) for key, x in service.get("environment", {}).items()}
        binaries, log = self.folder / "bin", (state / "log").open("wb")
        calls = self.folder / "calls" / name
        calls.mkdir()
        environment = os.environ | variables | {"CALLS": str(calls)}
        environment["PATH"] = f"{binaries}:{Path(sys.executable).parent}:{environment['PATH']}"
        self.processes[name] = subprocess.Popen(
            words, env=environment, stdout=log, stderr=log, start_new_session=True
        )
        log.close()

    def log(self, name: str) -> str:
        printed = (self.folder / "services" / name / "log").read_text("utf-8")
        return printed + "".join(map(printed_by, [*self._calls.values()]))[-4000:]

    def wait_for(self, name: str, service: dict[str, Any], condition: str) -> None:
        """Wait until a service is healthy, or has completed; who was healthy is not asked again."""
        process = self.processes[name]
        if condition == "service_completed_successfully":
            assert process.wait(PATIENCE_SECONDS) == 0, self.log(name)
            return
        assert condition == "service_healthy"
        if name in self._healthy:
            assert process.poll() is None, self.log(name)
            return
        kind, *words = service["healthcheck"]["test"]
        assert kind == "CMD"
        state = self.folder / "services" / name
        check = [sys.executable, *(self._here(word, state) for word in words[1:])]

        def is_healthy() -> bool:
            assert process.poll() is None, self.log(name)
            return subprocess.run(check, check=False, capture_output=True).returncode == 0

        wait_until(is_healthy, lambda: self.log(name))
        self._healthy.add(name)

    def answer_calls(self) -> None:
        """Fork a cmfl for each that a service has called, and say how the others have ended."""
        for ready in (self.folder / "calls").glob("*/*/ready"):
            call = ready.parent
            ready.unlink()
            lines = (call / "environment").read_text("utf-8").splitlines()
            variables = dict(line.split("=", 1) for line in lines if line.startswith("CMFL_"))
            words = (call / "words").read_text("utf-8").splitlines()
            faster = _FASTER.get(" ".join(words[:2]), ())
            self._calls[call] = self.forks.start(*words, *faster, **variables)
        for call, process in [*self._calls.items()]:
            if call not in self._answered and (code := process.poll()) is not None:
                out, err = process.communicate()
                (call / "out").write_text(out)
                (call / "err").write_text(err)
                # As long as nobody reads there, it cannot be opened: the next poll tries again.
                with suppress(OSError):
                    pipe = os.open(call / "code", os.O_WRONLY | os.O_NONBLOCK)
                    os.write(pipe, f"{code % 256}\n".encode())
                    os.close(pipe)
                    self._answered.add(call)

    def stop(self) -> None:
        for process in self._calls.values():
            process.terminate()
        for process in self._calls.values():
            process.wait()
        for service in self.processes.values():
            service.kill()
            service.wait()

    def _here(self, text: str, state: Path) -> str:
        text = text.replace(STATE, str(state)).replace(SCRIPTS, str(state / "scripts"))
        return _PORT.sub(lambda port: self.ports.get(port[0], "0"), text)


def printed_by(process: Forked) -> str:
    files = (process._process.output, process._process.log)
    return "".join(path.read_text("utf-8") for path in files if path.exists())


def _own_port(service: dict[str, Any]) -> str:
    """Return the port that a service listens on, by the file; empty for none."""
    words = [*service["command"], ""]
    if "--port" in words:
        return str(words[words.index("--port") + 1])
    return str(service.get("environment", {}).get("METRICS_PORT", ""))


@contextmanager
def composed(folder: Path, forks: Forks) -> Iterator[Composed]:
    """Start all services of the compose file, each when those before it are as it needs them.

    Those with a health check are healthy when this returns.
    """
    for name in ("bin", "calls"):
        (folder / name).mkdir()
    (folder / "bin" / "cmfl").write_text(_SHIM)
    (folder / "bin" / "cmfl").chmod(0o755)
    services = compose()["services"]
    running = Composed(folder, forks)
    ended = threading.Event()

    def answer() -> None:
        while not ended.wait(_POLL_SECONDS):
            running.answer_calls()

    answering = threading.Thread(target=answer)
    answering.start()
    try:
        for name in in_order(services):
            for other, how in services[name].get("depends_on", {}).items():
                running.wait_for(other, services[other], how["condition"])
            running.start(name, services[name])
            if _own_port(services[name]):
                running.learn_port(name, services[name])
        for name, service in services.items():
            if "healthcheck" in service:
                running.wait_for(name, service, "service_healthy")
        yield running
    finally:
        ended.set()
        answering.join()
        running.stop()


def in_order(services: dict[str, Any]) -> list[str]:
    """Return the names of the services, each after those that it depends on."""
    order: list[str] = []
    while len(order) < len(services):
        ready = [
            name
            for name, service in services.items()
            if name not in order and set(service.get("depends_on", {})) <= set(order)
        ]
        assert ready, "services depend on one another in a circle"
        order += ready
    return order


def commands() -> Iterator[tuple[str, list[str]]]:
    """Yield every `cmfl` command of compose file and scripts, with the file or service."""
    for name, service in compose()["services"].items():
        text = shlex.join(service["command"]) if service["command"][0] == "cmfl" else ""
        yield from _commands_of(name, text or service["command"][-1])
    for script in FOLDER.glob("*.sh"):
        yield from _commands_of(script.name, script.read_text("utf-8"))


def _commands_of(name: str, text: str) -> Iterator[tuple[str, list[str]]]:
    joined = text.replace("\\\n", " ")
    for line in itertools.chain.from_iterable(map(str.splitlines, re.split("[;|]|\\$\\(", joined))):
        if (start := re.search(r"(?<![\w/.-])cmfl (?=[a-z])", line)) is not None:
            yield name, line[start.end() :].replace('"', "").split()
