"""The attacks on updates by name; a new one needs its file and one line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.attacks.updates.adaptive.adaptive import ADAPTIVE
from clients.attacks.updates.alie import ALIE
from clients.attacks.updates.back_gradient import BACK_GRADIENT
from clients.attacks.updates.false_reference import FALSE_REFERENCE
from clients.attacks.updates.gaussian import GAUSSIAN
from clients.attacks.updates.gradient_scaling import GRADIENT_SCALING
from clients.attacks.updates.ipm import IPM
from clients.attacks.updates.mimic import MIMIC
from clients.attacks.updates.min_max import MIN_MAX
from clients.attacks.updates.same_value import SAME_VALUE
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from clients.attacks.updates.update_attack import UpdateAttack

ATTACKS: dict[str, UpdateAttack] = {
    attack.name: attack
    for attack in (
        GRADIENT_SCALING,
        SAME_VALUE,
        BACK_GRADIENT,
        GAUSSIAN,
        ALIE,
        IPM,
        MIN_MAX,
        MIMIC,
        FALSE_REFERENCE,
        ADAPTIVE,
    )
}


def attack_named(name: str) -> UpdateAttack:
    """Return an attack on updates by name.

    Raises:
        ConfigurationError: unknown name.
    """
    if name not in ATTACKS:
        raise ConfigurationError(f"unknown attack {name!r}; known are {', '.join(ATTACKS)}")
    return ATTACKS[name]
