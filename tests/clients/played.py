"""Small runs played in this process, to their end or to a cut, with all that they left behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from clients.configuration.loading import load
from clients.configuration.schema import Configuration
from clients.runs.metrics import RoundMetrics
from clients.runs.open_run import OpenedRun, open_memory_run, open_run
from clients.runs.population import Population
from clients.runs.run_folder import manifest_of
from ledger.chain.contract.ledger import LedgerWriter
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.ports import ChainWriter, Receipt
from ledger.protocol.documents.record import (
    Incident,
    RoundRecord,
    ScoreVector,
    decode_incidents,
    decode_record,
    decode_vector,
)
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.inputs import Participants, participants_of
from ledger.protocol.ledger_state import (
    RoundAbandoned,
    RoundDecided,
    RoundStart,
    registry_with_bans,
)
from ledger.protocol.types import NO_DIGEST, ClientId, Digest, Domain
from ledger.storage.blobs import MemoryBlobs
from tests.audit.revm_history import RevmHistory

# Five members of twelve active clients: a quorum of three others leaves one member to spare.
FIVE_MEMBERS = (
    "protocol.clients=14",
    "protocol.active_rate=0.857143",
    "protocol.committee_rate=0.416667",
)

# What these runs show is the same on both paths, and lockstep is traced anew for each run.
PLAIN = "training.path=plain"


def configured(*settings: str) -> Configuration:
    return load("smoke", settings=(PLAIN, *settings))


def require_refused(home: Path, configuration: Configuration, sentence: str) -> None:
    """Look that no run of a configuration begins, and that the refusal says why."""
    with (
        pytest.raises(ConfigurationError, match=sentence),
        open_memory_run(home, "run", configuration),
    ):
        pass


class Cut(BaseException):
    """What ends a session at a transaction, as a killed process ends there."""


class _Cuts:
    """What cuts the writer of a chain off at one of its transactions.

    Attributes:
        left: transactions that still go through; None for all.
        after: cut right after the last of them, else right before the next.
    """

    left: int | None = None
    after = True

    def send(
        self, to: str | None, data: bytes, gas: int, *, key: bytes | None = None, value: int = 0
    ) -> Receipt:
        if self.left == 0:
            raise Cut
        by = {} if key is None else {"key": key}
        receipt: Receipt = super().send(to, data, gas, value=value, **by)  # type: ignore[misc]
        if self.left is not None:
            self.left -= 1
            if self.left == 0 and self.after:
                raise Cut
        return receipt


class CuttingChain(_Cuts, RevmHistory):
    """A chain in memory, where a block costs a tenth of one in a file."""


class CuttingFile(_Cuts, EmbeddedChain):
    """The chain that `cmfl run` writes."""


@dataclass
class Played:
    run: OpenedRun
    ledger: LedgerWriter
    population: Population
    blobs: MemoryBlobs
    rows: list[RoundMetrics]
    configuration: Configuration

    @property
    def domain(self) -> Domain:
        assert self.run.manifest is not None
        return self.run.manifest.domain()

    @property
    def head(self) -> Digest:
        return self.ledger.state().head

    def opening(self, number: int) -> RoundStart:
        opening = self.ledger.opening(number)
        assert opening is not None
        return opening

    def participants(self, number: int) -> Participants:
        opening = self.opening(number)
        registry = registry_with_bans(self.ledger.registry(), self.ledger.bans())
        parameters = self.configuration.parameters(self.population.model.dimension)
        return participants_of(parameters, registry, number, opening.seed, opening.committee)

    def decided(self, number: int) -> RoundDecided | None:
        events = [recorded.event for recorded in self.ledger.round_events(number)]
        return next((event for event in events if isinstance(event, RoundDecided)), None)

    def abandoned(self, number: int) -> RoundAbandoned | None:
        events = [recorded.event for recorded in self.ledger.round_events(number)]
        return next((event for event in events if isinstance(event, RoundAbandoned)), None)

    def commitments(self, number: int) -> dict[ClientId, Digest]:
        return {mined.client: mined.commitment for mined in self.ledger.commitments(number)}

    def incidents(self, number: int) -> tuple[Incident, ...]:
        event = self.decided(number)
        if event is None or event.incidents == NO_DIGEST:
            return ()
        return decode_incidents(self.blobs.get(event.incidents)).incidents

    def measured(self) -> list[dict[str, Any]]:
        """Return the rows on disk but for the heads, which are of one contract alone."""
        rows = [json.loads(line) for line in self.run.folder.metrics_lines()]
        return [{key: value for key, value in row.items() if key != "head"} for row in rows]

    def record(self, number: int) -> RoundRecord:
        event = self.decided(number)
        assert event is not None
        return decode_record(self.blobs.get(event.record))

    def records(self) -> list[RoundRecord]:
        last = self.configuration.protocol.rounds
        return [self.record(t) for t in range(1, last + 1) if self.decided(t) is not None]

    def vectors(self, number: int) -> list[ScoreVector]:
        return [
            decode_vector(self.blobs.get(signed.scores.digest))
            for signed in self.record(number).scores
        ]


@dataclass
class Player:
    home: Path
    chain: ChainWriter
    blobs: MemoryBlobs

    def play(self, *settings: str, name: str = "run") -> Played:
        configuration = configured(*settings)
        with open_run(self.home, name, configuration, self.chain, self.blobs) as run:
            rows = run.go_on(lambda _: None)
        return Played(run, self.ledger(name), run.population, self.blobs, rows, configuration)

    def cut(self, *settings: str, left: int, after: bool, name: str = "run") -> bool:
        assert isinstance(self.chain, _Cuts)
        self.chain.left, self.chain.after = left, after
        try:
            self.play(*settings, name=name)
        except Cut:
            return True
        finally:
            self.chain.left = None
        return False

    def ledger(self, name: str = "run") -> LedgerWriter:
        manifest = manifest_of(self.home, name)
        return LedgerWriter(self.chain, manifest.address, manifest.block)

    def metrics(self, name: str = "run") -> bytes:
        return (self.home / "runs" / name / "metrics.jsonl").read_bytes()


@contextmanager
def playing(folder: Path) -> Iterator[Player]:
    with CuttingChain() as chain:
        yield Player(folder, cast("ChainWriter", chain), MemoryBlobs())


@contextmanager
def playing_on_file(folder: Path) -> Iterator[Player]:
    # Nothing here loses what the system holds, so no block has to wait for the disk.
    with CuttingFile.create(folder / "chain.sqlite", synchronous="NORMAL") as chain:
        yield Player(folder, chain, MemoryBlobs())
