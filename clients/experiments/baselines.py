"""Baselines of CMFL, on the same data, model, engine, seeds and attackers.

One system has a server with any aggregator; FedAvg is the mean. Two have no server: BrainTorrent
(Roy et al. 2019, arXiv 1905.06731), and segmented gossip, Combo (Hu, Jiang, Wang 2019, arXiv
1908.07782), the paper's GossipFL. One seed gives the same participants and attackers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from clients import aggregators
from clients.adversaries.attackers import Attackers, AttackMemory, AttackRound
from clients.aggregators import Aggregation, Vector
from clients.attacks.registry import attack_named
from clients.attacks.updates import ServerRule, Update
from clients.datasets.federated_data import named_stream
from clients.experiments.costs import COUNT_BYTES, NUMBER_BYTES, RoundTraffic
from clients.models.model import ParameterVector
from clients.runs.metrics import ModelGauge, Quality
from clients.training.jobs import train_alone
from clients.training.port import Engine, TrainingJob, Workload
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.inputs import training_seed
from ledger.protocol.types import ClientId, Digest

OF_ANGLES = (
    *(aggregators.FedAvg, aggregators.Krum, aggregators.MultiKrum),
    *(aggregators.GeometricMedian, aggregators.CenteredClipping, aggregators.FLTrust),
)
"""Aggregators whose result turns with the updates if all updates turn alike."""


@dataclass(frozen=True, slots=True)
class MethodRound:
    """One round of any method: its trainers, the clients in the new model, and its committee.

    In gossip `quality` is the mean over the participants' models, and in BrainTorrent the
    initiator's. `traffic` is None where a kind counts it otherwise.
    """

    quality: Quality
    trained: tuple[ClientId, ...]
    aggregated: tuple[ClientId, ...]
    served: tuple[ClientId, ...] | None = None
    traffic: RoundTraffic | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class FederatedSettings:
    """A run with one server; the attackers have a memory if their attack needs the history."""

    rounds: int
    participants: int
    server_rate: float = 1.0
    attackers: Attackers = field(default_factory=Attackers)
    aggregation: Aggregation = field(default_factory=Aggregation)
    memory: AttackMemory | None = None
    root: Workload | None = None  # the root data of a server, and its training

    def require(self, clients: int) -> None:
        if self.rounds < 1 or not 1 <= self.participants <= clients:
            raise ConfigurationError(
                f"rounds = {self.rounds}, participants = {self.participants}: both must be at "
                f"least 1, and participants at most {clients} (clients)"
            )
        self.aggregation.require(self.participants)


def run_federated(
    samples: Sequence[int],
    gauge: ModelGauge,
    initial: ParameterVector,
    settings: FederatedSettings,
    seed: int,
) -> Iterator[MethodRound]:
    """Run a federation with one server; a client's update weighs as its declared `samples`."""
    settings.require(len(samples))
    if settings.attackers.attack is not None:
        attack_named(settings.attackers.attack)
    sampling, memory = named_stream(seed, "fedavg", "sample"), settings.memory
    server = FederatedServer(settings, samples, initial, np.zeros(len(initial)))
    for number in range(1, settings.rounds + 1):
        chosen = sampling.choice(len(samples), settings.participants, replace=False)
        participants = tuple(ClientId(client) for client in sorted(chosen.tolist()))
        round_seed = sha256(repr((seed, "fedavg", number)).encode())
        jobs = [TrainingJob(client, training_seed(round_seed, client)) for client in participants]
        if settings.root is not None:
            chance = named_stream(round_seed, "root").bytes(32)
            server.last = train_alone(settings.root, server.model, chance).astype(np.float64)
        trained = gauge.engine.train(server.model, jobs)
        updates = {
            client: update.vector for client, update in zip(participants, trained, strict=True)
        }
        context = AttackRound(
            round_seed,
            dict.fromkeys(participants, server.model),
            history=None if memory is None else memory.history(number, server.model),
            server=server.rule,
        )
        sent = settings.attackers.corrupt(updates, context)
        if memory is not None:
            memory.round_ended(sent)
        used = server.take(sent, named_stream(round_seed, "aggregation"))
        yield MethodRound(
            quality=_mean_quality(gauge, [server.model]) if gauge.is_due(number) else Quality(),
            trained=participants,
            aggregated=used,
            traffic=federated_traffic(participants, len(initial)),
        )


