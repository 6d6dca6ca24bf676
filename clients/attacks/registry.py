"""The attacks on updates by name; a built-in one is listed in its own module.

It takes `(own, colluders, rng)`, or one `AttackInput`, and returns the update to send. An argument
`factor` with a default makes `malice.factor` its free parameter.
"""

from __future__ import annotations

import inspect
import math
from dataclasses import replace
from typing import Any

import numpy as np

from clients.attacks import updates, worst
from clients.attacks.adaptive import ADAPTIVE
from clients.attacks.samples import DATA_ATTACKS
from clients.attacks.updates import AttackInput, Factor, Update, UpdateAttack
from clients.datasets.federated_data import named
from ledger.io.user_code import UserCode, as_configuration_error, named_code
from ledger.protocol.errors import ConfigurationError

ARGUMENTS = ("own", "colluders", "rng")
FACTOR = "factor"


def own_attack(code: UserCode) -> UpdateAttack:
    """Return the attack of a user's function, which is checked at each call."""
    setting = f"malice.attack = {code.label!r}"
    function = code.load_function("malice.attack")
    parameters = inspect.signature(function).parameters
    names = [name for name in parameters if name != FACTOR]
    if len(names) not in {1, len(ARGUMENTS)}:
        raise ConfigurationError(
            f"{setting}: takes {', '.join(names) or 'nothing'}; must take "
            f"({', '.join(ARGUMENTS)}), or one AttackInput"
        )
    usual = parameters[FACTOR].default if FACTOR in parameters else None
    if FACTOR in parameters and type(usual) not in {int, float}:
        raise ConfigurationError(f"{setting}: its argument factor must have a number as default")

    def forge(attacker: AttackInput) -> Update:
        own, colluders = _read_only(attacker.own), _read_only(attacker.colluders)
        arguments: tuple[Any, ...] = (own, colluders, attacker.rng)
        if len(names) == 1:
            arguments = (replace(attacker, own=own, colluders=colluders),)
        factor = {} if usual is None else {FACTOR: attacker.factor}
        with as_configuration_error(f"{setting}: it fails, or changes its input"):
            update = np.asarray(function(*arguments, **factor))
        if update.shape != own.shape or update.dtype.kind != "f":
            kind = f"{update.dtype} {update.shape}"
            raise ConfigurationError(f"{setting}: returns {kind}; must be floats {own.shape}")
        return update.astype(np.float32)

    range_ = None if usual is None else Factor(float(usual), -math.inf, math.inf)
    return UpdateAttack(code.label, forge, factor=range_)


def try_attack(attack: UpdateAttack, dimension: int) -> None:
    """Call an own attack on random updates of a run's size, before anything is written."""
    rng = np.random.default_rng(0)
    colluders = rng.standard_normal((3, dimension), dtype=np.float32)
    factor = 1.0 if attack.factor is None else attack.factor.usual
    with np.errstate(all="ignore"):
        attack.forge(AttackInput(colluders[0], colluders, rng, factor))


def _read_only(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    view = values.view()
    view.flags.writeable = False
    return view


GROUP = "cmfl.attacks"  # entry points of packages that offer attacks
ATTACKS: dict[str, UpdateAttack] = {
    attack.name: attack for attack in (*updates.ATTACKS, ADAPTIVE, *worst.ATTACKS)
}


def attack_named(name: str) -> UpdateAttack:
    """Return an attack on updates by name, or of a user's function."""
    code = None if name in ATTACKS else named_code("malice.attack", GROUP, name)
    own = "functions of your own: file.py:NAME or package:NAME"
    return named("unknown attack", ATTACKS, name, own) if code is None else own_attack(code)


def attack_code(name: str) -> UserCode | None:
    """Return the user's code behind an attack's name; None for a built-in attack."""
    is_built_in = name in ATTACKS or name in DATA_ATTACKS
    return None if is_built_in else named_code("malice.attack", GROUP, name)
