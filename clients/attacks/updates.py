"""Attacks on updates: the interface, and attacks that need only the colluders' own updates."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from clients.configuration.schema import Attacked, Attacking, MaliceSection
    from ledger.protocol.parameters import Parameters


Update = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class AttackParameters:
    """The settings of an attack: its free parameter, the vector it changes, and its attackers."""

    factor: float | None = None
    on: Attacked | None = None
    only: Attacking | None = None


def attack_parameters(malice: MaliceSection) -> AttackParameters:
    """Return the settings that an attack takes from a configuration."""
    return AttackParameters(malice.factor, malice.on, malice.only)


@dataclass(frozen=True, slots=True, eq=False)
class ServerRule:
    """The public rule of a server."""

    # Returns the step of a round, shape (d,), of updates, last step and chance.
    aggregate: Callable[
        [Sequence[Update], NDArray[np.float64], np.random.Generator], NDArray[np.float64] | None
    ]
    last: NDArray[np.float64] | None  # None for a secret update of the server
    is_of_angles: bool = False  # whether the step turns with the updates if all are turned alike


@dataclass(frozen=True, slots=True, eq=False)
class AttackHistory:
    """Attackers' knowledge of earlier rounds."""

    bad_model: Update
    # Usable updates of honest clients in the last two rounds with any, the later first, ascending.
    published: tuple[tuple[Update, ...], ...] = ()
    # e = .85 e + unit(mean of the usable honest updates) after each round.
    drift: NDArray[np.float64] | None = None
    travel: Update | None = None  # of the model in the last 10 to 19 rounds, as an update points


@dataclass(frozen=True, slots=True, eq=False)
class AttackInput:
    """An attacker's knowledge: its own, colluders' and public; no honest update of the round."""

    own: Update  # Δ of the attacker's honest training, shape (d,)
    # The honest updates of all attackers of the round, ascending by client, shape (attackers, d).
    colluders: NDArray[np.float32]
    rng: np.random.Generator
    factor: float
    trainers: int = 1  # number of clients whose updates may enter the model of the round, n
    attacking_trainers: int = 1
    is_member: bool = False
    parameters: Parameters | None = None  # None without a committee: `server` has the rule
    travel: Update | None = None  # the model's recent displacement, as an update points
    members: int = 0
    seats: tuple[int, ...] = ()  # rows of the colluders that are on the committee
    idle: tuple[int, ...] = ()  # rows of those that are honest in the round, by `malice.only`
    model: Update | None = None  # w_t, shape (d,), where an attack needs the history
    history: AttackHistory | None = None
    server: ServerRule | None = None

    @property
    def mean(self) -> NDArray[np.float64]:
        return np.asarray(self.colluders.mean(axis=0, dtype=np.float64))


@dataclass(frozen=True, slots=True)
class Factor:
    """Default and range of an attack's free parameter."""

    usual: float
    least: float
    most: float


@dataclass(frozen=True, slots=True)
class Attack:
    """Common part of attacks on updates and samples; `sends` is a phrase for their product."""

    name: str
    factor: Factor | None = field(default=None, kw_only=True)
    sends: str = field(default="", kw_only=True)
    source: str = field(default="", kw_only=True)

    def factor_for(self, parameters: AttackParameters) -> float:
        """Return the free parameter; refuse one that is out of range, or not taken."""
        value, range_, name = parameters.factor, self.factor, f"attack {self.name!r}"
        if range_ is None:
            if value is not None:
                raise ConfigurationError(f"malice.factor = {value}: {name} takes no factor")
            return 1.0
        if value is None:
            return range_.usual
        if not range_.least <= value <= range_.most:
            raise ConfigurationError(
                f"malice.factor = {value}: {name} takes {range_.least:g} to {range_.most:g}"
            )
        return value


@dataclass(frozen=True, slots=True)
class UpdateAttack(Attack):
    """An attack on updates."""

    # Returns the update to send instead of the attacker's own, shape (d,).
    forge: Callable[[AttackInput], Update]
    is_common: bool = False  # all members, and all trainers, send the same, whatever own and rng
    # Returns the updates of all colluders, shape (colluders, d), if found together.
    forge_all: Callable[[AttackInput], NDArray[np.float32]] | None = None
    needs_history: bool = False  # whether it needs the rounds before, and a model of false labels
    multiplies_samples: bool = False  # its attackers register `factor` times their samples


def described(forge: Callable[..., Any]) -> dict[str, Any]:
    """Return the name and the phrase of an attack, which its function's docstring returns."""
    sentence = " ".join((inspect.getdoc(forge) or "").partition("\n\n")[0].split())
    name = forge.__name__.replace("_", "-")
    return {"name": name, "sends": sentence.removeprefix("Return ").removesuffix(".")}


def joint_attack(
    forge_all: Callable[[AttackInput], NDArray[np.float32]], **more: Any
) -> UpdateAttack:
    """Return an attack that its colluders make together, with the history of the run."""

    def forge(attacker: AttackInput) -> Update:
        rows = [np.array_equal(row, attacker.own) for row in attacker.colluders]
        return np.array(forge_all(attacker)[rows.index(True) if True in rows else 0])

    about = more if "name" in more else described(forge_all) | more
    return UpdateAttack(forge=forge, forge_all=forge_all, needs_history=True, **about)


def gradient_scaling(attacker: AttackInput) -> Update:
    """Return the update with each element multiplied by its own draw from [a, 1)."""
    floor = attacker.factor
    factors = floor + (1.0 - floor) * attacker.rng.random(attacker.own.shape)
    return (attacker.own * factors).astype(np.float32)