@dataclass(slots=True)
class FederatedServer:
    """The server: w_t in `model` and `last` of its aggregator, zeros at first, shape (d,)."""

    settings: FederatedSettings
    samples: Sequence[int]
    model: ParameterVector
    last: Vector

    @property
    def rule(self) -> ServerRule:
        """The public part of the aggregation, with equal weights of updates."""
        aggregation = self.settings.aggregation

        def aggregate(
            updates: Sequence[NDArray[np.float32]], last: Vector, rng: np.random.Generator
        ) -> Vector | None:
            selection = aggregation.aggregate(updates, [1] * len(updates), last, rng)
            return None if selection is None else selection.vector

        last = self.last if self.settings.root is None else None
        return ServerRule(aggregate, last, isinstance(aggregation.aggregator, OF_ANGLES))

    def take(
        self, sent: Mapping[ClientId, NDArray[np.float32]], rng: np.random.Generator
    ) -> tuple[ClientId, ...]:
        """Set w_{t+1} = w_t - eta Delta if that is finite, and return the clients it is made of."""
        updates, samples = list(sent.values()), [self.samples[client] for client in sent]
        selection = self.settings.aggregation.aggregate(updates, samples, self.last, rng)
        if selection is None:
            return ()
        with np.errstate(over="ignore"):
            step = self.settings.server_rate * selection.vector
            moved = (self.model.astype(np.float64) - step).astype(np.float32)
        if not np.isfinite(moved).all():
            return ()
        self.model, self.last = moved, selection.vector
        clients = list(sent)
        return tuple(clients[place] for place in selection.used)


def federated_traffic(participants: Iterable[ClientId], dimension: int) -> RoundTraffic:
    """Return what a round with one server sends: a model down, an update and its n_k up."""
    traffic = RoundTraffic("model", "updates")
    for client in participants:
        traffic.received["model"][client] += NUMBER_BYTES * dimension
        traffic.sent["updates"][client] += NUMBER_BYTES * dimension + COUNT_BYTES
    return traffic


@dataclass(frozen=True, slots=True)
class DecentralisedSettings:
    """A run without a server: participants train their own models w_i, and mix them by samples.

    Its A participants are drawn once: among thousands, one merge a round would move nothing.
    """

    rounds: int
    participants: int
    mixing: Literal["brain-torrent", "gossip"]
    segments: int = 10
    replicas: int = 2
    attackers: Attackers = field(default_factory=Attackers)

    def require(self, clients: int, dimension: int | None = None) -> None:
        """Refuse what cannot be run; None for a dimension that is not known yet."""
        bounds = [
            ("rounds", self.rounds, 1, None, ""),
            ("participants", self.participants, 2, clients, "clients"),
        ]
        if self.mixing == "gossip":
            others = self.participants - 1
            bounds += [
                ("segments", self.segments, 1, dimension, "numbers of the model"),
                ("replicas", self.replicas, 1, others, "other participants"),
            ]
        for name, value, least, most, of in bounds:
            if value < least or (most is not None and value > most):
                limit = "" if most is None else f", and at most the {most} {of}"
                raise ConfigurationError(f"{name} = {value}: must be at least {least}{limit}")


def run_decentralised(
    samples: Sequence[int],
    gauge: ModelGauge,
    initial: ParameterVector,
    settings: DecentralisedSettings,
    seed: int,
) -> Iterator[MethodRound]:
    """Run a system without a server and yield its rounds."""
    settings.require(len(samples), len(initial))
    participants = draw_sites(len(samples), settings.participants, seed)
    sites = Sites(gauge.engine, initial, participants, settings.attackers)
    mix = _asked_by_one if settings.mixing == "brain-torrent" else _gossiped
    rounds = mix(sites, samples, settings, seed)
    for number, (used, traffic, initiator) in enumerate(rounds, start=1):
        models = sites.models.values() if initiator is None else [sites.models[initiator]]
        quality = _mean_quality(gauge, models) if gauge.is_due(number) else Quality()
        yield MethodRound(quality, participants, used, traffic=traffic)


