"""A cell's run on its own chain, with its audit.

The chain id follows from the cell and the clock is fixed, so a repetition has the same blocks, head
and report. Chain and blobs are therefore removed; configuration and report are saved.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clients.configuration.run_configuration import rule_sources
from clients.experiments.definition import DATA
from clients.experiments.kinds import RUN, play_run
from clients.experiments.rows import ChainEvidence
from clients.runs.open_run import open_run
from ledger.audit.engine import AuditOptions, audit
from ledger.chain.contract.deployment import connect
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.genesis import fresh_chain_id
from ledger.io.home import DISK, Disk, Home
from ledger.storage.blobs import FolderBlobs

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from clients.configuration.schema import Configuration
    from clients.experiments.cells import Cell
    from clients.experiments.kinds import MethodRun, MethodTask
    from ledger.audit.report import AuditReport

CONFIGURATION = "config.toml"
REPORT = "report.json"

_HOME = "home"


@dataclass(frozen=True, slots=True)
class ChainRun:
    """A cell's run that was played on a chain.

    Attributes:
        configuration: as it was played.
        played: its run.
        address: of the contract.
        report: of its audit.
    """

    configuration: Configuration
    played: MethodRun
    address: str
    report: AuditReport


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
        cell: which.
        task: how it is played.
        folder: in which it has a folder of its name.
        data: the folder of the data; saved files do not name it.

    Returns:
        Its result, and where it was recorded.

    Raises:
        CmflError: it cannot be played.
        OSError: the folder cannot be written.
    """
    own = folder / cell.name
    home = own / _HOME
    shutil.rmtree(home, ignore_errors=True)  # of a cell that was in flight when it was killed
    try:
        chain_run = play_on_chain(cell, task, home)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    report = f"{json.dumps(chain_run.report.as_dict(), indent=1)}\n"
    DISK.write_whole(own / REPORT, report.encode())
    DISK.write_whole(own / CONFIGURATION, portable(chain_run.configuration, data).encode())
    return chain_run.played, evidence_of(cell, chain_run, folder)


def play_on_chain(cell: Cell, task: MethodTask, home: Path) -> ChainRun:
    """Play a cell on its own chain and audit it from chain and blobs alone.

    Args:
        cell: which.
        task: how it is played.
        home: of chain, blobs and the run; it is made.

    Raises:
        CmflError: it cannot be played, or there is a chain already.
        OSError: the home cannot be written.
    """
    configuration = on_chain(task.configuration)
    paths, disk = Home(home), HastyDisk()
    blobs = FolderBlobs(paths.blobs, disk=disk)
    home.mkdir(parents=True, exist_ok=True)
    with (
        paths.writing(),
        EmbeddedChain.create(
            paths.chain, chain_id=chain_id_of(cell), clock=lambda: 0.0, synchronous="NORMAL"
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
    return ChainRun(played_with, played, manifest.address, report)


def on_chain(configuration: Configuration) -> Configuration:
    """Return a configuration for a chain in place of the memory ledger."""
    machine = configuration.machine.model_copy(update={"ledger": "chain"})
    return configuration.model_copy(update={"machine": machine})


def evidence_of(cell: Cell, found: ChainRun, folder: Path) -> ChainEvidence:
    """Return what a row says of a run that was played on a chain.

    Args:
        cell: whose run.
        found: its run.
        folder: of the experiment's runs.
    """
    return ChainEvidence(
        chain_id=chain_id_of(cell),
        address=found.address,
        head=str(found.played.head),
        verdict=found.report.outcome,
        report=f"{folder.name}/{cell.name}/{REPORT}",
        configuration=f"{folder.name}/{cell.name}/{CONFIGURATION}",
    )


def chain_id_of(cell: Cell) -> int:
    """Return the id of the chain of a cell's run: another for each cell, the same each time."""
    digest = int(cell.digest.removeprefix("0x"), 16)
    return fresh_chain_id(digest)


def portable(configuration: Configuration, data: Path | None) -> str:
    """Return a configuration as TOML that names no folder of this machine."""
    text = configuration.to_toml()
    return text if data is None else text.replace(f'"{data}/', f'"{DATA}/')
