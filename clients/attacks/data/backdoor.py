"""Backdoor: a model that answers as the attacker wants when it sees a trigger.

Poisoned samples with a trigger and a target class are those of Gu, Dolan-Gavitt, Garg 2017
("BadNets"); among federated clients, together with clean samples so that the model stays good
without the trigger, of Bagdasaryan, Veit, Hua, Estrin, Shmatikov 2020 ("How To Backdoor Federated
Learning"). Their update is not scaled here.
"""

from __future__ import annotations

import math

import numpy as np

from clients.attacks.data.data_attack import DataAttack, PoisonInput
from clients.attacks.data.trigger import trigger_for
from clients.attacks.updates.update_attack import Factor
from clients.datasets.federated_data import FederatedData, Samples, frozen_samples
from ledger.protocol.errors import ConfigurationError

TARGET = 0
"""The answer to inputs with the trigger."""


def backdoor(attacker: PoisonInput) -> Samples:
    """Return the samples, a share of them with the trigger and the target class.

    They replace clean ones, so the attacker's number of samples stays the same.

    Args:
        attacker: with p as its factor: floor(p n + 1/2) of its n samples are poisoned, at least 1.
    """
    trigger = trigger_for(attacker.form, attacker.public_inputs)
    x, y = np.array(attacker.own.x), np.array(attacker.own.y)
    count = max(1, math.floor(attacker.factor * len(y) + 0.5))
    rows = np.sort(attacker.rng.choice(len(y), count, replace=False))
    x[rows], y[rows] = trigger(x[rows]), TARGET
    return frozen_samples(x, y)


def triggered(data: FederatedData, test: Samples) -> Samples:
    """Return test samples of other classes with the trigger, labelled with the target class.

    The accuracy on them is the attack's success rate.
    """
    others = test.y != TARGET
    if not others.any():
        raise ConfigurationError(
            f"the success of 'backdoor' cannot be measured: all {len(test.y)} test samples of "
            f"{data.name!r} are of its target class {TARGET}"
        )
    trigger = trigger_for(data.form, data.test.x)
    return frozen_samples(trigger(test.x[others]), np.full(int(others.sum()), TARGET))


# A share: half a batch is poisoned on average.
BACKDOOR = DataAttack(
    "backdoor",
    backdoor,
    triggered,
    factor=Factor(0.5, 0.01, 1.0),
    sends="the samples, a share of them with the trigger and the target class",
    source="Backdoor: a model that answers as the attacker wants when it sees a trigger",
)
