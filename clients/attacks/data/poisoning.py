"""A run's data with its malicious clients' samples poisoned."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from clients.attacks.data.data_attack import DataAttack, PoisonInput
from clients.attacks.updates.update_attack import AttackParameters
from clients.datasets.federated_data import FederatedData
from clients.random_streams import named_stream
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import ClientId


def poisoned(
    data: FederatedData,
    malicious: Collection[ClientId],
    attack: DataAttack,
    parameters: AttackParameters,
    seed: int,
) -> FederatedData:
    """Return data in which the malicious clients train on poisoned samples.

    Args:
        data: divided and clean; other clients' samples and all test samples stay unchanged.
        seed: of the run; each attacker's stream follows from it.
    """
    if data.form.task != "classify":
        raise ConfigurationError(
            f"{attack.name} changes samples of classes, and the task is {data.form.task}"
        )
    train, factor = list(data.train), attack.factor_for(parameters)
    for client in sorted(malicious):
        rng = named_stream(seed, "poison", int(client))
        train[client] = attack.poison(
            PoisonInput(data.train[client], data.form, data.test.x, rng, factor)
        )
    return replace(data, train=tuple(train))
