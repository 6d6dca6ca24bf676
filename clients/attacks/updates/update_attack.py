"""What an attack on updates is, and what an attacker may know.

An attack is made on the update Δ_k. Where the configuration says `malice.on = "weights"` it is made
on the trained weights w_k instead, as in the authors' code, and is far easier to see.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.protocol.parameters import Parameters
    from ledger.protocol.rules.distance.rule import Layout

Update = NDArray[np.float32]

Attacked = Literal["update", "weights"]
"""What an attack is made on."""

Attacking = Literal["members"]
"""Who attacks: only attackers on the committee; those that train are honest until elected."""

NO_FACTOR = 1.0
"""What an attack without an open number gets, and does not use."""


@dataclass(frozen=True, slots=True)
class AttackParameters:
    """What the configuration says about an attack.

    Attributes:
        factor: the one number that an attack may leave open; None for the attack's own.
        on: what it is made on; None for the update.
        only: who of the attackers makes it; None for all.
    """

    factor: float | None = None
    on: Attacked | None = None
    only: Attacking | None = None


@dataclass(frozen=True, slots=True, eq=False)
class AttackInput:
    """What an attacker makes its update of. It never sees an honest client's update.

    Attributes:
        own: Δ of its own honest training, shape (d,).
        colluders: the honest updates of all attackers that are active in the round, its own
            among them, ascending by client, shape (attackers, d).
        rng: its own stream of the round.
        factor: the number that the attack leaves open.
        trainers: clients whose updates may enter the model of the round, n.
        attacking_trainers: how many of them attack, f.
        is_member: whether the attacker sits on the committee.
        parameters: the rules in force; None where there is no committee.
        travel: the way that the model went in the rounds before, as an update points, shape (d,);
            None where the rules have none.
        layout: the tensors whose numbers an update joins; empty where nobody says.
    """

    own: Update
    colluders: NDArray[np.float32]
    rng: np.random.Generator
    factor: float
    trainers: int = 1
    attacking_trainers: int = 1
    is_member: bool = False
    parameters: Parameters | None = None
    travel: Update | None = None
    layout: Layout = ()

    @property
    def mean(self) -> NDArray[np.float64]:
        """The mean of the colluders' honest updates, shape (d,); alone, the attacker's own."""
        return np.asarray(self.colluders.mean(axis=0, dtype=np.float64))


@dataclass(frozen=True, slots=True)
class Factor:
    """The one number that an attack leaves open.

    Attributes:
        usual: where the configuration gives none.
        least: the smallest that is taken.
        most: the largest that is taken.
    """

    usual: float
    least: float
    most: float


@dataclass(frozen=True, slots=True)
class UpdateAttack:
    """An attack on updates.

    Attributes:
        name: as in TOML.
        forge: makes what is sent instead of the attacker's own update, shape (d,).
        factor: the number that it leaves open; None if there is none.
        is_common: whether all attackers of a round, or all of its members and all of its trainers,
            send the same: then it is made once for them, of neither `own` nor `rng`.
    """

    name: str
    forge: Callable[[AttackInput], Update]
    factor: Factor | None = None
    is_common: bool = False

    def factor_for(self, parameters: AttackParameters) -> float:
        """Return the number that the attack gets.

        Args:
            parameters: what the configuration says.

        Raises:
            ConfigurationError: a number out of range, or one for an attack that takes none.
        """
        return factor_for(self.name, self.factor, parameters)


def factor_for(attack: str, factor: Factor | None, parameters: AttackParameters) -> float:
    """Return the number that an attack gets, on updates or on samples.

    Args:
        attack: its name.
        factor: the number that it leaves open; None if there is none.
        parameters: what the configuration says.

    Raises:
        ConfigurationError: a number out of range, or one for an attack that takes none.
    """
    given = parameters.factor
    if factor is None:
        if given is not None:
            raise ConfigurationError(f"malice.factor = {given}: attack {attack!r} takes none")
        return NO_FACTOR
    if given is None:
        return factor.usual
    if not factor.least <= given <= factor.most:
        raise ConfigurationError(
            f"malice.factor = {given}: attack {attack!r} takes {factor.least:g} to {factor.most:g}"
        )
    return given
