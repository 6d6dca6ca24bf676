"""What CMFL is compared with, on the same data, model, engine, seeds and attackers: FedAvg."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from clients.adversaries.attackers import Attackers
from clients.adversaries.registry import attack_named
from clients.chance import named_stream
from clients.local_sgd import TrainingJob
from clients.models.evaluation import evaluate
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.rules.aggregation import aggregate
from ledger.protocol.sampling import training_seed
from ledger.protocol.types import ClientId

if TYPE_CHECKING:
    from collections.abc import Callable

    from clients.datasets.federated import FederatedData
    from clients.models.model import ParameterVector
    from clients.training import TrainingEngine


@dataclass(frozen=True, slots=True)
class AveragingSettings:
    """A FedAvg run.

    Attributes:
        rounds: number of rounds.
        active: clients sampled and trained in each round.
        server_rate: eta, the step along the mean update.
        attackers: clients that attack whenever they are sampled.
        device: where the model is evaluated.
    """

    rounds: int
    active: int
    server_rate: float = 1.0
    attackers: Attackers = field(default_factory=Attackers)
    device: str = "cpu"


@dataclass(frozen=True, slots=True)
class AveragingRound:
    """One round of FedAvg, measured after it.

    Attributes:
        round: from 1.
        accuracy: share of the global test set classified right.
        loss: mean cross-entropy on it.
        participants: who trained, ascending; the updates of all of them are averaged.
        malicious: how many of them attacked.
    """

    round: int
    accuracy: float
    loss: float
    participants: tuple[int, ...]
    malicious: int


def federated_average(
    data: FederatedData,
    engine: TrainingEngine,
    initial: ParameterVector,
    settings: AveragingSettings,
    seed: int,
    progress: Callable[[AveragingRound], None] | None = None,
) -> tuple[AveragingRound, ...]:
    """Run FedAvg and return its rounds.

    Args:
        data: the divided data, the one the engine trains on.
        engine: the engine of the run it is compared with.
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
    sampling = named_stream(seed, "fedavg", "sample")
    model = initial
    rows: list[AveragingRound] = []
    for number in range(1, settings.rounds + 1):
        chosen = sampling.choice(data.clients, settings.active, replace=False)
        participants = tuple(ClientId(client) for client in sorted(chosen.tolist()))
        round_seed = sha256(repr((seed, "fedavg", number)).encode())
        updates = engine.train(
            model, [TrainingJob(i, training_seed(round_seed, i)) for i in participants]
        )
        sent = settings.attackers.corrupt(dict(zip(participants, updates, strict=True)), round_seed)
        model = aggregate(
            model,
            sent,
            {client: data.sample_counts[client] for client in participants},
            settings.server_rate,
        )
        accuracy, loss = evaluate(engine.model, model, *data.test, settings.device)
        attacked = len(settings.attackers.clients.intersection(participants))
        rows.append(AveragingRound(number, accuracy, loss, participants, attacked))
        if progress is not None:
            progress(rows[-1])
    return tuple(rows)
