"""What CMFL is compared with, on the same data, model, engine, seeds and attackers: FedAvg."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from clients.adversaries.attackers import Attackers
from clients.adversaries.registry import attack_named
from clients.chance import named_stream
from clients.engine.port import TrainingJob
from clients.runs.metrics import Quality
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.rules.aggregation import aggregate
from ledger.protocol.sampling import training_seed
from ledger.protocol.types import ClientId

if TYPE_CHECKING:
    from collections.abc import Callable

    from clients.datasets.federated import FederatedData
    from clients.engine.port import Engine
    from clients.models.model import ParameterVector
    from clients.runs.metrics import Gauge


@dataclass(frozen=True, slots=True)
class AveragingSettings:
    """A FedAvg run.

    Attributes:
        rounds: number of rounds.
        active: clients sampled and trained in each round.
        server_rate: eta, the step along the mean update.
        attackers: clients that attack whenever they are sampled.
    """

    rounds: int
    active: int
    server_rate: float = 1.0
    attackers: Attackers = field(default_factory=Attackers)


@dataclass(frozen=True, slots=True)
class AveragingRound:
    """One round of FedAvg, measured after it.

    Attributes:
        round: from 1.
        accuracy: share of the global test set classified right; None if it was not measured.
        loss: mean cross-entropy on it; None if it was not measured, or is not finite.
        participants: who trained, ascending; the updates of all of them are averaged.
        malicious: how many of them attacked.
    """

    round: int
    accuracy: float | None
    loss: float | None
    participants: tuple[int, ...]
    malicious: int


def federated_average(
    data: FederatedData,
    gauge: Gauge,
    initial: ParameterVector,
    settings: AveragingSettings,
    seed: int,
    progress: Callable[[AveragingRound], None] | None = None,
) -> tuple[AveragingRound, ...]:
    """Run FedAvg and return its rounds.

    Args:
        data: the divided data, the one the engine trains on.
        gauge: measures, with an engine like that of the run it is compared with.
        initial: the same initial model, shape (d,).
        settings: the run.
        seed: the run's seed; sampling, batch orders and attacks follow from it.
        progress: called after each round.

    Returns:
        One row per round.

    Raises:
        ConfigurationError: no rounds, more active clients than there are, or an unknown attack.
    """
    if settings.rounds < 1 or not 1 <= settings.active <= data.clients:
        raise ConfigurationError(
            f"rounds = {settings.rounds}, active = {settings.active}: at least 1 of each, and "
            f"no more active than the {data.clients} clients"
        )
    if settings.attackers.attack is not None:
        attack_named(settings.attackers.attack)
    engine: Engine = gauge.engine
    sampling = named_stream(seed, "fedavg", "sample")
    model = initial
    rows: list[AveragingRound] = []
    for number in range(1, settings.rounds + 1):
        chosen = sampling.choice(data.clients, settings.active, replace=False)
        participants = tuple(ClientId(client) for client in sorted(chosen.tolist()))
        round_seed = sha256(repr((seed, "fedavg", number)).encode())
        trained = engine.train(
            model, [TrainingJob(i, training_seed(round_seed, i)) for i in participants]
        )
        updates = {client: one.vector for client, one in zip(participants, trained, strict=True)}
        sent = settings.attackers.corrupt(updates, round_seed)
        model = aggregate(
            model,
            sent,
            {client: data.sample_counts[client] for client in participants},
            settings.server_rate,
        )
        quality = gauge.quality(gauge.begin(model)) if gauge.is_due(number) else Quality()
        attacked = len(settings.attackers.clients.intersection(participants))
        row = AveragingRound(number, quality.accuracy, quality.loss, participants, attacked)
        rows.append(row)
        if progress is not None:
            progress(rows[-1])
    return tuple(rows)
