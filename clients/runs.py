"""Starting and resuming runs in a home: chain, blobs and `runs/<name>/`."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from clients.configuration import load
from clients.devices import device_named
from clients.metrics import Measure, RoundMetrics
from clients.models.evaluation import majority_rate
from clients.population import Population, populate, run_document
from clients.run_home import run_folder
from clients.simulation import Cast, Simulation
from clients.training import TrainingEngine
from ledger.actors.journal import FileJournal
from ledger.actors.mailbox import MemoryMailbox
from ledger.actors.surroundings import Surroundings
from ledger.chain.contract.committee_ledger import LedgerWriter
from ledger.chain.contract.deployment import deploy
from ledger.chain.contract.manifest import read_manifest
from ledger.protocol.documents.run import encode_run
from ledger.protocol.encoding import vector_bytes, vector_from_bytes
from ledger.protocol.errors import ChainError, ConfigurationError
from ledger.protocol.ledger_state import RoundAbandoned, RoundDecided, Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from clients.configuration import Configuration
    from clients.run_home import RunFolder
    from ledger.blobs.store import BlobStore
    from ledger.chain.contract.committee_ledger import CommitteeLedger
    from ledger.chain.contract.manifest import Manifest
    from ledger.chain.ports import ChainWriter


@dataclass(frozen=True, slots=True)
class Run:
    """A run that is deployed and can go on.

    Attributes:
        configuration: what was asked for.
        folder: its files.
        manifest: what was deployed where.
        ledger: the contract.
        population: the clients.
        measure: makes a round's row.
        simulation: all its actors.
    """

    configuration: Configuration
    folder: RunFolder
    manifest: Manifest
    ledger: LedgerWriter
    population: Population
    measure: Measure
    simulation: Simulation

    def go_on(self, on_round: Callable[[RoundMetrics], None]) -> list[RoundMetrics]:
        """Run every round that is left; each row is on disk when `on_round` gets it.

        Args:
            on_round: called after each round.

        Returns:
            The rows of this call's rounds.
        """
        rows: list[RoundMetrics] = []

        def write(row: RoundMetrics) -> None:
            self.folder.append_metrics(row)
            rows.append(row)
            on_round(row)

        self.simulation.run(self.measure, write)
        self.folder.write_model(np.asarray(self.simulation.model))
        return rows


def prepare(
    home: Path, name: str, configuration: Configuration, chain: ChainWriter, blobs: BlobStore
) -> tuple[Population, Manifest]:
    """Publish a run's configuration and first model, and deploy its contract.

    Args:
        home: of the runs.
        name: of the run.
        configuration: of the run.
        chain: where the contract goes.
        blobs: where configuration and model go.

    Returns:
        The clients, and what was deployed where.
    """
    folder = run_folder(home, name)
    population = populate(configuration)
    document = run_document(configuration, population)
    blobs.put(encode_run(document))
    blobs.put(vector_bytes(population.initial))
    deployed = folder.paths.manifest.exists()
    if not deployed:
        # Before the contract, so that a run killed while it deploys can be resumed.
        folder.write_configuration(configuration.to_toml())
    manifest = deploy(chain, document, folder.paths.manifest)
    if deployed:
        # Not before `deploy` has found it to be the deployed one, or another takes its place.
        folder.write_configuration(configuration.to_toml())
    return population, manifest


@contextmanager
def opened(
    home: Path, name: str, configuration: Configuration, chain: ChainWriter, blobs: BlobStore
) -> Iterator[Run]:
    """Deploy a run, or take it up where it stands.

    Args:
        home: of the runs.
        name: of the run.
        configuration: of the run, as recorded if it is resumed.
        chain: where its contract is, or goes.
        blobs: where everybody publishes.

    Yields:
        The run; its worker processes end with the context.
    """
    device_named(configuration.machine.device)  # before anything is deployed
    population, manifest = prepare(home, name, configuration, chain, blobs)
    parameters = configuration.parameters(population.model.dimension)
    ledger = LedgerWriter(chain, manifest.address, manifest.block)
    folder = run_folder(home, name)
    measure = Measure(
        model=population.model,
        data=population.data,
        floor=majority_rate(population.data.test.y),
        malicious=population.malicious,
        parameters=parameters,
        device=population.device,
    )
    _restore_metrics(folder, measure, ledger, blobs)
    machine = configuration.machine
    with TrainingEngine(
        population.model,
        population.data.train,
        configuration.local_training(),
        machine.device,
        machine.workers,
    ) as engine:
        journal = FileJournal(folder.paths.journal)
        around = Surroundings(
            parameters=parameters,
            layout=population.model.layout,
            domain=manifest.domain(),
            ledger=ledger,
            blobs=blobs,
            mailbox=MemoryMailbox(),
            journal=journal,
        )
        try:
            simulation = Simulation(around, Cast(population, engine))
            yield Run(configuration, folder, manifest, ledger, population, measure, simulation)
        finally:
            journal.close()


def recorded_configuration(home: Path, name: str, settings: tuple[str, ...] = ()) -> Configuration:
    """Return the configuration of a run that exists, to resume it.

    Args:
        home: of the runs.
        name: of the run.
        settings: `machine.key=value` of each; all else is fixed.

    Returns:
        The configuration.

    Raises:
        ConfigurationError: there is no such run, or a setting would change its result.
    """
    folder = run_folder(home, name)
    if not folder.paths.configuration.exists():
        raise ConfigurationError(f"there is no run {name!r} in {home} to resume")
    for setting in settings:
        if not setting.startswith("machine."):
            raise ConfigurationError(f"--set {setting}: a resumed run keeps its configuration")
    return load(path=folder.paths.configuration, settings=settings)


def require_new(home: Path, name: str) -> None:
    """Refuse the name of a run that exists.

    Args:
        home: of the runs.
        name: of the run.

    Raises:
        ConfigurationError: there is such a run.
    """
    if run_folder(home, name).paths.configuration.exists():
        raise ConfigurationError(f"there is a run {name!r} in {home}: resume it, or name another")


def _restore_metrics(
    folder: RunFolder, measure: Measure, ledger: CommitteeLedger, blobs: BlobStore
) -> None:
    """Make the rows agree with the chain: a run may have been killed before it wrote one.

    Raises:
        ChainError: the chain's log lacks a round that the contract has ended.
    """
    ended = [
        recorded.event
        for recorded in ledger.outcomes(limit=2**31, descending=False)
        if isinstance(recorded.event, RoundDecided | RoundAbandoned)
    ]
    state = ledger.state()
    last = state.round if state.stage is Stage.FINISHED else state.round - 1
    if [event.round for event in ended] != list(range(1, last + 1)):
        raise ChainError(f"the chain's log does not have each of the {last} rounds that ended")
    known = folder.read_metrics()
    if known is not None and [row.get("round") for row in known] == [e.round for e in ended]:
        return
    dimension = measure.parameters.dimension
    model, rows = ledger.deployment().model, []
    for event in ended:
        model = event.model if isinstance(event, RoundDecided) else model
        vector = vector_from_bytes(blobs.get(model, 4 * dimension), dimension)
        rows.append(measure.row(ledger, event.round, vector))
    folder.write_metrics(rows)


def manifest_of(home: Path, name: str) -> Manifest:
    """Return the manifest of a run."""
    return read_manifest(run_folder(home, name).paths.manifest)
