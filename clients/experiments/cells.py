"""A cell that is played, and a published one that is played again.

A cell of CMFL may run on its own chain, with its audit. The chain id follows from the cell and the
clock is fixed, so a repetition has the same blocks, head and report. A repeated run must reproduce
every value of the row except seconds, and the published configuration and report.
"""

from __future__ import annotations

import json
import shutil
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from clients.configuration.parsing import rule_sources
from clients.configuration.schema import Configuration
from clients.experiments import rows
from clients.experiments.definition import DATA
from clients.experiments.kinds import RUN, MethodRun, MethodTask, Stopwatch, kind_named, play_run
from clients.experiments.plan import Cell, Job
from clients.experiments.rows import CellRow, CellSeconds, ChainEvidence, TrialRow, round_values
from clients.runs.open_run import open_run
from ledger.audit.engine import AuditOptions, audit
from ledger.audit.report import AuditOutcome, AuditReport
from ledger.chain.contract.deploy import connect
from ledger.chain.embedded.chain_store import fresh_chain_id
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.distances import machine_code
from ledger.io.home import DISK, Disk, Home
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import PROTOCOL_VERSION, ClientId
from ledger.storage.blobs import FolderBlobs

CONFIGURATION = "config.toml"
REPORT = "report.json"
MAX_SAVED_BYTES = 1 << 24  # of a published report or configuration; they take some ten kilobytes


@dataclass(frozen=True, slots=True)
class ChainRun:
    """A cell's run that was played on a chain, with its configuration as portable TOML."""

    configuration: str
    played: MethodRun
    report: AuditReport
    evidence: ChainEvidence


class HastyDisk(Disk):
    """A disk without sync: after a power cut the cell is played again."""

    def sync_files(self, paths: Collection[Path]) -> None:
        pass

    def sync_folder(self, folder: Path) -> None:
        pass


def play_cell(job: Job, folder: Path, data: Path | None, on_round: Callable[[], None]) -> CellRow:
    """Play a cell; audit a run on a chain, and save its configuration and report in `folder`."""
    cell = job.cell.at_rate(job.factor)
    task = task_of(cell, on_round)
    if not cell.is_recorded:
        return row_of(cell, kind_named(cell.method.kind).play(task), _seconds(cell, task), None)
    own = folder / cell.name
    home = own / "home"
    shutil.rmtree(home, ignore_errors=True)  # of a cell that was in flight when it was killed
    try:
        run = play_on_chain(cell, task, home, folder.name, data)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    report = f"{json.dumps(run.report.as_dict(), indent=1)}\n"
    DISK.write_whole(own / REPORT, report.encode())
    DISK.write_whole(own / CONFIGURATION, run.configuration.encode())
    return row_of(cell, run.played, _seconds(cell, task), run.evidence)


def play_on_chain(
    cell: Cell, task: MethodTask, home: Path, experiment: str, data: Path | None
) -> ChainRun:
    """Play a cell on its own chain in a new home, and audit it from chain and blobs alone."""
    configuration = on_chain(task.configuration)
    paths, disk = Home(home), HastyDisk()
    blobs = FolderBlobs(paths.blobs, disk=disk)
    chain_id = fresh_chain_id(int(cell.digest.removeprefix("0x"), 16))
    home.mkdir(parents=True, exist_ok=True)
    with (
        paths.writing(),
        EmbeddedChain.create(
            paths.chain, chain_id=chain_id, clock=lambda: 0.0, synchronous="NORMAL"
        ) as chain,
    ):
        watched = task.stopwatch.watched
        with open_run(home, RUN, configuration, chain, blobs, disk=disk, watched=watched) as run:
            played = play_run(run, task)
            assert run.manifest is not None, "a run on a chain has a manifest"
            manifest, played_with = run.manifest, run.configuration
        options = AuditOptions(rules=rule_sources(configuration))
        report = audit(connect(chain, manifest), blobs, options)
    evidence = ChainEvidence(
        chain_id=chain_id,
        address=manifest.address,
        head=str(played.head),
        verdict=report.outcome,
        report=f"{experiment}/{cell.name}/{REPORT}",
        configuration=f"{experiment}/{cell.name}/{CONFIGURATION}",
    )
    return ChainRun(portable(played_with, data), played, report, evidence)


