"""The attacks on updates by name; a built-in one needs its file and one line here."""

from __future__ import annotations

from clients.attacks.data.registry import DATA_ATTACKS
from clients.attacks.own_attack import own_attack
from clients.attacks.updates.adaptive.adaptive import ADAPTIVE
from clients.attacks.updates.alie import ALIE
from clients.attacks.updates.back_gradient import BACK_GRADIENT
from clients.attacks.updates.false_reference import FALSE_REFERENCE
from clients.attacks.updates.gaussian import GAUSSIAN
from clients.attacks.updates.gradient_scaling import GRADIENT_SCALING
from clients.attacks.updates.ipm import IPM
from clients.attacks.updates.mimic import MIMIC
from clients.attacks.updates.min_max import MIN_MAX
from clients.attacks.updates.rule_aware.hidden import NOISE
from clients.attacks.updates.rule_aware.target import TARGET
from clients.attacks.updates.rule_aware.worst import (
    HALF,
    MANY_SAMPLES,
    WORST_BACK,
    WORST_DRIFT,
    WORST_FULL,
)
from clients.attacks.updates.same_value import SAME_VALUE
from clients.attacks.updates.update_attack import UpdateAttack
from ledger.io.user_code import UserCode, named_code
from ledger.protocol.errors import ConfigurationError

GROUP = "cmfl.attacks"
"""Entry points of packages that offer attacks."""

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
        TARGET,
        NOISE,
        WORST_BACK,
        WORST_DRIFT,
        WORST_FULL,
        MANY_SAMPLES,
        HALF,
    )
}


def attack_named(name: str) -> UpdateAttack:
    """Return an attack on updates by name, or of a user's function."""
    if name in ATTACKS:
        return ATTACKS[name]
    code = named_code("malice.attack", GROUP, name)
    if code is None:
        raise ConfigurationError(
            f"unknown attack {name!r}; known are {', '.join(ATTACKS)}, and functions of your own: "
            f"file.py:NAME or package:NAME"
        )
    return own_attack(code)


def attack_code(name: str) -> UserCode | None:
    """Return the user's code behind an attack's name; None for a built-in attack."""
    is_built_in = name in ATTACKS or name in DATA_ATTACKS
    return None if is_built_in else named_code("malice.attack", GROUP, name)
