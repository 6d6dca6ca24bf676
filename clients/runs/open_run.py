"""Runs in a home, started or resumed: chain, blobs and `runs/<name>/`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clients.configuration.loading import Owners, as_recorded
from clients.configuration.parsing import table_of
from clients.configuration.schema import Configuration
from clients.datasets.federated_data import Samples
from clients.models.model_file import encode_model, facts_of
from clients.runs.bound_inputs import require_bound_inputs, require_bound_sources
from clients.runs.flower import FlowerEngine, Nodes, require_flower
from clients.runs.metrics import TEST, Measure, ModelGauge, RoundMetrics, measured_sets
from clients.runs.population import Population, populate, run_document, with_training_path
from clients.runs.run_folder import (
    RunFolder,
    line_of,
    require_new,
    require_rows,
    restore_metrics,
    run_folder,
)
from clients.simulation import SimulatedActors, Simulation
from clients.training.engine_factory import environment_of_run, require_engine, run_engine
from clients.training.jobs import majority_rate
from clients.training.port import Engine
from ledger.actors.journal import FileJournal, MemoryJournal, begin_run, require_journal
from ledger.actors.retention import RETAIN_NOTHING, blobs_of_other_runs, retention_policy_of
from ledger.actors.steps import ActorContext
from ledger.chain.contract.deploy import deploy
from ledger.chain.contract.ledger import LedgerWriter, Manifest, read_run_manifest, require_unplayed
from ledger.chain.embedded.chain_store import DEFAULT_CHAIN_ID
from ledger.chain.memory import memory_ledger
from ledger.chain.ports import ChainWriter, NotServedError
from ledger.chain.round_ledger import RoundLedger
from ledger.claims import StopWatch, claimed_rounds, stop_after
from ledger.io.home import DISK, Disk, Home, run_lock
from ledger.protocol.canonical import MAX_DOCUMENT_BYTES
from ledger.protocol.documents.run import RunDocument, decode_run, encode_run
from ledger.protocol.encoding import sha256, vector_bytes
from ledger.protocol.errors import BlobError, ConfigurationError
from ledger.protocol.ledger_state import LedgerStage
from ledger.protocol.parameters import Parameters
from ledger.protocol.types import Digest
from ledger.storage.blobs import BlobReader, BlobStore, MemoryBlobs
from ledger.storage.mailbox import MemoryMailbox

Watched = Callable[[Engine], Engine]  # wraps an engine without another result, to time it, say


@contextmanager
def open_measure(
    configuration: Configuration,
    population: Population,
    rows: int | None = None,
    watched: Watched | None = None,
    nodes: Nodes | None = None,
) -> Iterator[Measure]:
    """Open an engine for `rows` clients in a round (None: the active), and a gauge of models."""
    sets = _sets(configuration, population)
    parameters, most = population.parameters, rows or population.parameters.active
    with ExitStack() as stack:
        engine = stack.enter_context(
            run_engine(configuration, population.model, population.data, most, sets)
        )
        if configuration.machine.engine == "flower":
            if nodes is None:
                require_flower("flwr", "ray")
                from clients.runs.flower_grid import simulated_nodes  # noqa: PLC0415

                nodes = stack.enter_context(simulated_nodes(configuration))
            engine = FlowerEngine(engine, nodes, configuration, parameters.dimension)
        gauge = ModelGauge(
            engine=engine if watched is None else watched(engine),
            section=configuration.evaluation,
            sizes={name: len(samples.y) for name, samples in sets.items()},
            rounds=parameters.rounds,
            clients=parameters.clients,
        )
        yield Measure(gauge, majority_rate(sets[TEST].y), population.malicious, parameters)


@contextmanager
def prepared(  # noqa: PLR0913, PLR0917 - where to, what, and whose
    home: Path,
    name: str,
    configuration: Configuration,
    chain: ChainWriter,
    blobs: BlobStore,
    disk: Disk = DISK,
    owners: Owners | None = None,
    opens: bool = True,
) -> Iterator[tuple[Configuration, Population, Manifest]]:
    """Publish a run's document and first model, `deploy` its contract, and hold the run's lock."""
    folder = run_folder(home, name, disk)
    population = populate(configuration, owners)
    configuration = with_training_path(configuration, population)
    if owners is None:
        # What is measured is looked at before anything is deployed. Owners measure on their own.
        _sets(configuration, population)
    document = run_document(configuration, population)
    blobs.put(encode_run(document))
    blobs.put(vector_bytes(population.initial))
    blobs.sync()
    with run_lock(folder.paths, disk):
        deployed = folder.paths.manifest.exists()
        if deployed:
            _require_bound(read_run_manifest(folder.paths), blobs, configuration, population)
        else:
            require_unplayed(folder.paths)
            # Before the contract, so that a run killed while it deploys can be resumed.
            folder.write_configuration(configuration)
        manifest = deploy(chain, document, folder.paths, disk, opens=opens)
        if deployed:
            # Not before `deploy` has found it to be the deployed one, or another takes its place.
            folder.write_configuration(as_recorded(configuration, folder.paths.configuration))
        yield configuration, population, manifest


def _require_bound(
    manifest: Manifest, blobs: BlobReader, configuration: Configuration, population: Population
) -> None:
    """Refuse code, files or samples that differ from the deployed run's, and name them."""
    try:
        data = blobs.get(Digest(bytes.fromhex(manifest.config[2:])), MAX_DOCUMENT_BYTES)
    except (BlobError, ValueError):
        return  # `deploy` compares the digest of the whole document
    document, local = decode_run(data), run_document(configuration, population)
    require_bound_sources(document, local)
    if _settings_of(document) == _settings_of(local):
        require_bound_inputs(document, configuration, population.model, population.clean)


