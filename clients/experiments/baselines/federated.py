"""Federated learning with one server and any aggregator, without committee and ledger.

FedAvg is this loop with the mean. Whatever the aggregator, one seed gives the same participants,
batch orders and attacks, so that methods differ in nothing but the method.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from clients.adversaries.attackers import Attackers, AttackRound
from clients.aggregators.aggregation import Aggregation
from clients.aggregators.centered_clipping import CenteredClipping
from clients.aggregators.fed_avg import FedAvg
from clients.aggregators.geometric_median import GeometricMedian
from clients.aggregators.krum import Krum
from clients.aggregators.multi_krum import MultiKrum
from clients.attacks.registry import attack_named
from clients.attacks.updates.update_attack import ServerRule
from clients.experiments.baselines.round import BaselineRound, RoundSeconds
from clients.random_streams import named_stream
from clients.runs.metrics import Quality
from clients.training.port import TrainingJob
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.sampling import training_seed
from ledger.protocol.types import ClientId

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from clients.adversaries.attack_memory import AttackMemory
    from clients.aggregators.aggregator import Aggregator
    from clients.aggregators.mixture import Vector
    from clients.aggregators.pre_aggregators.pre_aggregator import PreAggregator
    from clients.models.model import ParameterVector
    from clients.runs.metrics import ModelGauge

OF_ANGLES = (FedAvg, Krum, MultiKrum, GeometricMedian, CenteredClipping)
"""Aggregators whose result turns with the updates if all are turned alike."""


@dataclass(frozen=True, slots=True)
class FederatedSettings:
    """A run without a committee.

    Attributes:
        rounds: number of rounds.
        participants: clients sampled and trained in each round.
        server_rate: eta, the step along the aggregated update.
        attackers: clients that attack whenever they are sampled.
        aggregator: makes one update of many.
        pre_aggregators: what is done to the updates before.
        memory: of the attackers; None unless their attack needs the history of the run.
    """

    rounds: int
    participants: int
    server_rate: float = 1.0
    attackers: Attackers = field(default_factory=Attackers)
    aggregator: Aggregator = field(default_factory=FedAvg)
    pre_aggregators: tuple[PreAggregator, ...] = ()
    memory: AttackMemory | None = None

    @property
    def aggregation(self) -> Aggregation:
        """Return all that the server does with the updates of a round."""
        return Aggregation(self.aggregator, self.pre_aggregators)

    def require(self, clients: int) -> None:
        """Refuse what cannot be run."""
        if self.rounds < 1 or not 1 <= self.participants <= clients:
            raise ConfigurationError(
                f"rounds = {self.rounds}, participants = {self.participants}: at least 1 of each, "
                f"and no more participants than the {clients} clients"
            )
        self.aggregation.require(self.participants)


def run_federated(  # noqa: PLR0913 - what is compared with, and a clock
    samples: Sequence[int],
    gauge: ModelGauge,
    initial: ParameterVector,
    settings: FederatedSettings,
    seed: int,
    progress: Callable[[BaselineRound], None] | None = None,
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[BaselineRound, ...]:
    """Run a federation with one server and return its rounds.

    Args:
        samples: the number that each client declares, which weighs its update.
        gauge: measures, with an engine like that of the run it is compared with.
        initial: the same initial model, shape (d,).
        settings: the run.
        seed: the run's seed; sampling, batch orders and attacks follow from it.
        progress: called after each round.
        clock: tells the seconds of a round's parts.

    Returns:
        One row per round.

    Raises:
        ConfigurationError: no rounds, more participants than clients, options that their number
            does not allow, or an unknown attack.
    """
    settings.require(len(samples))
    if settings.attackers.attack is not None:
        attack_named(settings.attackers.attack)
    sampling = named_stream(seed, "fedavg", "sample")
    server = FederatedServer(settings, samples, initial, np.zeros(len(initial)))
    rows: list[BaselineRound] = []
    for number in range(1, settings.rounds + 1):
        chosen = sampling.choice(len(samples), settings.participants, replace=False)
        participants = tuple(ClientId(client) for client in sorted(chosen.tolist()))
        round_seed = sha256(repr((seed, "fedavg", number)).encode())
        begun = clock()
        jobs = [TrainingJob(client, training_seed(round_seed, client)) for client in participants]
        trained = gauge.engine.train(server.model, jobs)
        trained_at = clock()
        updates = {
            client: update.vector for client, update in zip(participants, trained, strict=True)
        }
        memory = settings.memory
        context = AttackRound(
            round_seed,
            dict.fromkeys(participants, server.model),
            history=None if memory is None else memory.history(number, server.model),
            server=server.rule,
        )
        sent = settings.attackers.corrupt(updates, context)
        if memory is not None:
            memory.round_ended(sent)
        sent_at = clock()
        used = server.take(sent, named_stream(round_seed, "aggregation"))
        seconds = RoundSeconds(trained_at - begun, clock() - sent_at)
        row = BaselineRound(
            round=number,
            quality=(
                gauge.quality(gauge.begin(server.model)) if gauge.is_due(number) else Quality()
            ),
            participants=participants,
            used=used,
            malicious=len(settings.attackers.clients.intersection(participants)),
            malicious_used=len(settings.attackers.clients.intersection(used)),
            seconds=seconds,
        )
        rows.append(row)
        if progress is not None:
            progress(row)
    return tuple(rows)


@dataclass(slots=True)
class FederatedServer:
    """The aggregating server of a run.

    Attributes:
        settings: how.
        samples: n_k of each client.
        model: w_t, shape (d,).
        last: what was aggregated in the round before, zeros in the first, shape (d,).
    """

    settings: FederatedSettings
    samples: Sequence[int]
    model: ParameterVector
    last: Vector

    @property
    def rule(self) -> ServerRule:
        """Return what is public of the aggregation; updates count alike."""
        aggregation = self.settings.aggregation

        def aggregate(
            updates: Sequence[NDArray[np.float32]], last: Vector, rng: np.random.Generator
        ) -> Vector | None:
            selection = aggregation.aggregate(updates, [1] * len(updates), last, rng)
            return None if selection is None else selection.vector

        is_of_angles = isinstance(aggregation.aggregator, OF_ANGLES)
        return ServerRule(aggregate, self.last, is_of_angles, aggregation.is_mean)

    def take(
        self, sent: Mapping[ClientId, NDArray[np.float32]], rng: np.random.Generator
    ) -> tuple[ClientId, ...]:
        """Move the model by what the clients of a round sent: w_{t+1} = w_t - eta Delta.

        It stays as it is where too few updates are finite, or where float32 cannot hold the next
        one: no committee votes for such a model either.

        Args:
            sent: the update of each, by ascending client.
            rng: the aggregation's own stream of the round.

        Returns:
            Clients whose updates the new model is made of, ascending; empty if it does not change.
        """
        clients, updates = list(sent), list(sent.values())
        samples = [self.samples[client] for client in clients]
        selection = self.settings.aggregation.aggregate(updates, samples, self.last, rng)
        if selection is None:
            return ()
        with np.errstate(over="ignore"):
            step = self.settings.server_rate * selection.vector
            moved = (self.model.astype(np.float64) - step).astype(np.float32)
        if not np.isfinite(moved).all():
            return ()
        self.model, self.last = moved, selection.vector
        return tuple(clients[place] for place in selection.used)
