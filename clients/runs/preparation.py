"""Preparation of a run: training path, engine and deployment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clients.configuration.loading import as_recorded
from clients.configuration.owners import Owners
from clients.configuration.schema import Configuration
from clients.datasets.federated_data import Samples
from clients.runs.evaluation_sets import TEST, measured_sets
from clients.runs.flower.nodes import Nodes
from clients.runs.flower.opening import flower_engine
from clients.runs.input_binding import require_bound_inputs, require_bound_sources
from clients.runs.metrics import Measure, ModelGauge
from clients.runs.population import Population, populate, run_document, with_training_path
from clients.runs.run_folder import run_folder
from clients.training.engine_factory import open_engine
from clients.training.evaluation import majority_rate
from clients.training.port import Engine
from ledger.chain.contract.deploy import deploy
from ledger.chain.contract.manifest import Manifest, read_run_manifest, require_unplayed
from ledger.chain.ports import ChainWriter
from ledger.io.folders import run_lock
from ledger.io.home import DISK, Disk
from ledger.protocol.canonical import MAX_DOCUMENT_BYTES
from ledger.protocol.documents.run import RunDocument, decode_run, encode_run
from ledger.protocol.encoding import vector_bytes
from ledger.protocol.errors import BlobError, ConfigurationError
from ledger.protocol.parameters import Parameters
from ledger.protocol.types import Digest
from ledger.storage.blobs import BlobReader, BlobStore

if TYPE_CHECKING:
    Watched = Callable[[Engine], Engine]


def unwrapped_engine(engine: Engine) -> Engine:
    """Return the engine itself."""
    return engine


@contextmanager
def open_measure(
    configuration: Configuration,
    population: Population,
    rows: int,
    watched: Watched = unwrapped_engine,
    nodes: Nodes | None = None,
) -> Iterator[Measure]:
    """Open an engine, and what evaluates models with it.

    Args:
        rows: most clients that train in a round.
        watched: wraps the engine without another result, to time it, say.
        nodes: of Flower, where they train; None for a simulation that starts with the engine.

    Yields:
        The measure; the engine's worker processes end with the context.
    """
    sets = _sets(configuration, population)
    parameters = configuration.parameters(population.model.dimension)
    machine, path = configuration.machine, configuration.training.path
    assert path != "auto", "the training path is settled when a run is prepared"
    with (
        open_engine(
            population.model,
            population.data,
            configuration.local_training(),
            device=machine.device,
            workers=machine.workers,
            path=path,
            sets=sets,
            rows=rows,
            cluster=machine.cluster,
            isa=machine.isa,
            form=parameters.payload_form,
        ) as local,
        flower_engine(configuration, local, parameters, nodes)
        if machine.engine == "flower"
        else nullcontext(local) as engine,
    ):
        gauge = ModelGauge(
            engine=watched(engine),
            section=configuration.evaluation,
            sizes={name: len(samples.y) for name, samples in sets.items()},
            rounds=parameters.rounds,
            clients=parameters.clients,
        )
        floor = majority_rate(sets[TEST].y)
        yield Measure(gauge, floor, population.malicious, parameters)


@contextmanager
def prepared(  # noqa: PLR0913, PLR0917 - where to, what, and whose
    home: Path,
    name: str,
    configuration: Configuration,
    chain: ChainWriter,
    blobs: BlobStore,
    disk: Disk = DISK,
    owners: Owners | None = None,
) -> Iterator[tuple[Configuration, Population, Manifest]]:
    """Publish a run's document and first model, deploy its contract, and hold the run's lock.

    Args:
        owners: clients with keys of their own; None for simulated clients.

    Yields:
        The configuration with a chosen training path, the clients, and the manifest.
    """
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
            folder.write_configuration(configuration.to_toml())
        manifest = deploy(chain, document, folder.paths, disk)
        if deployed:
            # Not before `deploy` has found it to be the deployed one, or another takes its place.
            recorded = as_recorded(configuration, folder.paths.configuration)
            folder.write_configuration(recorded.to_toml())
        yield configuration, population, manifest


def _require_bound(
    manifest: Manifest, blobs: BlobReader, configuration: Configuration, population: Population
) -> None:
    """Refuse other code, files or samples than those of the deployed run, and name them."""
    try:
        data = blobs.get(Digest(bytes.fromhex(manifest.config[2:])), MAX_DOCUMENT_BYTES)
    except (BlobError, ValueError):
        return  # `deploy` compares the digest of the whole document
    document, local = decode_run(data), run_document(configuration, population)
    require_bound_sources(document, local)
    if _settings_of(document) == _settings_of(local):
        require_bound_inputs(document, configuration, population.model, population.clean)


def _settings_of(document: RunDocument) -> tuple[Parameters, dict[str, Any]]:
    """Return a document's settings without files; `deploy` refuses other ones."""
    settings = dict(document.experiment)
    data = settings.pop("data", {})
    settings.pop("model", None)
    return document.parameters, settings | {"data": {**data, "sha256": None, "digests": None}}


def _sets(configuration: Configuration, population: Population) -> dict[str, Samples]:
    rule, task = configuration.early_stop.rule(), population.clean.form.task
    if rule is not None and rule.metric == "accuracy" and task == "regress":
        raise ConfigurationError('early_stop.metric = "accuracy": a regression has a loss alone')
    clean, attack = population.clean, population.data_attack
    return measured_sets(clean, configuration.evaluation, configuration.seed, attack)