def _settings_of(document: RunDocument) -> tuple[Parameters, dict[str, Any]]:
    data = table_of(document.experiment, "data") | {"sha256": None, "digests": None}
    settings = {key: value for key, value in document.experiment.items() if key != "model"}
    return document.parameters, settings | {"data": data}


def _sets(configuration: Configuration, population: Population) -> dict[str, Samples]:
    rule, task = configuration.early_stop.rule(), population.clean.form.task
    if rule is not None and rule.metric == "accuracy" and task == "regress":
        raise ConfigurationError('early_stop.metric = "accuracy": a regression has a loss alone')
    section, attack = configuration.evaluation, population.data_attack
    return measured_sets(population.clean, section, configuration.seed, attack)


@dataclass(frozen=True, slots=True)
class OpenedRun:
    """A run, in memory without manifest; rounds `without_row` miss a model, `on_row` gets rows."""

    configuration: Configuration
    folder: RunFolder
    manifest: Manifest | None
    ledger: RoundLedger
    population: Population
    measure: Measure
    simulation: Simulation
    without_row: tuple[int, ...] = ()
    on_row: Callable[[RoundMetrics], None] | None = None

    def go_on(self, on_round: Callable[[RoundMetrics], None]) -> list[RoundMetrics]:
        """Play the rounds up to the last or an early stop; write each row before `on_round`."""
        rows: list[RoundMetrics] = []
        watch = self.stop_watch()

        def write(row: RoundMetrics) -> None:
            self.folder.disk.append(self.folder.paths.metrics, line_of(row))
            rows.append(row)
            watch.take(row.round, row.accuracy, row.loss)
            if self.on_row is not None:
                self.on_row(row)
            on_round(row)

        try:
            self.simulation.run(self.measure, write, lambda: watch.stop is not None)
        except Exception:
            if self.manifest is not None:
                with suppress(NotServedError):
                    require_rows(self.folder, self.ledger)
            raise
        # A run that had ended needs no blob for what it has written already.
        written, state = self.folder.read_model(), self.ledger.state()
        if written is None or sha256(vector_bytes(written.vector)) != state.model:
            model = self.population.model
            facts = facts_of(model.recorded(), model.source, model.frozen_state)
            facts["head"] = f"0x{state.head.hex()}"
            data = encode_model(self.simulation.model, model.layout, facts)
            self.folder.disk.write_whole(self.folder.paths.model, data)
        return rows

    def stop_watch(self) -> StopWatch:
        return stop_after(self.configuration.early_stop.rule(), claimed_rounds(self.folder.paths))


