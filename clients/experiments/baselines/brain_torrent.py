"""BrainTorrent (Roy et al. 2019, arXiv 1905.06731): each round one site asks all others for news.

Every participant i has its own model w_i, its version v_i, and remembers which version of each
other one it has merged last. Algorithm 1 there, as a round:

1. every participant trains its own w_i; v_i grows by one
2. one initiator i, drawn at random, asks all others for their versions
3. every j with news, v_j > used_i[j], sends w_j and n_j
4. w_i = (n_i w_i + sum_j n_j w_j) / (n_i + sum_j n_j), and used_i[j] = v_j
5. i fine-tunes w_i; v_i grows by one

Measured are the initiator's model after step 5, and the mean over the participants.
Deviation: the paper has 20 sites, all of which take part. Here A are drawn once for the whole run.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clients.datasets.federated_data import FederatedData
    from clients.models.model import ParameterVector
    from clients.runs.metrics import ModelGauge
    from ledger.protocol.types import ClientId, Digest


@dataclass(frozen=True, slots=True)
class BrainTorrentSettings:
    """A run of BrainTorrent.

    Attributes:
        rounds: T.
        participants: A, drawn once.
        attackers: who sends something else than its model.
    """

    rounds: int
    participants: int
    attackers: Attackers = field(default_factory=Attackers)

    def require(self, clients: int) -> None:
        """Refuse what cannot be."""
        require_sites(self.rounds, self.participants, clients)


def run_brain_torrent(  # noqa: PLR0913 - what is compared with, and a clock
    data: FederatedData,
    gauge: ModelGauge,
    initial: ParameterVector,
    settings: BrainTorrentSettings,
    seed: int,
    progress: Callable[[DecentralisedRound], None] | None = None,
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[DecentralisedRound, ...]:
    """Run BrainTorrent and return its rounds.

    Args:
        data: the divided data, the one the engine trains on.
        gauge: measures, with an engine like that of the run it is compared with.
        initial: the model that all start from, shape (d,).
        settings: the run.
        seed: the run's; participants, initiators, batch orders and attacks follow from it.
        progress: called after each round.
        clock: tells the seconds of a round's parts.

    Returns:
        One row per round.

    Raises:
        ConfigurationError: what `BrainTorrentSettings.require` refuses, or an unknown attack.
        TrainingError: a worker ended before its work was done.
    """
    settings.require(data.clients)
    participants = draw_sites(data.clients, settings.participants, seed)
    sites = Sites(gauge.engine, initial, participants, settings.attackers)
    versions = ModelVersions(participants)
    initiators = named_stream(seed, "brain-torrent", "initiator")
    rows: list[DecentralisedRound] = []
    for number in range(1, settings.rounds + 1):
        begun = clock()
        sites.train(participants, _seed(seed, number))
        versions.advance(participants)
        initiator = participants[int(initiators.integers(len(participants)))]
        senders = versions.take_news(initiator)
        trained = clock()
        _merge(sites, initiator, senders, data.sample_counts)
        merged = clock()
        sites.train([initiator], _seed(seed, number, "fine-tuning"))
        versions.advance([initiator])
        seconds = RoundSeconds(clock() - begun - (merged - trained), merged - trained)
        is_due = gauge.is_due(number)
        row = DecentralisedRound(
            round=number,
            quality=mean_quality(gauge, [sites.models[initiator]]) if is_due else Quality(),
            beside=mean_quality(gauge, sites.models.values()) if is_due else Quality(),
            participants=participants,
            used=senders,
            malicious=len(settings.attackers.clients.intersection(participants)),
            malicious_used=len(settings.attackers.clients.intersection(senders)),
            traffic=brain_torrent_traffic(participants, initiator, senders, len(initial)),
            seconds=seconds,
            initiator=initiator,
        )
        rows.append(row)
        if progress is not None:
            progress(row)
    return tuple(rows)


class ModelVersions:
    """Model versions of all participants, and the versions that each has merged.

    Args:
        participants: who takes part; all start at version 0, which all have.
    """

    def __init__(self, participants: Sequence[ClientId]) -> None:
        self._newest = dict.fromkeys(participants, 0)
        self._used: defaultdict[ClientId, dict[ClientId, int]] = defaultdict(dict)

    def advance(self, clients: Sequence[ClientId]) -> None:
        """Count a training of each of these."""
        for client in clients:
            self._newest[client] += 1

    def take_news(self, initiator: ClientId) -> tuple[ClientId, ...]:
        """Return whose newest model the initiator has not merged, ascending; now it has."""
        used = self._used[initiator]
        senders = tuple(
            client
            for client, version in sorted(self._newest.items())
            if client != initiator and version > used.get(client, 0)
        )
        used.update({client: self._newest[client] for client in senders})
        return senders


def brain_torrent_traffic(
    participants: Sequence[ClientId],
    initiator: ClientId,
    senders: Sequence[ClientId],
    dimension: int,
) -> RoundTraffic:
    """Return what one round sends: a question and a version of each other, then the models."""
    versions, models = PhaseCounter("versions"), PhaseCounter("models")
    for client in participants:
        if client != initiator:
            versions.ask(initiator, client, COUNT_BYTES, COUNT_BYTES)
    for client in senders:
        models.move(client, initiator, NUMBER_BYTES * dimension + COUNT_BYTES)
    return RoundTraffic((versions.phase(), models.phase()))


def _merge(
    sites: Sites, initiator: ClientId, senders: Sequence[ClientId], samples: Sequence[int]
) -> None:
    """Take the models that came in, weighted by samples, into the initiator's own."""
    came = {client: sites.sent(client) for client in senders}
    own = {initiator: sites.models[initiator]}
    sites.models[initiator] = weighted_mean(came | own, samples)


def _seed(seed: int, number: int, *names: str) -> Digest:
    return sha256(repr((seed, "brain-torrent", number, *names)).encode())
