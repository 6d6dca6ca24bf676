"""Effects of faulty members: on the contract, the audit and the model, for each fault.

`python -m benchmarks.committee_faults` writes the table of `docs/reference/faults.md`. All runs are
of `smoke` with 14 clients and a committee of five, for one round of strategy I. Two of the seven
trainers send the opposite of their update. The primary of the first view has the fault, then
members by their places. The effect is the difference from the run without faults.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import keep_table
from clients.adversaries.faults import MemberFault
from clients.configuration.loading import load
from clients.experiments.report import markdown
from clients.runs.metrics import RoundMetrics
from clients.runs.open_run import open_measure, prepared
from clients.runs.population import Population
from clients.simulation import SimulatedActors, Simulation
from ledger.actors.journal import MemoryJournal
from ledger.actors.steps import ActorContext
from ledger.audit.engine import audit
from ledger.audit.report import AuditReport, StepOutcome
from ledger.chain.contract.ledger import LedgerWriter
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.protocol.documents.record import decode_record
from ledger.protocol.inputs import participants_of, primary_seat
from ledger.protocol.ledger_state import RoundDecided
from ledger.protocol.types import ClientId, Phase
from ledger.storage.blobs import MemoryBlobs
from ledger.storage.mailbox import MemoryMailbox

SETTINGS = (
    *("protocol.clients=14", "protocol.active_rate=0.857143", "protocol.committee_rate=0.416667"),
    *("protocol.rounds=1", "protocol.deadline_blocks=6"),
)
MAJORITY = 3  # seats, most of the five
IN_SCORES = (
    MemberFault.FALSE_SCORES,
    MemberFault.FAVOURING,
    MemberFault.COLLUDING,
    MemberFault.COPYING,
    MemberFault.FALSE_REFERENCE,
)
"""Faults of scores: with them it matters how many there are."""
COLUMNS = (
    *("fault", "seats", "scores", "round", "banned", "audit", "names"),
    *("attackers accepted", "model off"),
)


class Misdeed(NamedTuple):
    """A fault of some seats in a committee of five, beside another fault of one seat or none."""

    fault: MemberFault | None = None
    seats: int = 0
    beside: MemberFault | None = None

    @property
    def name(self) -> str:
        beside = "" if self.beside is None else f", beside {self.beside}"
        return f"{self.fault or 'none'}{beside}"


# A member that drops refused scores from the record needs another that has false scores.
_BESIDE = {MemberFault.WHITEWASHING: MemberFault.FALSE_SCORES}
MISDEEDS = (
    Misdeed(),
    *(Misdeed(fault, 1, _BESIDE.get(fault)) for fault in MemberFault),
    *(Misdeed(fault, MAJORITY) for fault in IN_SCORES),
)


@dataclass(frozen=True, slots=True, eq=False)
class FaultOutcome:
    """Result of a run, with the model before the round and after it, each of shape (d,)."""

    row: RoundMetrics
    counted: int
    refused: int
    banned: frozenset[ClientId]
    report: AuditReport
    first: NDArray[np.float32]
    model: NDArray[np.float32]
    faulty: frozenset[ClientId]

    def distance(self, honest: FaultOutcome) -> float:
        """Return the distance of the model from the honest run's, as a share of its path."""
        way = np.linalg.norm(honest.model.astype(np.float64) - honest.first)
        return float(np.linalg.norm(self.model.astype(np.float64) - honest.model) / way)

    def named(self) -> frozenset[ClientId]:
        """Return the faulty members that the audit names: at fault, or in a contradiction."""
        findings = {c for finding in self.report.findings for c in finding.clients}
        # The first client of a contradiction is whom it is about, the next one whom that wronged.
        contradictions = (step.contradiction for step in self.report.steps)
        accused = {one.clients[0] for one in contradictions if one and one.clients}
        return self.faulty & (findings | accused)

    def kinds(self) -> list[str]:
        """Return by what the audit names faulty members."""
        findings = self.report.findings
        kinds = {str(f.kind) for f in findings if self.faulty.intersection(f.clients)}
        failed = (s for s in self.report.steps if s.outcome is StepOutcome.FAILED)
        return sorted(kinds) + [f"step {step.number}" for step in failed]