_Mixed: TypeAlias = tuple[tuple[ClientId, ...], RoundTraffic, ClientId | None]
"""A round after mixing: clients whose models were used, traffic, and the initiator if any."""


def _asked_by_one(
    sites: Sites, samples: Sequence[int], settings: DecentralisedSettings, seed: int
) -> Iterator[_Mixed]:
    """Yield rounds of BrainTorrent: w_i = (n_i w_i + sum_j n_j w_j) / (n_i + sum_j n_j)."""
    initiators = named_stream(seed, "brain-torrent", "initiator")
    participants = sites.participants
    for number in range(1, settings.rounds + 1):
        sites.train(participants, _seed(seed, "brain-torrent", number))
        initiator = participants[int(initiators.integers(len(participants)))]
        others = tuple(client for client in participants if client != initiator)
        models = {client: sites.sent(client) for client in others}
        models[initiator] = sites.models[initiator]
        traffic = RoundTraffic("versions", "models")
        for client in others:
            traffic.ask("versions", initiator, client, COUNT_BYTES, COUNT_BYTES)
            size = NUMBER_BYTES * len(models[client]) + COUNT_BYTES
            traffic.move("models", client, initiator, size)
        sites.models[initiator] = weighted_mean(models, samples)
        sites.train([initiator], _seed(seed, "brain-torrent", number, "fine-tuning"))
        yield others, traffic, initiator


def _gossiped(
    sites: Sites, samples: Sequence[int], settings: DecentralisedSettings, seed: int
) -> Iterator[_Mixed]:
    """Yield rounds of segmented gossip, all participants at once."""
    rng = named_stream(seed, "gossip", "sources")
    segments = segments_of(len(sites.models[sites.participants[0]]), settings.segments)
    for number in range(1, settings.rounds + 1):
        sites.train(sites.participants, _seed(seed, "gossip", number))
        draws = draw_sources(sites.participants, len(segments), settings.replicas, rng)
        traffic = RoundTraffic("segments")
        for client, of in draws.items():
            for segment, sources in zip(segments, of, strict=True):
                size = NUMBER_BYTES * (segment.stop - segment.start) + COUNT_BYTES
                for source in sources:
                    traffic.ask("segments", client, source, COUNT_BYTES, size)
        merge_segments(sites, segments, draws, samples)
        used = {source for of in draws.values() for sources in of for source in sources}
        yield tuple(sorted(used)), traffic, None


def segments_of(dimension: int, segments: int) -> list[slice]:
    """Return S parts of a vector, whose lengths differ by at most one, longer ones first."""
    size, left = divmod(dimension, segments)
    ends = [size * (place + 1) + min(place + 1, left) for place in range(segments)]
    return [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]


Draws: TypeAlias = Mapping[ClientId, Sequence[tuple[ClientId, ...]]]
"""P(i, s): for each participant and segment, the others that it pulls from, ascending."""


def draw_sources(
    participants: Sequence[ClientId], segments: int, replicas: int, rng: np.random.Generator
) -> Draws:
    """Return P(i, s): R others for every segment, each dealt once before one comes again."""
    draws: dict[ClientId, list[tuple[ClientId, ...]]] = {}
    for client in participants:
        others = [other for other in participants if other != client]
        waiting: list[ClientId] = []
        draws[client] = []
        for _ in range(segments):
            drawn, waiting = waiting[:replicas], waiting[replicas:]
            if len(drawn) < replicas:
                again = [others[place] for place in rng.permutation(len(others))]
                new = [other for other in again if other not in drawn][: replicas - len(drawn)]
                drawn, waiting = drawn + new, [other for other in again if other not in new]
            draws[client].append(tuple(sorted(drawn)))
    return draws


def merge_segments(
    sites: Sites, segments: Sequence[slice], draws: Draws, samples: Sequence[int]
) -> None:
    """Set w_i[s] = (n_i w_i[s] + sum_{j in P(i, s)} n_j w_j[s]) / (n_i + sum n_j) for all i."""
    for place, segment in enumerate(segments):
        merged = {}
        for client, of in draws.items():
            parts = {other: sites.sent(other)[segment] for other in of[place]}
            parts[client] = sites.models[client][segment]
            merged[client] = weighted_mean(parts, samples)
        for client, part in merged.items():
            sites.models[client][segment] = part


