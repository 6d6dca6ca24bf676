"""The data of a run with the samples of its malicious clients poisoned."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from clients.attacks.data.data_attack import PoisonInput
from clients.random_streams import named_stream

if TYPE_CHECKING:
    from collections.abc import Collection

    from clients.attacks.data.data_attack import DataAttack
    from clients.attacks.updates.update_attack import AttackParameters
    from clients.datasets.federated_data import FederatedData
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
        data: as the files have it, divided; the samples of all others, and all test samples, are
            taken from it as they are.
        malicious: who poisons.
        attack: what they do to their samples.
        parameters: what the attack leaves open.
        seed: of the run; each attacker's stream follows from it.

    Raises:
        ConfigurationError: a factor that the attack does not take, or data that it does not fit.
    """
    train, factor = list(data.train), attack.factor_for(parameters)
    for client in sorted(malicious):
        rng = named_stream(seed, "poison", int(client))
        train[client] = attack.poison(
            PoisonInput(data.train[client], data.form, data.test.x, rng, factor)
        )
    return replace(data, train=tuple(train))
