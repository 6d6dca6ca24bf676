"""Inputs of repeated training: environment, update, settings, model and samples.

A wrong model makes all updates uncheckable, an owner's wrong file only the owner's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from clients.attacks.samples import DATA_ATTACKS
from clients.configuration.parsing import configuration_from_document
from clients.configuration.schema import Configuration
from clients.datasets.federated_data import FederatedData, frozen_samples, named_stream
from clients.datasets.own import OWN
from clients.datasets.own_samples import (
    disclosed_digests,
    own_parts,
    require_bound_files,
    require_bound_samples,
    salt_of,
    simulated_digests,
)
from clients.datasets.registry import data_set_named, load_dataset
from clients.models.model import Model
from clients.runs.bound_inputs import bound_model
from clients.runs.malice import poisoned_by
from ledger.history.history import FoldedHistory
from ledger.history.round import HistoryRound, RoundStatus
from ledger.io.home import naming, read_file
from ledger.protocol.documents.envelope import EnvelopeKind, PublishedEnvironment
from ledger.protocol.documents.run import RunDocument
from ledger.protocol.encoding import RegisteredClient
from ledger.protocol.errors import BlobError, ConfigurationError
from ledger.protocol.rules.distance import OwnRuleName
from ledger.protocol.signing import is_signed_by
from ledger.protocol.training_replay import TrainingEnvironment
from ledger.protocol.types import NO_DIGEST, ClientId, Digest, Domain, EnvironmentStatement
from ledger.storage.mailbox import Mailbox

_log = logging.getLogger(__name__)

EnvironmentOf = Callable[[int, ClientId], TrainingEnvironment | None]

_ROUNDS = 1024  # whose statements are remembered: a replay needs their caps before it trains


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """Choice of a run's updates to repeat, and how; see `cmfl.verify_training`."""

    rounds: tuple[int, int] | None = None
    clients: tuple[int, ...] = ()
    sample: int | None = None
    seed: int = 0
    data: Path | None = None
    mailbox: str | None = None
    salts: Mapping[int, bytes] = field(default_factory=dict)
    keys: tuple[bytes, ...] = ()  # of owners, for their salts, and clients if none are named
    poisoned: bool = False
    trained_here: bool = False
    settings: tuple[str, ...] = ()
    device: str = "cpu"
    jobs: int = 1
    log: Path | None = None
    attests: bytes | None = field(default=None, repr=False)  # an auditor's private key


def of_simulation(recorded: Sequence[tuple[int, TrainingEnvironment]]) -> EnvironmentOf:
    """Return the environments of a simulation's updates, given each with its first round."""

    def environment(round_number: int, client: ClientId) -> TrainingEnvironment | None:
        del client
        known = [stated for first, stated in recorded if first <= round_number]
        return known[-1] if known else None

    return environment


def of_mailbox(
    mailbox: Mailbox, domain: Domain, registry: Sequence[RegisteredClient]
) -> EnvironmentOf:
    """Return the environments that clients stated, signed; a mailbox that fails is read no more."""
    is_readable = True

    @lru_cache(maxsize=_ROUNDS)
    def stated(round_number: int) -> Mapping[ClientId, TrainingEnvironment]:
        nonlocal is_readable
        if not is_readable:
            return {}
        try:
            return _stated(mailbox, domain, registry, round_number)
        except (BlobError, OSError) as error:
            is_readable = False
            reason = error.strerror if isinstance(error, OSError) else error
            _log.warning("the mailbox cannot be read for environments: %s", reason or error)
            return {}
        finally:
            mailbox.forget(domain, round_number + 1)

    return lambda round_number, client: stated(round_number).get(client)


def _stated(
    mailbox: Mailbox, domain: Domain, registry: Sequence[RegisteredClient], round_number: int
) -> dict[ClientId, TrainingEnvironment]:
    """Return the statements of a round; two different ones of a client do not count."""
    found: dict[ClientId, set[TrainingEnvironment]] = {}
    for envelope in mailbox.listed(domain, round_number, EnvelopeKind.ENVIRONMENT):
        body, client = envelope.body, envelope.client
        assert isinstance(body, PublishedEnvironment)
        statement = EnvironmentStatement(round_number, client, body.environment.digest)
        if client < len(registry) and is_signed_by(
            registry[client].address, domain, statement, body.signature
        ):
            found.setdefault(client, set()).add(body.environment)
    return {client: next(iter(one)) for client, one in found.items() if len(one) == 1}


