"""What an attack on updates is.

Attacks are made on the update, not on whole weights as in the authors' code, where they are far
easier to see.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

Update = NDArray[np.float32]

NO_FACTOR = 1.0
"""What an attack without an open number gets, and does not use."""


@dataclass(frozen=True, slots=True)
class AttackParameters:
    """What the configuration says about an attack.

    Attributes:
        factor: the one number that an attack may leave open; None for the attack's own.
    """

    factor: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class AttackInput:
    """What an attacker makes its update of. It never sees an honest client's update.

    Attributes:
        own: Δ of its own honest training, shape (d,).
        colluders: the honest updates of all attackers that are active in the round, its own
            among them, ascending by client, shape (attackers, d).
        rng: its own stream of the round.
        factor: the number that the attack leaves open.
    """

    own: Update
    colluders: NDArray[np.float32]
    rng: np.random.Generator
    factor: float


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
    """

    name: str
    forge: Callable[[AttackInput], Update]
    factor: Factor | None = None

    def factor_for(self, parameters: AttackParameters) -> float:
        """Return the number that the attack gets.

        Args:
            parameters: what the configuration says.

        Raises:
            ConfigurationError: a number out of range, or one for an attack that takes none.
        """
        given = parameters.factor
        if self.factor is None:
            if given is not None:
                raise ConfigurationError(f"factor = {given}: attack {self.name!r} takes none")
            return NO_FACTOR
        if given is None:
            return self.factor.usual
        if not self.factor.least <= given <= self.factor.most:
            raise ConfigurationError(
                f"factor = {given}: attack {self.name!r} takes "
                f"{self.factor.least:g} to {self.factor.most:g}"
            )
        return given
