"""Label flipping (Fang, Cao, Jia, Gong 2020, "Local Model Poisoning Attacks", section 5.1)."""

from __future__ import annotations

from clients.attacks.data.data_attack import DataAttack, PoisonInput
from clients.datasets.federated_data import Samples, frozen_samples


def label_flip(attacker: PoisonInput) -> Samples:
    """Return all samples with label y replaced by L − 1 − y, where L is the number of classes.

    With an odd number, the middle class keeps its label.
    """
    x, y = attacker.own
    return frozen_samples(x, attacker.form.classes - 1 - y)


LABEL_FLIP = DataAttack(
    "label-flip",
    label_flip,
    sends=("all samples with label y replaced by L − 1 − y, where L is the number of classes"),
    source=(
        'Label flipping (Fang, Cao, Jia, Gong 2020, "Local Model Poisoning Attacks", section 5.1)'
    ),
)