@dataclass(frozen=True, slots=True)
class RecordedUpdate:
    """An update by its commitment on the chain, and its payload's digest if a record has it."""

    client: ClientId
    commitment: Digest
    payload: Digest | None


@dataclass(frozen=True, slots=True)
class RoundToRepeat:
    """An ended round from w_t, its updates to repeat, and the payloads that entered its model."""

    round: int
    seed: Digest
    model: Digest
    updates: tuple[RecordedUpdate, ...]
    accepted: tuple[Digest, ...]


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run with its updates to be repeated, in ascending rounds of at least one each."""

    domain: Domain
    document: RunDocument
    rounds: tuple[RoundToRepeat, ...]

    @property
    def updates(self) -> int:
        return sum(len(round_.updates) for round_ in self.rounds)

    @property
    def clients(self) -> tuple[ClientId, ...]:
        return tuple(sorted({u.client for round_ in self.rounds for u in round_.updates}))


def recorded_run(
    history: FoldedHistory, domain: Domain, document: RunDocument, request: ReplayRequest
) -> RecordedRun:
    """Return a run with the chosen updates: commitments that count, also of abandoned rounds."""
    newest = history.newest()
    ended = [r for r in history.rounds(1, newest) if r.status is not RoundStatus.OPEN]
    if not ended:
        raise ConfigurationError("no round of the run has ended, so there is nothing to repeat")
    first, last = request.rounds or (1, len(ended))
    if not 1 <= first <= last:
        raise ConfigurationError(f"rounds {first}..{last}: must be first and last, from 1")
    if last > len(ended):
        raise ConfigurationError(f"round {last}: the run has {len(ended)} ended rounds")
    clients = tuple(map(ClientId, request.clients))
    for client in clients:
        if not 0 <= client < history.fixed.clients:
            raise ConfigurationError(
                f"client {client} is unknown; the run has clients 0 .. {history.fixed.clients - 1}"
            )
    rounds, model = list[RoundToRepeat](), document.initial_model
    for round_ in ended[:last]:
        if round_.round >= first:
            rounds.append(_recorded(history, round_, model, clients))
        model = model if round_.decided is None else round_.decided.model
    drawn = _drawn(rounds, request)
    if not drawn:
        named = ", ".join(map(str, clients)) or "any client"
        raise ConfigurationError(f"rounds {first} to {last} have no committed update of {named}")
    return RecordedRun(domain, document, drawn)


def _recorded(
    history: FoldedHistory, round_: HistoryRound, model: Digest, clients: Sequence[ClientId]
) -> RoundToRepeat:
    payloads = history.documented(round_).documents.payloads
    accepted = () if round_.decided is None else round_.decided.accepted
    return RoundToRepeat(
        round=round_.round,
        seed=round_.seed,
        model=model,
        updates=tuple(
            RecordedUpdate(client, round_.commitments[client], payloads.get(client))
            for client in sorted(round_.counted)
            if not clients or client in clients
        ),
        accepted=tuple(payloads[client] for client in accepted if client in payloads),
    )


def _drawn(rounds: Sequence[RoundToRepeat], request: ReplayRequest) -> tuple[RoundToRepeat, ...]:
    updates = [(r.round, u.client) for r in rounds for u in r.updates]
    if request.sample is not None and request.sample < len(updates):
        rng = np.random.default_rng(request.seed)
        chosen = {updates[row] for row in rng.choice(len(updates), request.sample, replace=False)}
        rounds = [
            replace(r, updates=tuple(u for u in r.updates if (r.round, u.client) in chosen))
            for r in rounds
        ]
    return tuple(round_ for round_ in rounds if round_.updates)


@dataclass(frozen=True, slots=True, eq=False)
class ReplayInputs:
    """Model and samples of repeated updates; client i's samples are at index i."""

    model: Model
    data: FederatedData
    unbound: Mapping[ClientId, str]  # why a client's samples may not be those that it trained on
    missing: Mapping[ClientId, str]  # why the updates of a client cannot be repeated
    described: str


