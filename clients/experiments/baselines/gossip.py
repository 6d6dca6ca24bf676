"""Segmented gossip, Combo (Hu, Jiang, Wang 2019, arXiv 1908.07782): the GossipFL of the paper.

Every participant i keeps its own model w_i. A round, all participants at once:

1. i trains w_i
2. i cuts the vector into S equal segments, and draws for each of them R others, P(i, s)
3. i pulls segment s of each j in P(i, s)
4. w_i[s] = (n_i w_i[s] + sum_{j in P(i, s)} n_j w_j[s]) / (n_i + sum n_j), all as after step 1

So R d numbers come into every link, from different others where there are enough of them. With
R = A - 1 it is a full exchange: the paper's n - 1 transfers. Measured are the mean over the
participants, and the average model, weighted by samples. The later GossipFL of Tang et
al. (TPDS 2023: sparsified, one peer) is another algorithm.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from clients.adversaries.attackers import Attackers
from clients.experiments.baselines.round import (
    DecentralisedRound,
    RoundSeconds,
    mean_quality,
)
from clients.experiments.baselines.sites import (
    Sites,
    draw_sites,
    require_sites,
    weighted_mean,
)
from clients.experiments.baselines.traffic import (
    COUNT_BYTES,
    NUMBER_BYTES,
    PhaseCounter,
    RoundTraffic,
)
from clients.random_streams import named_stream
from clients.runs.metrics import Quality
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from clients.datasets.federated_data import FederatedData
    from clients.models.model import ParameterVector
    from clients.runs.metrics import ModelGauge
    from ledger.protocol.types import ClientId

Draws: TypeAlias = "Mapping[ClientId, Sequence[tuple[ClientId, ...]]]"
"""P(i, s): of each participant and segment, the others that it is pulled from, ascending."""

_PART = 1 << 14
"""Numbers of a model that are merged at a time, for all participants in float64."""


@dataclass(frozen=True, slots=True)
class GossipSettings:
    """A run of segmented gossip.

    Attributes:
        rounds: T.
        participants: A, drawn once.
        segments: S, into which a model is cut.
        replicas: R, of how many others each segment is pulled.
        attackers: who sends something else than its model.
    """

    rounds: int
    participants: int
    segments: int = 10
    replicas: int = 2
    attackers: Attackers = field(default_factory=Attackers)

    def require(self, clients: int, dimension: int) -> None:
        """Refuse what cannot be.

        Args:
            clients: K.
            dimension: d.

        Raises:
            ConfigurationError: no round, participants or replicas that there are not, or segments
                without a number in them.
        """
        require_sites(self.rounds, self.participants, clients)
        if self.segments < 1:
            raise ConfigurationError(f"segments = {self.segments}: must be at least 1")
        if self.segments > dimension:
            raise ConfigurationError(
                f"segments = {self.segments}: must be at most the {dimension} numbers of the model"
            )
        if not 1 <= self.replicas < self.participants:
            raise ConfigurationError(
                f"replicas = {self.replicas}: must be at least 1, and at most the "
                f"{self.participants - 1} other participants"
            )


def run_gossip(  # noqa: PLR0913 - what is compared with, and a clock
    data: FederatedData,
    gauge: ModelGauge,
    initial: ParameterVector,
    settings: GossipSettings,
    seed: int,
    progress: Callable[[DecentralisedRound], None] | None = None,
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[DecentralisedRound, ...]:
    """Run segmented gossip and return its rounds.

    Args:
        data: the divided data, the one the engine trains on.
        gauge: measures, with an engine like that of the run it is compared with.
        initial: the model that all start from, shape (d,).
        settings: the run.
        seed: the run's; participants, draws, batch orders and attacks follow from it.
        progress: called after each round.
        clock: tells the seconds of a round's parts.

    Returns:
        One row per round.

    Raises:
        ConfigurationError: what `GossipSettings.require` refuses, or an unknown attack.
        TrainingError: a worker ended before its work was done.
    """
    settings.require(data.clients, len(initial))
    participants = draw_sites(data.clients, settings.participants, seed)
    sites = Sites(gauge.engine, initial, participants, settings.attackers)
    segments = segments_of(len(initial), settings.segments)
    rng = named_stream(seed, "gossip", "sources")
    rows: list[DecentralisedRound] = []
    for number in range(1, settings.rounds + 1):
        begun = clock()
        sites.train(participants, sha256(repr((seed, "gossip", number)).encode()))
        trained = clock()
        draws = draw_sources(participants, settings.segments, settings.replicas, rng)
        merge_segments(sites, segments, draws, data.sample_counts)
        seconds = RoundSeconds(trained - begun, clock() - trained)
        used = tuple(sorted({source for of in draws.values() for drawn in of for source in drawn}))
        quality, beside = Quality(), Quality()
        if gauge.is_due(number):
            quality = mean_quality(gauge, sites.models.values())
            beside = mean_quality(gauge, [weighted_mean(sites.models, data.sample_counts)])
        row = DecentralisedRound(
            round=number,
            quality=quality,
            beside=beside,
            participants=participants,
            used=used,
            malicious=len(settings.attackers.clients.intersection(participants)),
            malicious_used=len(settings.attackers.clients.intersection(used)),
            traffic=gossip_traffic(draws, segments),
            seconds=seconds,
        )
        rows.append(row)
        if progress is not None:
            progress(row)
    return tuple(rows)


def segments_of(dimension: int, segments: int) -> list[slice]:
    """Return the parts of a vector, in order; the first ones are longer by one where S leaves some.

    Args:
        dimension: d.
        segments: S, from 1 to d.
    """
    size, left = divmod(dimension, segments)
    ends = [size * (place + 1) + min(place + 1, left) for place in range(segments)]
    return [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]


def draw_sources(
    participants: Sequence[ClientId], segments: int, replicas: int, rng: np.random.Generator
) -> Draws:
    """Return P(i, s): R different others for every segment, others for every segment if possible.

    Each participant deals the others out in a random order, and again in another once all of them
    have been dealt; no participant is drawn twice for one segment.

    Args:
        participants: who takes part.
        segments: S.
        replicas: R, at least 1, fewer than the participants.
        rng: the draws' own stream.
    """
    draws: dict[ClientId, list[tuple[ClientId, ...]]] = {}
    for client in participants:
        others = [other for other in participants if other != client]
        draws[client] = _dealt(others, segments, replicas, rng)
    return draws


def merge_segments(
    sites: Sites, segments: Sequence[slice], draws: Draws, samples: Sequence[int]
) -> None:
    """Merge what everybody pulls into everybody's own model, all from the same models as before.

    Sums are in float64, clients ascending, and rounded once at the end.

    Args:
        sites: the models, which are written to.
        segments: the parts of a model.
        draws: P(i, s).
        samples: n_i of client i at index i.
    """
    for place, segment in enumerate(segments):
        for start in range(segment.start, segment.stop, _PART):
            part = slice(start, min(start + _PART, segment.stop))
            with np.errstate(over="ignore", invalid="ignore"):  # what diverged stays so
                _merge_part(sites, part, {i: of[place] for i, of in draws.items()}, samples)


def gossip_traffic(draws: Draws, segments: Sequence[slice]) -> RoundTraffic:
    """Return what one round sends: for each pull a segment's number, then its numbers and n_j.

    Args:
        draws: P(i, s).
        segments: the parts of a model.
    """
    counter = PhaseCounter("segments")
    for client, of in draws.items():
        for segment, sources in zip(segments, of, strict=True):
            size = NUMBER_BYTES * (segment.stop - segment.start) + COUNT_BYTES
            for source in sources:
                counter.ask(client, source, COUNT_BYTES, size)
    return RoundTraffic((counter.phase(),))


def _dealt(
    others: Sequence[ClientId], segments: int, replicas: int, rng: np.random.Generator
) -> list[tuple[ClientId, ...]]:
    waiting: list[ClientId] = []
    dealt: list[tuple[ClientId, ...]] = []
    for _ in range(segments):
        drawn, waiting = waiting[:replicas], waiting[replicas:]
        if len(drawn) < replicas:
            again = [others[place] for place in rng.permutation(len(others))]
            new = [other for other in again if other not in drawn][: replicas - len(drawn)]
            drawn, waiting = drawn + new, [other for other in again if other not in new]
        dealt.append(tuple(sorted(drawn)))
    return dealt


def _merge_part(
    sites: Sites,
    part: slice,
    sources: Mapping[ClientId, tuple[ClientId, ...]],
    samples: Sequence[int],
) -> None:
    sent = {c: samples[c] * sites.sent(c)[part].astype(np.float64) for c in sites.models}
    for client, model in sites.models.items():
        own = samples[client] * model[part].astype(np.float64)
        weighted = np.zeros(part.stop - part.start)
        total = 0
        for other in sorted((client, *sources[client])):
            weighted += own if other == client else sent[other]
            total += samples[other]
        model[part] = weighted / total