class Trials:
    """Runs with other members, on one chain."""

    def __init__(self, chain: EmbeddedChain, folder: Path) -> None:
        self._chain, self._folder = chain, folder
        self.outcome = cache(self._play)  # each run is played once

    def _play(self, misdeed: Misdeed) -> FaultOutcome:
        """Return the result of a run with faulty members in the first committee."""
        name = f"{misdeed.fault or 'none'}-{misdeed.seats}"
        asked, blobs = load("smoke", settings=SETTINGS), MemoryBlobs()
        with prepared(self._folder, name, asked, self._chain, blobs) as deployed:
            configuration, population, manifest = deployed
        ledger = LedgerWriter(self._chain, manifest.address, manifest.block)
        context = ActorContext(
            parameters=configuration.parameters(population.model.dimension),
            domain=manifest.domain(),
            ledger=ledger,
            blobs=blobs,
            mailbox=MemoryMailbox(),
            journal=MemoryJournal(),
        )
        population = _with_faults(population, context, misdeed)
        rows: list[RoundMetrics] = []
        with open_measure(configuration, population, context.parameters.active) as measure:
            simulation = Simulation(context, SimulatedActors(population, measure.gauge.engine))
            simulation.run(measure, rows.append, lambda: False)
            model = np.array(simulation.model)
        events = [recorded.event for recorded in ledger.round_events(1)]
        decided = [event for event in events if isinstance(event, RoundDecided)]
        records = [decode_record(blobs.get(event.record)) for event in decided]
        return FaultOutcome(
            row=rows[0],
            counted=sum(len(record.scores) for record in records),
            refused=sum(len(record.refused) for record in records),
            banned=frozenset(ban.client for ban in ledger.bans()),
            report=audit(ledger, blobs),
            model=model,
            first=population.initial,
            faulty=frozenset(population.member_faults),
        )


def _with_faults(population: Population, context: ActorContext, misdeed: Misdeed) -> Population:
    """Return a population of which two trainers attack and some members have a fault."""
    opening, registry = context.ledger.opening(1), context.ledger.registry()
    assert opening is not None, "a deployed run has its first round open"
    first = participants_of(context.parameters, registry, 1, opening.seed, opening.committee)
    place = primary_seat(opening.seed, Phase.AGGREGATION, 0, len(first.committee))
    seats = (*first.committee[place:], *first.committee[:place])
    faults = [] if misdeed.fault is None else [misdeed.fault] * misdeed.seats
    faults += [] if misdeed.beside is None else [misdeed.beside]
    return replace(
        population,
        malicious=frozenset(first.trainers[:2]),
        attack="back-gradient",
        member_faults=dict(zip(seats, faults, strict=False)),
    )


def table(trials: Trials, misdeeds: Iterable[Misdeed] = MISDEEDS) -> Iterator[str]:
    """Yield the lines of the table in Markdown, each once it is played."""
    yield from markdown(COLUMNS, [])
    honest = trials.outcome(Misdeed())
    for misdeed in misdeeds:
        cells = _cells(trials.outcome(misdeed), honest)
        yield markdown((misdeed.name, f"{misdeed.seats} of 5", *cells), [])[0]


def main() -> None:
    """Print the whole table, and write it into docs/measured."""
    lines = []
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedChain.create(Path(folder) / "chain.sqlite") as chain,
    ):
        for line in table(Trials(chain, Path(folder))):
            print(line, flush=True)
            lines.append(line)
    keep_table("committee_faults", lines)


def _cells(outcome: FaultOutcome, honest: FaultOutcome) -> list[str]:
    row, kinds = outcome.row, outcome.kinds()
    decided = "decided" if row.views == (0, 0) else "decided in a later view"
    return [
        f"{outcome.counted} counted, {outcome.refused} refused" if row.decided else "no record",
        decided if row.decided else "abandoned",
        str(len(outcome.banned)),
        str(outcome.report.outcome),
        f"{len(outcome.named())}: {', '.join(kinds)}" if kinds else "nobody",
        f"{row.malicious_accepted} of {len(row.accepted)}",
        f"{outcome.distance(honest):.1f}",
    ]


if __name__ == "__main__":
    main()
