"""The real command line in this process, and a small home that real rounds have filled."""

from __future__ import annotations

import io
import json
import math
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
import typer

from cmfl.auditing import AuditRequest, audit_target
from cmfl.commands import application, console
from cmfl.where import Target
from ledger.audit.report import AuditReport
from ledger.chain.embedded.reader import EmbeddedReader
from ledger.chain.rpc.server import RpcServer
from ledger.io.retry import Backoff
from ledger.protocol.types import DropoutReason, RefusalReason
from tests.seeds import course_of, first_that_shows

if TYPE_CHECKING:
    import httpx
    from _pytest.mark import MarkDecorator

SHARED: MarkDecorator = pytest.mark.xdist_group("processes")
"""One process plays the shared home; the others need not play it again."""

# Every fault may come to bear: a ban, refused scores, dropouts, and rounds that are abandoned.
SETTINGS = (
    "protocol.clients=14",
    "protocol.active_rate=0.857143",
    "protocol.committee_rate=0.416667",
    "protocol.commit_blocks=1",
    "protocol.deadline_blocks=3",
    "malice.members.silent=2",
    "malice.members.equivocating=2",
    "malice.members.false-scores=1",
    "malice.trainers.not-finite=1",
)
ROUNDS = 5


KNOWN_AUDIT = pytest.mark.usefixtures("known_audit")
"""The command takes an audit of the shared home that was made once."""


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as JSON; NaN and Infinity, which are none, are refused."""
        return json.loads(self.out, parse_constant=_refuse)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


@pytest.fixture(scope="package", autouse=True)
def _files_are_their_owners_alone() -> Iterator[None]:
    """Write keystores and passwords as commands want them."""
    before = os.umask(0o077)
    yield
    os.umask(before)


def cmfl(*arguments: object, patient: bool = True) -> Result:
    """Return what the command `cmfl` does with these arguments, in this process.

    A patient caller wants no lines of progress, however slow the machine is.
    """
    out, err = io.StringIO(), io.StringIO()
    soonest = math.inf if patient else console.SOONEST
    with (
        patch.object(console, "SOONEST", soonest),
        patch.object(sys, "argv", ["cmfl", *map(str, arguments)]),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        code = application.main()
    return Result(code, out.getvalue(), err.getvalue())


def succeeds(*arguments: object) -> Result:
    """Return the result of a command that has to end well and quietly."""
    result = cmfl(*arguments)
    assert (result.code, result.err) == (0, ""), result
    return result


def refusal(*arguments: object) -> str:
    """Return the one line with which a command is refused, with exit code 2 and nothing else."""
    result = cmfl(*arguments)
    assert result.code == 2, result
    assert result.out == ""
    assert result.err.startswith("cmfl: ")
    assert result.err.endswith("\n")
    assert result.err.count("\n") == 1
    assert "Traceback" not in result.err
    return result.err.removeprefix("cmfl: ").strip()


@dataclass(frozen=True)
class Command:
    """A command or a group: its words, and the names of its options."""

    words: tuple[str, ...]
    options: frozenset[str]
    is_group: bool


def every_command() -> dict[str, Command]:
    """Return every command and every group, by its name; the program's own is empty."""
    found: dict[str, Command] = {}
    waiting: list[tuple[tuple[str, ...], Any]] = [
        ((), typer.main.get_command(application.application()))
    ]
    while waiting:
        words, command = waiting.pop()
        below = getattr(command, "commands", {})
        waiting += [((*words, name), one) for name, one in below.items()]
        options = frozenset(option for each in command.params for option in each.opts)
        found[" ".join(words)] = Command(words, options, bool(below))
    return found


def decided_rounds(home: Path) -> list[dict[str, Any]]:
    decided = ("--status", "decided", "--oldest")
    return list(succeeds("rounds", "list", "--home", home, *decided, "--json").json["rounds"])


def first_decided(home: Path) -> int:
    return int(decided_rounds(home)[0]["round"])


def seed_of(home: Path) -> int:
    return int(succeeds("runs", "show", "run", "--home", home, "--json").json["settings"]["seed"])


@cache
def audited(home: Path) -> AuditReport:
    target = Target(home)
    return audit_target(target, AuditRequest(jobs=1), lambda *_: None)


def settings_of(*settings: str) -> list[str]:
    return [part for setting in settings for part in ("--set", setting)]


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a home with one finished run, in which every fault came to bear.

    At least two of its rounds were decided, and one abandoned. Nobody writes to it.
    """
    folder = tmp_path_factory.mktemp("cli")

    def play(seed: int) -> Path:
        path, settings = folder / str(seed) / "home", settings_of(f"seed={seed}", *SETTINGS)
        succeeds("run", "--preset", "smoke", "--home", path, *settings, "--json")
        return path

    return first_that_shows(_every_fault, play, first=5)


def _every_fault(home: Path) -> bool:
    course = course_of(home, "run")
    return (
        course.is_mixed
        and sum(course.decided) > 1
        and DropoutReason.PAYLOAD_MALFORMED in course.dropouts
        and course.refused == {RefusalReason.FALSE_DISTANCE}
    )


@pytest.fixture(scope="session")
def service(home: Path) -> Iterator[httpx.Client]:
    from api.settings import Settings
    from tests.api.conftest import serving

    with serving(Settings(home=home)) as http:
        yield http


@pytest.fixture(scope="session")
def node(home: Path, service: httpx.Client) -> Iterator[tuple[object, ...]]:
    """Yield the options that name a node with the home's chain, and the contract there."""
    from tests.api.conftest import deployments

    with EmbeddedReader.open(home / "chain.sqlite") as chain, RpcServer(chain) as server:
        address = deployments(service)[0]["address"]
        yield "--rpc-url", server.url, "--chain-id", chain.chain_id, "--address", address


@pytest.fixture(scope="session")
def report(home: Path) -> dict[str, Any]:
    found: dict[str, Any] = succeeds("audit", "--home", home, "--jobs", 1, "--json").json
    return found


@pytest.fixture(scope="session")
def head(report: dict[str, Any]) -> str:
    """Return the head that the audit of the shared home tells to keep."""
    return str(report["deployment"]["final_head"])


@pytest.fixture
def known_audit(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give commands the audit of the shared home, where something else is at issue."""
    report = audited(home)
    monkeypatch.setattr("cmfl.commands.audit.audited_with_progress", lambda *_: report)


@pytest.fixture
def brief_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let whatever is tried again be tried soon, and as often as ever."""
    monkeypatch.setattr(Backoff, "pause", lambda *_: 0.01)


@pytest.fixture
def copy(home: Path, tmp_path: Path) -> Path:
    path = tmp_path / "home"
    shutil.copytree(home, path)
    return path
