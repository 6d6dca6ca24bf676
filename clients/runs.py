"""Starting and resuming runs in a home: chain, blobs and `runs/<name>/`."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clients.configuration import load
from clients.devices import device_named
from clients.metrics import Measure, RoundMetrics
from clients.models.evaluation import majority_rate
from clients.population import Population, populate, run_document
from clients.restoring import restore_metrics
from clients.run_home import run_folder
from clients.simulation import Cast, Simulation
from clients.training import TrainingEngine
from ledger.actors.journal import FileJournal, require_journal
from ledger.actors.mailbox import MemoryMailbox
from ledger.actors.surroundings import Surroundings
from ledger.chain.contract.committee_ledger import LedgerWriter
from ledger.chain.contract.deployment import deploy
from ledger.chain.contract.manifest import read_run_manifest, require_unplayed
from ledger.home import DISK
from ledger.protocol.documents.run import encode_run
from ledger.protocol.encoding import sha256, vector_bytes
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from clients.configuration import Configuration
    from clients.run_home import RunFolder
    from ledger.blobs.store import BlobStore
    from ledger.chain.contract.manifest import Manifest
    from ledger.chain.ports import ChainWriter
    from ledger.home import Disk


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
        without_row: ended rounds that cannot be measured any more, since their model is gone.
    """

    configuration: Configuration
    folder: RunFolder
    manifest: Manifest
    ledger: LedgerWriter
    population: Population
    measure: Measure
    simulation: Simulation
    without_row: tuple[int, ...] = ()

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
        self._write_model()
        return rows

    def _write_model(self) -> None:
        written = self.folder.read_model()
        # A run that had ended needs no blob for what it has written already.
        if written is None or sha256(vector_bytes(written)) != self.ledger.state().model:
            self.folder.write_model(self.simulation.model)


def prepare(
    home: Path,
    name: str,
    configuration: Configuration,
    chain: ChainWriter,
    blobs: BlobStore,
    disk: Disk = DISK,
) -> tuple[Population, Manifest]:
    """Publish a run's configuration and first model, and deploy its contract.

    Args:
        home: of the runs.
        name: of the run.
        configuration: of the run.
        chain: where the contract goes.
        blobs: where configuration and model go.
        disk: that the run's files are written on.

    Returns:
        The clients, and what was deployed where.

    Raises:
        ChainError: the run is deployed with another configuration or elsewhere, or it has lost
            its manifest, or the chain refuses.
        BlobError: a blob cannot be stored.
        OSError: the run's folder cannot be written.
    """
    folder = run_folder(home, name, disk)
    population = populate(configuration)
    document = run_document(configuration, population)
    blobs.put(encode_run(document))
    blobs.put(vector_bytes(population.initial))
    blobs.sync()
    deployed = folder.paths.manifest.exists()
    if not deployed:
        require_unplayed(folder.paths)
        # Before the contract, so that a run killed while it deploys can be resumed.
        folder.write_configuration(configuration.to_toml())
    manifest = deploy(chain, document, folder.paths, disk)
    if deployed:
        # Not before `deploy` has found it to be the deployed one, or another takes its place.
        folder.write_configuration(configuration.to_toml())
    return population, manifest


@contextmanager
def opened(  # noqa: PLR0913 - the disk is a test's to replace
    home: Path,
    name: str,
    configuration: Configuration,
    chain: ChainWriter,
    blobs: BlobStore,
    *,
    accept_rollback: bool = False,
    disk: Disk = DISK,
) -> Iterator[Run]:
    """Deploy a run, or take it up where it stands.

    Args:
        home: of the runs.
        name: of the run.
        configuration: of the run, as recorded if it is resumed.
        chain: where its contract is, or goes.
        blobs: where everybody publishes.
        accept_rollback: go on where the chain lacks rounds that the run's metrics know.
        disk: that the run's files are written on.

    Yields:
        The run; its worker processes end with the context.
    """
    device_named(configuration.machine.device)  # before anything is deployed
    population, manifest = prepare(home, name, configuration, chain, blobs, disk)
    parameters = configuration.parameters(population.model.dimension)
    ledger = LedgerWriter(chain, manifest.address, manifest.block)
    folder = run_folder(home, name, disk)
    require_journal(folder.paths, ledger.state())
    measure = Measure(
        model=population.model,
        data=population.data,
        floor=majority_rate(population.data.test.y),
        malicious=population.malicious,
        parameters=parameters,
        device=population.device,
    )
    without_row = restore_metrics(folder, measure, ledger, blobs, accept_rollback=accept_rollback)
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
            yield Run(
                configuration=configuration,
                folder=folder,
                manifest=manifest,
                ledger=ledger,
                population=population,
                measure=measure,
                simulation=simulation,
                without_row=without_row,
            )
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
        ConfigurationError: there is no such run, its configuration is gone, or a setting would
            change its result.
    """
    folder = run_folder(home, name)
    path = folder.paths.configuration
    if not path.exists():
        if folder.paths.manifest.exists():
            raise ConfigurationError(f"{path} is missing: put it back; {name!r} is resumed by it")
        raise ConfigurationError(f"there is no run {name!r} in {home} to resume")
    if not path.is_file():
        raise ConfigurationError(f"{path} is no file, but a folder, a pipe or a device")
    for setting in settings:
        if not setting.startswith("machine."):
            raise ConfigurationError(f"--set {setting}: a resumed run keeps its configuration")
    return load(path=path, settings=settings)


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


def manifest_of(home: Path, name: str) -> Manifest:
    """Return the manifest of a run."""
    return read_run_manifest(run_folder(home, name).paths)