def on_chain(configuration: Configuration) -> Configuration:
    """Return a configuration for a chain in place of the memory ledger."""
    machine = configuration.machine.model_copy(update={"ledger": "chain"})
    return configuration.model_copy(update={"machine": machine})


def portable(configuration: Configuration, data: Path | None) -> str:
    """Return a configuration as TOML that names no folder of this machine."""
    text = configuration.to_toml()
    return text if data is None else text.replace(f'"{data}/', f'"{DATA}/')


def play_trial(trial: Job, on_round: Callable[[], None]) -> TrialRow:
    """Play a trial for the choice of a learning rate."""
    cell = trial.cell.at_rate(trial.factor)
    task = task_of(cell, on_round)
    played = kind_named(cell.method.kind).play(task)
    final = rows.final_of([round_.quality.accuracy for round_ in played.rounds])
    if final is None:
        raise ConfigurationError(f"{trial.name}: there is no accuracy for choosing a learning rate")
    return TrialRow(
        **_place(cell),
        cell=trial.name,
        digest=trial.digest,
        factor=trial.factor,
        final=final,
        seconds=_seconds(cell, task),
    )


def row_of(
    cell: Cell, played: MethodRun, seconds: CellSeconds, evidence: ChainEvidence | None
) -> CellRow:
    """Return the row of a played cell, with the evidence of a run on a chain."""
    rounds, malicious = played.rounds, played.malicious
    quality = [round_.quality for round_ in rounds]
    accuracy = round_values(of.accuracy for of in quality)
    aggregated = [round_.aggregated for round_ in rounds]
    served = [round_.served for round_ in rounds if round_.served is not None]
    last = quality[-1].client_accuracy if quality else None
    times = played.times_aggregated
    if times is None:
        counted = Counter(int(client) for group in aggregated for client in group)
        times = tuple(counted[client] for client in range(len(played.samples)))
    honest = [set(round_.trained) - malicious for round_ in rounds]
    accepted = [own.intersection(group) for own, group in zip(honest, aggregated, strict=True)]
    hostile = _counts(aggregated, malicious)
    sizes, malice = cell.configuration.parameters(dimension=1), cell.configuration.malice
    attack = malice.attack if malice.on is None else f"{malice.attack} on {malice.on}"
    return CellRow(
        **_place(cell),
        cell=cell.name,
        digest=cell.digest,
        number=cell.number,
        kind=cell.method.kind,
        rounds=cell.configuration.protocol.rounds,
        accuracy=accuracy,
        loss=round_values(of.loss for of in quality),
        training_loss=round_values(of.training_loss for of in quality),
        backdoor_success=round_values(of.backdoor_success for of in quality),
        floor=rows.rounded(played.floor),
        final=rows.final_of(accuracy),
        malicious_accepted=_share(sum(hostile), aggregated),
        malicious_trained=_counts([round_.trained for round_ in rounds], malicious),
        malicious_members=_counts(served, malicious) if served else None,
        malicious_aggregated=hostile,
        accepted_honest=_share(sum(map(len, accepted)), honest),
        times_aggregated=times,
        samples=played.samples,
        malicious=tuple(sorted(int(client) for client in malicious)),
        attack=attack if malicious else None,
        client_accuracy=None if last is None else round_values(last),
        seconds=seconds,
        bytes=played.bytes,
        ledger=evidence,
        extra={"committee": sizes.members, "trainers": sizes.trainers, **played.extra},
    )


def _place(cell: Cell) -> dict[str, Any]:
    return {
        "experiment": cell.experiment,
        "method": cell.method.name,
        "condition": cell.condition,
        "axes": cell.axes,
        "seed": cell.seed,
        "learning_rate": cell.configuration.training.learning_rate,
        "protocol": PROTOCOL_VERSION,
    }


def task_of(cell: Cell, on_round: Callable[[], None]) -> MethodTask:
    """Return the task of a cell, its stopwatch running."""
    # Compile now, so that the seconds of the first cell of a process do not include it.
    machine_code()
    stopwatch = Stopwatch()

    def ended() -> None:
        stopwatch.lap()
        on_round()

    return MethodTask(cell.configuration, cell.method, cell.counts_bytes, stopwatch, ended)


