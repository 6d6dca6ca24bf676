"""The inputs of repeated training: settings, model and samples, each compared with its digest.

What fails its comparison takes only the updates with it that follow from it: a wrong model all of
them, an owner's wrong file its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from clients.adversaries.attackers import malicious_clients
from clients.attacks.samples import DATA_ATTACKS, poisoned
from clients.attacks.updates import attack_parameters
from clients.configuration.run_configuration import configuration_from_document
from clients.configuration.schema import Configuration
from clients.datasets.data_binding import (
    require_bound_files,
    require_bound_samples,
    salt_of,
    simulated_digests,
)
from clients.datasets.federated_data import FederatedData, frozen_samples
from clients.datasets.own import OWN
from clients.datasets.own_samples import own_parts
from clients.datasets.registry import data_set_named, load_dataset
from clients.models.model import Model
from clients.models.registry import model_named
from clients.random_streams import named_stream
from clients.runs.input_binding import require_bound_model
from ledger.io.home import read_file
from ledger.io.user_code import own_rules_of
from ledger.protocol.documents.run import RunDocument
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import NO_DIGEST, ClientId

_MAX_SALT_BYTES = 100


@dataclass(frozen=True, slots=True)
class ReplaySource:
    """Source of the samples of a replay.

    Attributes:
        path: file or folder of the data; None for bundled ones, or if none are given.
        salts: of owners' samples, by client; without its salt a client's samples are not compared
            with their digest.
        poisoned: whether a simulation's attackers poison their samples, as they did.
        settings: `section.key=value` of this machine, as `cmfl worker` takes them.
    """

    path: Path | None = None
    salts: Mapping[ClientId, bytes] = field(default_factory=dict)
    poisoned: bool = False
    settings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class ReplayInputs:
    """Model and samples from which updates are repeated.

    Attributes:
        data: samples of client i at index i; none of clients without samples here.
        missing: why the updates of a client cannot be repeated.
    """

    model: Model
    data: FederatedData
    unbound: Mapping[ClientId, str]
    missing: Mapping[ClientId, str]
    described: str


class InputsMissingError(ConfigurationError):
    """Nothing can be repeated: the model or all data are missing or not those of the run."""


def replay_configuration(document: RunDocument, source: ReplaySource) -> Configuration:
    """Return the configuration of a run's training, without rules that only the committee needs."""
    if source.path is not None and not source.path.exists():
        raise ConfigurationError(f"--data {source.path}: there is no such file or folder")
    own, parameters = own_rules_of(document.parameters), document.parameters
    if "distance" in own:
        parameters = replace(parameters, distance="squared")
    plain = replace(document, parameters=parameters)
    configuration = configuration_from_document(plain, source.path, source.settings)
    if source.poisoned and configuration.malice.attack not in DATA_ATTACKS:
        raise ConfigurationError(
            f"--poisoned: the run has no attack on training samples (malice.attack = "
            f"{configuration.malice.attack or 'none'}): those are {', '.join(DATA_ATTACKS)}"
        )
    return configuration


def replay_inputs(
    document: RunDocument,
    configuration: Configuration,
    clients: Sequence[ClientId],
    source: ReplaySource,
) -> ReplayInputs:
    """Return the inputs of some clients' training, compared with the run document.

    Args:
        clients: whose updates are repeated, ascending.
    """
    if configuration.data.name == OWN.name:
        data, unbound, missing, described = _owned(document, configuration, clients, source)
    else:
        data, missing, described = _shared(document, configuration, source)
        unbound = {}
    try:
        model = model_named(configuration.model.name, data.form, configuration.model.options)
        require_bound_model(document, model)
    except ConfigurationError as error:
        raise InputsMissingError(str(error)) from error
    return ReplayInputs(model, data, unbound, missing, described)


def _shared(
    document: RunDocument, configuration: Configuration, source: ReplaySource
) -> tuple[FederatedData, dict[ClientId, str], str]:
    """Return a data set that is divided among all clients, poisoned if that is asked for.

    Also returns who claims another number of samples than it has: that takes no other client's
    updates with it.
    """
    choice = configuration.data.choice()
    data_set = data_set_named(choice.name)
    if choice.path is None and data_set.bundled is None and data_set.load is None:
        raise InputsMissingError(f"data not given: name the files of {choice.name!r} with --data")
    try:
        require_bound_files(document, choice)
        rng = named_stream(configuration.seed, "data")
        data = load_dataset(choice, len(document.registry), rng)
        claimed = [registered.samples for registered in document.registry]
        digests = simulated_digests(data, configuration.seed)
        require_bound_samples(document, digests, claimed)
    except ConfigurationError as error:
        raise InputsMissingError(str(error)) from error
    counts = enumerate(zip(claimed, data.sample_counts, strict=True))
    missing = {
        ClientId(client): f"it claims {claim} samples, and its data have {count}"
        for client, (claim, count) in counts
        if claim != count
    }
    if not source.poisoned:
        return data, missing, "the samples of its data_root"
    malice = configuration.malice
    rng = named_stream(configuration.seed, "malicious")
    attackers = malicious_clients(data.clients, malice.malicious_rate, rng)
    parameters, attack = attack_parameters(malice), DATA_ATTACKS[malice.attack or ""]
    data = poisoned(data, [*map(ClientId, attackers)], attack, parameters, configuration.seed)
    described = f"the samples of its data_root, those of attackers poisoned by {attack.name}"
    return data, missing, described


def _owned(
    document: RunDocument,
    configuration: Configuration,
    clients: Sequence[ClientId],
    source: ReplaySource,
) -> tuple[FederatedData, dict[ClientId, str], dict[ClientId, str], str]:
    """Return the samples of owners, as far as they are given and are those of the run."""
    if source.path is None:
        raise InputsMissingError(
            "data not given: name the owner's file, or a folder of several, with --data"
        )
    if not source.path.is_dir() and len(clients) > 1:
        raise ConfigurationError(
            f"--data {source.path}: one file, for {len(clients)} clients: name its own with "
            f"--client, or give a folder"
        )
    parts: dict[ClientId, FederatedData] = {}
    missing: dict[ClientId, str] = {}
    unbound: dict[ClientId, str] = {}
    for client in clients:
        try:
            salt = source.salts.get(client) or _salt_beside(document, client, source.path)
            salts = None if salt is None else {client: salt}
            parts[client] = own_parts(configuration, document, (client,), source.path, salts)
        except ConfigurationError as error:
            missing[client] = str(error)
            continue
        if _disclosed(document, client) == NO_DIGEST:
            unbound[client] = "its owner disclosed no digest of its samples"
        elif salt is None:
            unbound[client] = "the salt of its samples' digest is not given"
    if not parts:
        raise InputsMissingError("; ".join(missing.values()))
    some = next(iter(parts.values()))
    nothing = frozen_samples(some.test.x[:0], some.test.y[:0])
    train = tuple(
        parts[client].train[client] if client in parts else nothing
        for client in map(ClientId, range(some.clients))
    )
    return replace(some, train=train), unbound, missing, "the samples of --data"


def _salt_beside(document: RunDocument, client: ClientId, folder: Path) -> bytes | None:
    """Return the salt in a folder of several owners' files; None if there is none."""
    path = folder / f"0x{document.registry[client].address.hex()}.salt"
    if not path.is_file():
        return None
    try:
        text = read_file(path, _MAX_SALT_BYTES).decode("ascii", "replace")
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from error
    return salt_of(text, str(path))


def _disclosed(document: RunDocument, client: ClientId) -> bytes:
    digests: bytes = document.experiment.get("data", {}).get("digests", b"")
    return digests[32 * client : 32 * client + 32]