@contextmanager
def open_run(  # noqa: PLR0913 - the disk is a test's to replace
    home: Path,
    name: str,
    configuration: Configuration,
    chain: ChainWriter,
    blobs: BlobStore,
    *,
    accept_rollback: bool = False,
    disk: Disk = DISK,
    watched: Watched | None = None,
    nodes: Nodes | None = None,
) -> Iterator[OpenedRun]:
    """Deploy or resume a run; `accept_rollback` continues if the chain lacks rounds with rows."""
    _require_machine(configuration, nodes)  # before anything is deployed
    with prepared(home, name, configuration, chain, blobs, disk) as deployed:
        configuration, population, manifest = deployed
        ledger = LedgerWriter(chain, manifest.address, manifest.block)
        keep = retention_policy_of(configuration.machine.keep)
        pinned = frozenset[Digest]()
        if keep.rounds is not None:
            pinned = blobs_of_other_runs(Home(home), manifest.address, chain, blobs)
        folder = run_folder(home, name, disk)
        require_journal(folder.paths, ledger.state(), manifest.domain())
        with open_measure(configuration, population, None, watched, nodes) as measure:
            without_row = restore_metrics(
                folder, measure, ledger, blobs, accept_rollback=accept_rollback
            )
            journal = FileJournal(folder.paths.journal)
            try:
                begin_run(journal, manifest.domain())
                state = ledger.state()
                if state.stage is LedgerStage.OPEN:
                    is_begun = bool(ledger.commitments(state.round))
                    environment = environment_of_run(configuration)
                    folder.record_environment(state.round, environment, is_begun=is_begun)
                domain, mail = manifest.domain(), MemoryMailbox()
                context = ActorContext(measure.parameters, domain, ledger, blobs, mail, journal)
                cast = _cast(configuration, population, measure)
                simulation = Simulation(context, cast, keep, measure.expect, pinned)
                run = configuration, folder, manifest, ledger, population, measure, simulation
                yield OpenedRun(*run, without_row)
            finally:
                journal.close()


@contextmanager
def open_memory_run(
    home: Path,
    name: str,
    configuration: Configuration,
    *,
    chain_id: int = DEFAULT_CHAIN_ID,
    watched: Watched | None = None,
) -> Iterator[OpenedRun]:
    """Start a run on the memory ledger: it has the same heads, but no audit and no resumption."""
    _require_machine(configuration, None)
    population = populate(configuration)
    configuration = with_training_path(configuration, population)
    document = run_document(configuration, population)
    ledger, blobs = memory_ledger(document, chain_id=chain_id), MemoryBlobs()
    blobs.put(vector_bytes(population.initial))
    folder = run_folder(home, name)
    with open_measure(configuration, population, None, watched) as measure, run_lock(folder.paths):
        require_new(home, name)  # another process may have played it since the command began
        folder.write_configuration(configuration)
        mail, journal = MemoryMailbox(), MemoryJournal()
        context = ActorContext(measure.parameters, ledger.domain, ledger, blobs, mail, journal)
        cast = _cast(configuration, population, measure)
        simulation = Simulation(context, cast, RETAIN_NOTHING, measure.expect)
        yield OpenedRun(configuration, folder, None, ledger, population, measure, simulation)


def _require_machine(configuration: Configuration, nodes: Nodes | None) -> None:
    machine = configuration.machine
    require_engine(machine.device, machine.cluster, machine.isa)
    if machine.engine == "flower" and nodes is None:
        require_flower("flwr", "ray")


def _cast(
    configuration: Configuration, population: Population, measure: Measure
) -> SimulatedActors:
    # With one core there is nothing to be gained by doing two things at once.
    overlaps = configuration.machine.workers > 1
    memory = population.attack_memory(configuration)
    return SimulatedActors(population, measure.gauge.engine, overlaps=overlaps, memory=memory)