def same_value(attacker: AttackInput) -> Update:
    """Return a zero vector, the value in the authors' code."""
    return np.zeros_like(attacker.own)


def back_gradient(attacker: AttackInput) -> Update:
    """Return −s Δ, the update in the opposite direction."""
    return (-attacker.factor * attacker.own).astype(np.float32)


def gaussian(attacker: AttackInput) -> Update:
    """Return noise instead of the update: each element drawn from N(0, s² ‖Δ‖² / d)."""
    own = attacker.own.astype(np.float64)
    deviation = attacker.factor * float(np.sqrt(np.mean(own * own)))
    return (deviation * attacker.rng.standard_normal(own.shape)).astype(np.float32)


def ipm(attacker: AttackInput) -> Update:
    """Return −s times the mean of the colluders' honest updates, the same from each colluder."""
    return (-attacker.factor * attacker.mean).astype(np.float32)


def alie(attacker: AttackInput) -> Update:
    """Return μ − z σ, element by element: a shift within the spread of honest updates.

    μ and σ are mean and standard deviation of the colluders' honest updates. A single attacker
    sends its own update. z is the factor, or the paper's, `largest_z` of the round, if that is 0.
    """
    z = attacker.factor or largest_z(attacker.trainers, attacker.attacking_trainers)
    deviation = attacker.colluders.std(axis=0, dtype=np.float64)
    return np.asarray(attacker.mean - z * deviation, dtype=np.float32)


def largest_z(clients: int, attackers: int) -> float:
    """Return Φ⁻¹((n − f − s) / (n − f)), s = ⌊n/2 + 1⌋ − f, of n clients that may enter the model.

    s honest clients have to be farther out than the attackers to put these into the majority. It
    is 0 if that takes more than half of the honest; a majority of attackers needs one.
    """
    honest = clients - attackers
    supporters = max(clients // 2 + 1 - attackers, 1)
    share = (honest - supporters) / honest if honest > 0 else 0.0
    return NormalDist().inv_cdf(share) if share > 1 / 2 else 0.0


def mimic(attacker: AttackInput) -> Update:
    """Return the honest update of one fixed colluder, Δ_i*, the same from each colluder.

    The paper mimics an honest client chosen by all honest updates, which attackers do not see here.
    """
    return np.array(attacker.colluders[0])


def min_max(attacker: AttackInput) -> Update:
    """Return the mean, moved back within the largest distance between two colluders."""
    honest = attacker.colluders.astype(np.float64)
    mean = attacker.mean
    forged = (1 - largest_step(honest, mean, -mean)) * mean
    return np.asarray(forged, dtype=np.float32)


def largest_step(
    honest: NDArray[np.float64], start: NDArray[np.float64], direction: NDArray[np.float64]
) -> float:
    """Return the largest γ, a root, that keeps start + γ direction within the widest distance."""
    slope = float(direction @ direction)
    if slope == 0:
        return 0.0
    widest = max(float(((update - honest) ** 2).sum(axis=1).max()) for update in honest)
    offsets = start - honest
    half = offsets @ direction
    room = np.maximum(widest - (offsets**2).sum(axis=1), 0.0)
    return float(((np.sqrt(half**2 + slope * room) - half) / slope).min())


def false_reference(attacker: AttackInput) -> Update:
    """Return −s Δ̄ as a trainer (`ipm`), and −F Δ as a member, F times the reversed update."""
    if attacker.is_member:
        return (-attacker.factor * attacker.own.astype(np.float64)).astype(np.float32)
    return (-0.5 * attacker.mean).astype(np.float32)


def _attack(forge: Callable[[AttackInput], Update], source: str, **more: Any) -> UpdateAttack:
    return UpdateAttack(forge=forge, source=source, **described(forge), **more)


_MULTIPLE = Factor(1.0, 0.01, 1000.0)
_PAPER = 'of the paper\'s "Robustness Comparative Experiment"'

ATTACKS: tuple[UpdateAttack, ...] = (
    _attack(gradient_scaling, f"Gradient scaling, {_PAPER}", factor=Factor(0.5, 0.0, 1.0)),
    _attack(same_value, f"Same value, {_PAPER}"),
    _attack(back_gradient, f"Back-gradient, {_PAPER}, with optional scaling", factor=_MULTIPLE),
    _attack(
        gaussian,
        'Gaussian noise (Blanchard et al. 2017, "Machine Learning with Adversaries")',
        factor=_MULTIPLE,
    ),
    _attack(
        alie,
        'ALIE (Baruch, Baruch, Goldberg 2019, "A Little Is Enough")',
        factor=Factor(0.0, 0.0, 10.0),
        is_common=True,
    ),
    _attack(
        ipm,
        'Inner-product manipulation (Xie, Koyejo, Gupta 2020, "Fall of Empires")',
        factor=Factor(0.5, 0.01, 1000.0),
        is_common=True,
    ),
    _attack(
        min_max,
        'Min-Max (Shejwalkar, Houmansadr 2021, "Manipulating the Byzantine")',
        is_common=True,
    ),
    _attack(
        mimic,
        'Mimic (Karimireddy, He, Jaggi 2022, "Byzantine-Robust Learning on Heterogeneous '
        'Datasets")',
        is_common=True,
    ),
    _attack(
        false_reference,
        "False reference: `ipm` as a trainer, a reversed reference as a member (ours)",
        factor=Factor(10.0, 0.01, 1000.0),
    ),
)
