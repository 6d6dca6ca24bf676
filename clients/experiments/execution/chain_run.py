"""A cell's run on its own chain, with its audit.

The chain id follows from the cell and the clock is fixed, so a repetition has the same blocks, head
and report. Chain and blobs are therefore removed; configuration and report are saved.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from clients.configuration.run_configuration import rule_sources
from clients.configuration.schema import Configuration
from clients.experiments.cells import Cell
from clients.experiments.definition import DATA
from clients.experiments.kinds import RUN, MethodRun, MethodTask, play_run
from clients.experiments.rows import ChainEvidence
from clients.runs.open_run import open_run
from ledger.audit.engine import AuditOptions, audit
from ledger.audit.report import AuditReport
from ledger.chain.contract.deployment import connect
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.genesis import fresh_chain_id
from ledger.io.home import DISK, Disk, Home
from ledger.storage.blobs import FolderBlobs

CONFIGURATION = "config.toml"
REPORT = "report.json"

_HOME = "home"


@dataclass(frozen=True, slots=True)
class ChainRun:
    """A cell's run that was played on a chain.

    Attributes:
        configuration: as it was played, as TOML that names no folder of this machine.
    """

    configuration: str
    played: MethodRun
    report: AuditReport
    evidence: ChainEvidence


class HastyDisk(Disk):
    """A disk without sync: a cell that a power cut ends is played again."""

    def sync_files(self, paths: Collection[Path]) -> None:
        """Return at once."""

    def sync_folder(self, folder: Path) -> None:
        """Return at once."""


def play_and_save(
    cell: Cell, task: MethodTask, folder: Path, data: Path | None
) -> tuple[MethodRun, ChainEvidence]:
    """Play a cell on a chain, audit it, save configuration and report, and remove chain and blobs.

    Args:
        data: the folder of the data; saved files do not name it.
    """
    own = folder / cell.name
    home = own / _HOME
    shutil.rmtree(home, ignore_errors=True)  # of a cell that was in flight when it was killed
    try:
        chain_run = play_on_chain(cell, task, home, folder.name, data)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    report = f"{json.dumps(chain_run.report.as_dict(), indent=1)}\n"
    DISK.write_whole(own / REPORT, report.encode())
    DISK.write_whole(own / CONFIGURATION, chain_run.configuration.encode())
    return chain_run.played, chain_run.evidence


def play_on_chain(
    cell: Cell, task: MethodTask, home: Path, experiment: str, data: Path | None
) -> ChainRun:
    """Play a cell on its own chain and audit it from chain and blobs alone.

    The chain has another id for each cell, and the same each time. The home of chain, blobs and run
    is made. `experiment` is the folder of the experiment's runs, `data` that of the data.
    """
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
        with open_run(
            home, RUN, configuration, chain, blobs, disk=disk, watched=task.stopwatch.watched
        ) as run:
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
