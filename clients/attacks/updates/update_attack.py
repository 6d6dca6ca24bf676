"""The port of attacks on updates, and an attacker's knowledge.

An attack replaces the update Δ_k. With `malice.on = "weights"` it is applied to the trained weights
w_k instead, as in the authors' code, and is far easier to detect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ledger.protocol.errors import ConfigurationError
from ledger.protocol.rules.distance import Layout

if TYPE_CHECKING:
    from clients.configuration.schema import Attacked, Attacking, MaliceSection
    from ledger.protocol.parameters import Parameters

Update = NDArray[np.float32]

NO_FACTOR = 1.0
"""Factor of an attack without a free parameter."""


@dataclass(frozen=True, slots=True)
class AttackParameters:
    """The configuration of an attack.

    Attributes:
        factor: its free parameter; None for the attack's default.
        on: the vector that it changes; None for the update.
        only: the attackers that make it; None for all.
    """

    factor: float | None = None
    on: Attacked | None = None
    only: Attacking | None = None


def attack_parameters(malice: MaliceSection) -> AttackParameters:
    """Return the settings that an attack takes from a configuration."""
    return AttackParameters(malice.factor, malice.on, malice.only)


@dataclass(frozen=True, slots=True, eq=False)
class ServerRule:
    """The public rule of a server.

    Attributes:
        aggregate: returns the step of a round, shape (d,), from the updates, the last step and
            chance; None if there is none.
        last: the step of the round before, zeros in the first, shape (d,).
        is_of_angles: whether the step turns with the updates if all are turned alike.
        is_mean: whether it is the mean of the updates.
    """

    aggregate: Callable[
        [Sequence[Update], NDArray[np.float64], np.random.Generator], NDArray[np.float64] | None
    ]
    last: NDArray[np.float64]
    is_of_angles: bool = False
    is_mean: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class AttackInput:
    """Knowledge of an attacker: its own, its colluders', and what is public before it commits.

    It never sees an honest client's update of the round.

    Attributes:
        own: Δ of the attacker's honest training, shape (d,).
        colluders: the honest updates of all attackers that are active in the round, its own
            included, ascending by client, shape (attackers, d).
        rng: its own stream of the round.
        trainers: number of clients whose updates may enter the model of the round, n.
        is_member: whether the attacker is on the committee.
        parameters: the rules of the run; None if there is no committee.
        travel: recent displacement of the global model, in the direction of an update, shape (d,);
            None if the rules have none.
        layout: the tensors of an update; empty if unknown.
        idle: rows of the colluders that are honest in the round, by `malice.only`.
        model: w_t, shape (d,); None if clients start from different models.
        bad_model: w_bad, which the attackers have trained on their own samples with false labels,
            shape (d,); None unless the attack `needs_history`.
        published: updates that honest clients published in the two rounds before, the later
            round first, each ascending by client, of shape (d,); empty in the first round and
            unless the attack `needs_history`.
        drift: sum of the directions that honest clients took in all rounds before, the longer ago
            the less, shape (d,); None in the first round and unless the attack `needs_history`.
        server: the rule of a run without a committee; None if there is one.
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
    members: int = 0
    seats: tuple[int, ...] = ()
    idle: tuple[int, ...] = ()
    model: Update | None = None
    bad_model: Update | None = None
    published: tuple[tuple[Update, ...], ...] = ()
    drift: NDArray[np.float64] | None = None
    server: ServerRule | None = None

    @property
    def mean(self) -> NDArray[np.float64]:
        """The mean of the colluders' honest updates, shape (d,)."""
        return np.asarray(self.colluders.mean(axis=0, dtype=np.float64))


@dataclass(frozen=True, slots=True)
class Factor:
    """Range of an attack's free parameter.

    Attributes:
        usual: the default.
        least: smallest value.
        most: largest value.
    """

    usual: float
    least: float
    most: float


@dataclass(frozen=True, slots=True)
class Attack:
    """What attacks on updates and on samples share.

    Attributes:
        factor: range of the free parameter; None if there is none.
        sends: the update or the samples that it makes, as a phrase.
    """

    name: str
    factor: Factor | None = field(default=None, kw_only=True)
    sends: str = field(default="", kw_only=True)
    source: str = field(default="", kw_only=True)

    def factor_for(self, parameters: AttackParameters) -> float:
        """Return the free parameter; refuse one that is out of range, or not taken."""
        value, range_, name = parameters.factor, self.factor, f"attack {self.name!r}"
        if range_ is None:
            if value is not None:
                raise ConfigurationError(f"malice.factor = {value}: {name} takes none")
            return NO_FACTOR
        if value is None:
            return range_.usual
        if not range_.least <= value <= range_.most:
            raise ConfigurationError(
                f"malice.factor = {value}: {name} takes {range_.least:g} to {range_.most:g}"
            )
        return value


@dataclass(frozen=True, slots=True)
class UpdateAttack(Attack):
    """An attack on updates.

    Attributes:
        forge: returns the update to send instead of the attacker's own, shape (d,).
        is_common: whether all attackers of a round, or all of its members and all of its trainers,
            send the same: it is then forged once, without `own` and `rng`.
        forge_all: returns the updates of all colluders, shape (colluders, d), where one search
            finds them together; None if each forges its own.
        needs_history: whether it needs the run's models, what honest clients published in earlier
            rounds, and a model that the attackers have trained on false labels.
        multiplies_samples: whether its attackers register `factor` times their number of samples.
    """

    forge: Callable[[AttackInput], Update]
    is_common: bool = False
    forge_all: Callable[[AttackInput], NDArray[np.float32]] | None = None
    needs_history: bool = False
    multiplies_samples: bool = False


def joint_attack(
    name: str, forge_all: Callable[[AttackInput], NDArray[np.float32]], **more: Any
) -> UpdateAttack:
    """Return an attack that its colluders make together, with the history of the run."""

    def forge(attacker: AttackInput) -> Update:
        rows = [np.array_equal(row, attacker.own) for row in attacker.colluders]
        return np.array(forge_all(attacker)[rows.index(True) if True in rows else 0])

    return UpdateAttack(name, forge, forge_all=forge_all, needs_history=True, **more)
