"""Real `cmfl` processes: started, watched through the files of their home, and killed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ledger.chain.contract.deploy import connect
from ledger.chain.contract.ledger import CommitteeLedger, read_manifest
from ledger.chain.embedded.reader import EmbeddedReader
from ledger.protocol.ledger_state import RoundAbandoned, RoundDecided
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from tests.processes import Forked, Forks

_POLL_SECONDS = 0.002


@dataclass(frozen=True)
class Home:
    path: Path
    settings: tuple[str, ...]

    @property
    def chain(self) -> Path:
        return self.path / "chain.sqlite"

    @property
    def configuration(self) -> Path:
        return self.path / "runs" / "run" / "config.toml"

    @property
    def manifest(self) -> Path:
        return self.path / "runs" / "run" / "deployment.json"

    @property
    def metrics(self) -> Path:
        return self.path / "runs" / "run" / "metrics.jsonl"

    @property
    def journal(self) -> Path:
        return self.path / "runs" / "run" / "votes.sqlite"

    def rows(self) -> int:
        return self.metrics.read_bytes().count(b"\n") if self.metrics.exists() else 0

    def arguments(self) -> list[str]:
        """Return the command that begins the run, or takes it up where it stands."""
        common = ["run", "--home", str(self.path), "--json"]
        if self.configuration.exists():
            return [*common, "--resume"]
        settings = [part for setting in self.settings for part in ("--set", setting)]
        return [*common, "--preset", "smoke", *settings]

    def start(self, forks: Forks) -> Forked:
        return forks.start(*self.arguments())

    def ended_rounds(self) -> list[tuple[int, str]]:
        """Return round and head of each round that the chain records, oldest first."""
        if not self.manifest.exists():
            return []
        with EmbeddedReader.open(self.chain) as chain:
            ledger = connect(chain, read_manifest(self.manifest))
            return [(event.round, event.head.hex()) for event in _ended(ledger)]


def _ended(ledger: CommitteeLedger) -> Iterator[RoundDecided | RoundAbandoned]:
    for recorded in ledger.outcomes(10_000, descending=False):
        if isinstance(recorded.event, RoundDecided | RoundAbandoned):
            yield recorded.event


def finish(process: Forked) -> dict[str, Any]:
    with process:
        out, err = process.communicate()
    assert process.returncode == 0, err
    answer: dict[str, Any] = json.loads(out)
    return answer


def kill_when(process: Forked, moment: Callable[[], bool], delay_seconds: float) -> bool:
    """Kill a process some time after a moment; say whether it was still alive then."""
    with process:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while process.poll() is None and not moment():
            assert time.monotonic() < deadline, "the moment to kill at does not come"
            time.sleep(_POLL_SECONDS)
        time.sleep(delay_seconds)
        alive = process.poll() is None
        process.kill()
        _, err = process.communicate()
    assert alive or process.returncode == 0, err
    return alive