def _seconds(cell: Cell, task: MethodTask) -> CellSeconds:
    return task.stopwatch.seconds(is_committee=cell.method.kind == "cmfl")


def _counts(
    groups: Sequence[Collection[ClientId]], malicious: frozenset[ClientId]
) -> tuple[int, ...]:
    return tuple(len(malicious.intersection(group)) for group in groups)


def _share(part: int, groups: Sequence[Collection[ClientId]]) -> float | None:
    whole = sum(map(len, groups))
    return rows.rounded(part / whole) if whole else None


@dataclass(frozen=True, slots=True)
class RepeatedCell:
    """A cell that was played again, on a fresh chain."""

    row: CellRow
    again: CellRow
    report: AuditReport
    file_differences: tuple[str, ...] = ()

    @property
    def differing(self) -> tuple[str, ...]:
        """Values of the row that were not reproduced, each as `what: then, and now`."""
        then, now = self.row.ledger, self.again.ledger
        assert then is not None, "only what was on a chain is repeated"
        assert now is not None, "it was repeated on a chain"
        # As JSON, which does not distinguish lists and tuples.
        before, after = (json.loads(rows.encode_row(row)) for row in (self.row, self.again))
        evidence = {"head": "head", "contract": "address", "chain": "chain_id"}
        evidence |= {name: name for name in ("verdict", "report", "configuration")}
        found = _differing(
            {shown: getattr(then, name) for shown, name in evidence.items()},
            {shown: getattr(now, name) for shown, name in evidence.items()},
            evidence,
        )
        found += _differing(before, after, sorted(before.keys() - {"seconds", "ledger"}))
        return (*found, *self.file_differences)

    @property
    def outcome(self) -> AuditOutcome:
        return AuditOutcome.FAILED if self.differing else self.report.outcome


def saved_file_differences(
    out: Path, evidence: ChainEvidence, configuration: str, report: AuditReport
) -> list[str]:
    """Return the differences of a row's published files from the repeated run, as sentences.

    The section `machine` may differ, which changes no result. A missing or unreadable file is a
    difference.
    """
    differences: list[str] = []
    file = evidence.configuration
    saved = _parsed(out, file, tomllib.loads, differences)
    if saved is not None:
        now = tomllib.loads(configuration)
        sections = sorted((saved.keys() | now) - {"machine"})
        differences += _differing(saved, now, sections, f"{file}: ")
    file = evidence.report
    saved = _parsed(out, file, json.loads, differences)
    if saved is not None:
        now = json.loads(json.dumps(report.as_dict()))
        differences += _differing(saved, now, ("findings", "outcome", "rounds"), f"{file}: ")
        before, after = (
            facts if isinstance(facts := document.get("deployment"), dict) else {}
            for document in (saved, now)
        )
        names = sorted(before.keys() | after)
        differences += _differing(before, after, names, f"{file}: deployment: ")
    return differences


def _parsed(
    out: Path, name: str, parse: Callable[[str], Any], differences: list[str]
) -> dict[str, Any] | None:
    """Return the document of a file, or append to `differences` why there is none."""
    file_name = PurePosixPath(name).name
    try:
        data = rows.read_stored(out, name, MAX_SAVED_BYTES)
        value = parse(data.decode()) if len(data) <= MAX_SAVED_BYTES else None
    except (OSError, ValueError, RecursionError) as error:
        differences.append(f"{file_name} of the row cannot be read: {type(error).__name__}")
        return None
    if not isinstance(value, dict):
        differences.append(
            f"{file_name} of the row is not a document of at most {MAX_SAVED_BYTES} bytes"
        )
        return None
    return value


def _differing(
    saved: dict[str, Any], now: dict[str, Any], names: Iterable[str], where: str = ""
) -> list[str]:
    return [
        f"{where}{name}: {str(saved.get(name))[:80]}, and now {str(now.get(name))[:80]}"
        for name in names
        if saved.get(name) != now.get(name)
    ]
