"""The port of attacks on training samples.

Attackers train honestly on samples that they have changed, and send honest updates of these. Their
test samples stay unchanged, and so do the files whose digests a run records: the change follows
from the attack's name and factor, and the seed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from clients.attacks.updates.update_attack import Attack
from clients.datasets.federated_data import DataForm, FederatedData, Inputs, Samples


@dataclass(frozen=True, slots=True, eq=False)
class PoisonInput:
    """Knowledge of an attacker, which never sees another client's samples.

    Attributes:
        rng: its own random stream.
    """

    own: Samples
    form: DataForm
    public_inputs: Inputs
    rng: np.random.Generator
    factor: float


@dataclass(frozen=True, slots=True)
class DataAttack(Attack):
    """An attack on training samples.

    Attributes:
        poison: returns samples to train on instead of the attacker's own, of the same form and
            number, which is the weight of its update.
        backdoor: returns test samples with the trigger and the attacker's target class; None
            without a backdoor.
    """

    poison: Callable[[PoisonInput], Samples]
    backdoor: Callable[[FederatedData, Samples], Samples] | None = None
