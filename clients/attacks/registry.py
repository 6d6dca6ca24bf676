"""The attacks on updates by name; a built-in one is listed in its own module.

It takes `(own, colluders, rng)`, or one `AttackInput`, and returns the update to send. An argument
`factor` with a default makes `malice.factor` its free parameter.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
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


@dataclass(frozen=True, slots=True)
class OwnAttack:
    """The function behind an own attack, checked at each call."""

    setting: str
    function: Callable[..., Any]
    takes_factor: bool
    takes_input: bool

    def forge(self, attacker: AttackInput) -> Update:
        """Return the update to send instead of the attacker's own."""
        own, colluders = _read_only(attacker.own), _read_only(attacker.colluders)
        arguments: tuple[Any, ...] = (own, colluders, attacker.rng)
        if self.takes_input:
            arguments = (replace(attacker, own=own, colluders=colluders),)
        named = {FACTOR: attacker.factor} if self.takes_factor else {}
        with as_configuration_error(f"{self.setting}: it fails, or changes its input"):
            update = np.asarray(self.function(*arguments, **named))
        if update.shape != own.shape or update.dtype.kind != "f":
            raise ConfigurationError(
                f"{self.setting}: returns {update.dtype} {update.shape}; must be floats {own.shape}"
            )
        return update.astype(np.float32)


def own_attack(code: UserCode) -> UpdateAttack:
    """Return the attack of a user's function."""
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
    attack = OwnAttack(setting, function, FACTOR in parameters, len(names) == 1)
    range_ = None if usual is None else Factor(float(usual), -math.inf, math.inf)
    return UpdateAttack(code.label, attack.forge, factor=range_)


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


GROUP = "cmfl.attacks"
"""Entry points of packages that offer attacks."""

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