def draw_sites(clients: int, participants: int, seed: int) -> tuple[ClientId, ...]:
    """Return the participants of the whole run, ascending; the same for both mixing rules."""
    rng = named_stream(seed, "decentralised", "participants")
    drawn = rng.choice(clients, participants, replace=False)
    return tuple(ClientId(client) for client in sorted(drawn.tolist()))


class Sites:
    """The models w_i of all participants, shape (d,), ascending by client.

    An attacker trains its own model honestly and merges what it gets. It sends another model: its
    start minus the forged update.
    """

    def __init__(
        self,
        engine: Engine,
        initial: ParameterVector,
        participants: Sequence[ClientId],
        attackers: Attackers,
    ) -> None:
        self._engine = engine
        self._attackers = attackers
        self._forged: dict[ClientId, ParameterVector] = {}
        self.models: dict[ClientId, ParameterVector] = dict.fromkeys(participants, initial)

    @property
    def participants(self) -> tuple[ClientId, ...]:
        return tuple(self.models)

    def train(self, clients: Iterable[ClientId], seed: Digest) -> None:
        starts = {client: self.models[client] for client in clients}
        groups: defaultdict[int, list[ClientId]] = defaultdict(list)
        for client, start in starts.items():
            groups[id(start)].append(client)  # an engine takes one start at a call
        updates: dict[ClientId, Update] = {}
        for group in groups.values():
            start = starts[group[0]]
            jobs = [TrainingJob(int(client), training_seed(seed, client)) for client in group]
            for client, trained in zip(group, self._engine.train(start, jobs), strict=True):
                self.models[client] = _moved(start, trained.vector)
                # The engine overwrites its vectors; only attackers' are read later.
                attacks = client in self._attackers.clients
                updates[client] = trained.vector.copy() if attacks else trained.vector
        for client, update in self._attackers.corrupt(updates, AttackRound(seed, starts)).items():
            self._forged.pop(client, None)
            if update is not updates[client]:
                self._forged[client] = _moved(starts[client], update)

    def sent(self, client: ClientId) -> ParameterVector:
        return self._forged.get(client, self.models[client])


def weighted_mean(
    vectors: Mapping[ClientId, ParameterVector], samples: Sequence[int]
) -> ParameterVector:
    """Return sum n_i w_i / sum n_i, in float64, clients ascending, rounded once at the end."""
    clients = sorted(vectors)
    total = sum(samples[client] for client in clients)
    result = np.empty_like(vectors[clients[0]])
    size = 1 << 15  # numbers at a time: float64 copies of whole models would not fit
    for start in range(0, len(result), size):
        part = slice(start, start + size)
        weighted = np.zeros(len(result[part]))
        with np.errstate(over="ignore", invalid="ignore"):  # what diverged stays so
            for client in clients:
                weighted += samples[client] * vectors[client][part].astype(np.float64)
            result[part] = weighted / total
    return result


def _mean_quality(gauge: ModelGauge, models: Iterable[ParameterVector]) -> Quality:
    qualities = [gauge.quality(gauge.begin(model)) for model in models]
    measured = [of.client_accuracy for of in qualities if of.client_accuracy is not None]
    names = ("accuracy", "loss", "training_loss", "backdoor_success")
    means = {name: _mean([getattr(quality, name) for quality in qualities]) for name in names}
    by_client = tuple(map(_mean, zip(*measured, strict=True))) if measured else None
    return Quality(**means, client_accuracy=by_client)


def _mean(values: Sequence[float | None]) -> float | None:
    measured = [value for value in values if value is not None]
    return fmean(measured) if len(measured) == len(values) else None


def _seed(seed: int, *names: object) -> Digest:
    return sha256(repr((seed, *names)).encode())


def _moved(start: ParameterVector, update: Update) -> ParameterVector:
    with np.errstate(over="ignore", invalid="ignore"):  # what diverged stays so
        moved: ParameterVector = start - update
    return moved