class InputsMissingError(ConfigurationError):
    """Nothing can be repeated: the model or all data are missing, or differ from the run's."""


def replay_configuration(document: RunDocument, request: ReplayRequest) -> Configuration:
    """Return the configuration of a run's training, without rules that only the committee needs."""
    if request.data is not None and not request.data.exists():
        raise ConfigurationError(f"--data {request.data}: there is no such file or folder")
    parameters = document.parameters
    if OwnRuleName.of(parameters.distance) is not None:
        parameters = replace(parameters, distance="squared")
    plain = replace(document, parameters=parameters)
    configuration = configuration_from_document(
        plain, request.data, (*request.settings, f"machine.device={request.device}")
    )
    if request.poisoned and configuration.malice.attack not in DATA_ATTACKS:
        raise ConfigurationError(
            f"--poisoned: needs an attack on training samples ({', '.join(DATA_ATTACKS)}), "
            f"but malice.attack = {configuration.malice.attack or 'none'}"
        )
    return configuration


def replay_inputs(
    document: RunDocument,
    configuration: Configuration,
    clients: Sequence[ClientId],
    request: ReplayRequest,
) -> ReplayInputs:
    """Return the inputs of some clients' training, compared with the run document."""
    if configuration.data.name == OWN.name:
        data, unbound, missing, described = _owned(document, configuration, clients, request)
    else:
        data, missing, described = _shared(document, configuration, request)
        unbound = {}
    try:
        model = bound_model(configuration, data, document)
    except ConfigurationError as error:
        raise InputsMissingError(str(error)) from error
    return ReplayInputs(model, data, unbound, missing, described)


def _shared(
    document: RunDocument, configuration: Configuration, request: ReplayRequest
) -> tuple[FederatedData, dict[ClientId, str], str]:
    choice = configuration.data.choice()
    data_set = data_set_named(choice.name)
    if choice.path is None and data_set.has_path:
        raise InputsMissingError(f"data not given: name the files of {choice.name!r} with --data")
    try:
        require_bound_files(document, choice)
        rng = named_stream(configuration.seed, "data")
        data = load_dataset(choice, len(document.registry), rng)
        claimed = [registered.samples for registered in document.registry]
        require_bound_samples(document, simulated_digests(data, configuration.seed), claimed)
    except ConfigurationError as error:
        raise InputsMissingError(str(error)) from error
    counts = enumerate(zip(claimed, data.sample_counts, strict=True))
    missing = {
        ClientId(client): f"it claims {claim} samples, and its data have {count}"
        for client, (claim, count) in counts
        if claim != count
    }
    if not request.poisoned:
        return data, missing, "the samples of its data_root"
    attack = configuration.malice.attack
    described = f"the samples of its data_root, with attackers' samples poisoned by {attack}"
    return poisoned_by(configuration, data), missing, described


def _owned(
    document: RunDocument,
    configuration: Configuration,
    clients: Sequence[ClientId],
    request: ReplayRequest,
) -> tuple[FederatedData, dict[ClientId, str], dict[ClientId, str], str]:
    if request.data is None:
        raise InputsMissingError(
            "data not given: name the owner's file, or a folder of several, with --data"
        )
    if not request.data.is_dir() and len(clients) > 1:
        raise ConfigurationError(
            f"--data {request.data}: is one file for {len(clients)} clients; name its client "
            "with --client, or give a folder"
        )
    parts: dict[ClientId, FederatedData] = {}
    missing: dict[ClientId, str] = {}
    unbound: dict[ClientId, str] = {}
    for client in clients:
        try:
            salt = request.salts.get(client) or _salt_beside(document, client, request.data)
            salts = None if salt is None else {client: salt}
            parts[client] = own_parts(configuration, document, (client,), request.data, salts)
        except ConfigurationError as error:
            missing[client] = str(error)
            continue
        if disclosed_digests(document)[32 * client : 32 * client + 32] == NO_DIGEST:
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
    path = folder / f"0x{document.registry[client].address.hex()}.salt"
    if not path.is_file():
        return None
    with naming(path):
        text = read_file(path, 100).decode("ascii", "replace")
    return salt_of(text, str(path))
