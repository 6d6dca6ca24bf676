"""Starting and resuming runs in a home: chain, blobs and `runs/<name>/`.

A run on the memory ledger goes by the same rules to the same heads, and leaves configuration,
metrics and model behind, but nothing that could be audited or taken up again.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clients.configuration import load
from clients.engine.opening import open_engine, require_engine
from clients.engine.planner import plan
from clients.engine.reaching import LOCAL
from clients.measured_sets import TEST, measured_sets
from clients.metrics import Gauge, Measure, RoundMetrics
from clients.models.evaluation import majority_rate
from clients.models.model_file import facts_of
from clients.population import Population, populate, run_document
from clients.restoring import restore_metrics
from clients.run_home import run_folder
from clients.simulation import Cast, Simulation
from ledger.actors.journal import FileJournal, MemoryJournal, require_journal
from ledger.actors.keeping import KEEP_NOTHING, keep_named
from ledger.actors.mailbox import MemoryMailbox
from ledger.actors.removal import named_by
from ledger.actors.surroundings import Surroundings
from ledger.blobs.store import MemoryBlobs
from ledger.chain.contract.committee_ledger import LedgerWriter
from ledger.chain.contract.deployment import connect, deploy
from ledger.chain.contract.manifest import read_run_manifest, require_unplayed
from ledger.chain.embedded.identity import DEFAULT_CHAIN_ID
from ledger.chain.memory.ledger import memory_ledger
from ledger.home import DISK, Home
from ledger.protocol.documents.run import encode_run
from ledger.protocol.encoding import sha256, vector_bytes
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import Digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from clients.configuration import Configuration
    from clients.run_home import RunFolder
    from ledger.blobs.store import BlobStore
    from ledger.chain.contract.manifest import Manifest
    from ledger.chain.ports import ChainWriter
    from ledger.chain.round_ledger import RoundLedger
    from ledger.home import Disk


@dataclass(frozen=True, slots=True)
class Run:
    """A run that is deployed and can go on.

    Attributes:
        configuration: what was asked for, its training path settled.
        folder: its files.
        manifest: what was deployed where; None on the memory ledger.
        ledger: the contract, or the memory ledger.
        population: the clients.
        measure: makes a round's row.
        simulation: all its actors.
        without_row: ended rounds that cannot be measured any more, since their model is gone.
    """

    configuration: Configuration
    folder: RunFolder
    manifest: Manifest | None
    ledger: RoundLedger
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
        state = self.ledger.state()
        if written is None or sha256(vector_bytes(written.vector)) != state.model:
            model = self.population.model
            facts = facts_of({**model.recorded(), "options": model.options})
            facts["head"] = f"0x{state.head.hex()}"
            self.folder.write_model(self.simulation.model, model.layout, facts)


def settled(configuration: Configuration, population: Population) -> Configuration:
    """Return a configuration with the training path that "auto" comes to.

    Args:
        configuration: of a run.
        population: its clients.

    Raises:
        ConfigurationError: "lockstep" is asked for a model that is not made for it.
    """
    if configuration.training.path == "plain":
        return configuration
    found = plan(
        population.model,
        population.data,
        configuration.local_training(),
        configuration.machine.device,
    )
    if configuration.training.path != "auto" and found.path == "plain":
        raise ConfigurationError(f"training.path = lockstep: {found.reason}")
    return configuration.on_path(found.path)


@contextmanager
def measuring(configuration: Configuration, population: Population, rows: int) -> Iterator[Measure]:
    """Open an engine, and what measures models with it.

    Args:
        configuration: of a run, its training path settled.
        population: its clients.
        rows: how many clients train in a round at most.

    Yields:
        The measure; the engine's worker processes end with the context.
    """
    sets = measured_sets(population.data, configuration.evaluation, configuration.seed)
    parameters = configuration.parameters(population.model.dimension)
    machine, path = configuration.machine, configuration.training.path
    assert path != "auto", "the training path is settled when a run is prepared"
    with open_engine(
        population.model,
        population.data,
        configuration.local_training(),
        device=machine.device,
        workers=machine.workers,
        path=path,
        sets=sets,
        rows=rows,
        cluster=_cluster(configuration),
    ) as engine:
        gauge = Gauge(
            engine=engine,
            section=configuration.evaluation,
            sizes={name: len(samples.y) for name, samples in sets.items()},
            rounds=parameters.rounds,
            clients=parameters.clients,
        )
        floor = majority_rate(sets[TEST].y)
        yield Measure(gauge, floor, population.malicious, parameters)


def prepare(
    home: Path,
    name: str,
    configuration: Configuration,
    chain: ChainWriter,
    blobs: BlobStore,
    disk: Disk = DISK,
) -> tuple[Configuration, Population, Manifest]:
    """Publish a run's configuration and first model, and deploy its contract.

    Args:
        home: of the runs.
        name: of the run.
        configuration: of the run.
        chain: where the contract goes.
        blobs: where configuration and model go.
        disk: that the run's files are written on.

    Returns:
        The configuration with its training path settled, the clients, and what was deployed where.

    Raises:
        ConfigurationError: the model does not fit, or cannot take the path that is asked for.
        ChainError: the run is deployed with another configuration or elsewhere, or it has lost
            its manifest, or the chain refuses.
        BlobError: a blob cannot be stored.
        OSError: the run's folder cannot be written.
    """
    folder = run_folder(home, name, disk)
    population = populate(configuration)
    configuration = settled(configuration, population)
    # What is measured is looked at before anything is deployed.
    measured_sets(population.data, configuration.evaluation, configuration.seed)
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
    return configuration, population, manifest


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
    # Before anything is deployed.
    require_engine(configuration.machine.device, _cluster(configuration))
    configuration, population, manifest = prepare(home, name, configuration, chain, blobs, disk)
    ledger = LedgerWriter(chain, manifest.address, manifest.block)
    keep = keep_named(configuration.machine.keep)
    removes = keep.rounds is not None
    spared = _named_by_others(home, name, chain, blobs) if removes else frozenset[Digest]()
    folder = run_folder(home, name, disk)
    require_journal(folder.paths, ledger.state())
    with _measured(configuration, population) as measure:
        without_row = restore_metrics(
            folder, measure, ledger, blobs, accept_rollback=accept_rollback
        )
        journal = FileJournal(folder.paths.journal)
        try:
            around = Surroundings(
                parameters=measure.parameters,
                layout=population.model.layout,
                domain=manifest.domain(),
                ledger=ledger,
                blobs=blobs,
                mailbox=MemoryMailbox(),
                journal=journal,
            )
            yield Run(
                configuration=configuration,
                folder=folder,
                manifest=manifest,
                ledger=ledger,
                population=population,
                measure=measure,
                simulation=Simulation(
                    around,
                    _cast(configuration, population, measure),
                    keep,
                    measure.expect,
                    spared,
                ),
                without_row=without_row,
            )
        finally:
            journal.close()


@contextmanager
def in_memory(
    home: Path,
    name: str,
    configuration: Configuration,
    disk: Disk = DISK,
    *,
    chain_id: int = DEFAULT_CHAIN_ID,
) -> Iterator[Run]:
    """Begin a run on the memory ledger: it cannot be audited, nor taken up again.

    Args:
        home: of the runs.
        name: of the run.
        configuration: of the run.
        disk: that the run's files are written on.
        chain_id: of the embedded chain that the memory ledger stands for.

    Yields:
        The run; its worker processes end with the context.

    Raises:
        ConfigurationError: the model does not fit, there is a run of that name, or the beacon is
            the chain's blocks, of which there are none.
        OSError: the run's folder cannot be written.
    """
    require_engine(configuration.machine.device, _cluster(configuration))
    population = populate(configuration)
    configuration = settled(configuration, population)
    document = run_document(configuration, population)
    ledger, blobs = memory_ledger(document, chain_id=chain_id), MemoryBlobs()
    blobs.put(vector_bytes(population.initial))
    folder = run_folder(home, name, disk)
    with _measured(configuration, population) as measure:
        # No chain keeps two runs apart, and of several that are started at once each has found the
        # name free until now.
        require_new(home, name)
        folder.write_configuration(configuration.to_toml())
        around = Surroundings(
            parameters=measure.parameters,
            layout=population.model.layout,
            domain=ledger.domain,
            ledger=ledger,
            blobs=blobs,
            mailbox=MemoryMailbox(),
            journal=MemoryJournal(),
        )
        yield Run(
            configuration=configuration,
            folder=folder,
            manifest=None,
            ledger=ledger,
            population=population,
            measure=measure,
            simulation=Simulation(
                around,
                _cast(configuration, population, measure),
                KEEP_NOTHING,
                measure.expect,
            ),
        )


@contextmanager
def _measured(configuration: Configuration, population: Population) -> Iterator[Measure]:
    """Open the engine for as many as are active in a round."""
    active = configuration.parameters(population.model.dimension).active
    with measuring(configuration, population, active) as measure:
        yield measure


def _cluster(configuration: Configuration) -> str | None:
    """Return the address of the Ray cluster that a run asks for, None if it asks for none."""
    machine = configuration.machine
    return (machine.ray_address or LOCAL) if machine.engine == "ray" else None


def _cast(configuration: Configuration, population: Population, measure: Measure) -> Cast:
    # With one core there is nothing to be gained by doing two things at once.
    overlaps = configuration.machine.workers > 1
    return Cast(population, measure.gauge.engine, overlaps)


def _named_by_others(
    home: Path, name: str, chain: ChainWriter, blobs: BlobStore
) -> frozenset[Digest]:
    """Return the blobs that the other runs of a home name.

    Raises:
        ConfigurationError: one of them is on another chain, so that nobody can tell.
    """
    named: set[Digest] = set()
    for paths in Home(home).deployed():
        if paths.name == name:
            continue
        manifest = read_run_manifest(paths)
        if manifest.genesis_hash != f"0x{chain.genesis_hash.hex()}":
            raise ConfigurationError(
                f"machine.keep: run {paths.name!r} of {home} is on another chain, and old payloads "
                f"may be its own too: keep all or accepted, or give each run a home"
            )
        named |= named_by(connect(chain, manifest), blobs)
    return frozenset(named)


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
    configuration = load(path=path, settings=settings)
    if configuration.machine.ledger == "memory":
        raise ConfigurationError(
            f"run {name!r} was on the memory ledger (machine.ledger in {path}), which ended with "
            f"its process: begin it anew under another name"
        )
    return configuration


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
