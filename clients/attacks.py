"""Clients that do not keep to the protocol: attacks on updates, and faults of who serves.

The three attacks are those of the paper's "Robustness Comparative Experiment", made on the
update (the authors' code makes them on whole weights, which is far easier to see).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ledger.protocol.errors import ConfigurationError

Update = NDArray[np.float32]
_LARGEST_EXAGGERATION = 10.0


@dataclass(frozen=True, slots=True)
class AttackParameters:
    """What the attacks leave open.

    Attributes:
        scaling_floor: a of gradient scaling, in [0, 1]; smaller is stronger. Paper: 0.5.
    """

    scaling_floor: float = 0.5

    def __post_init__(self) -> None:
        """Check the parameters.

        Raises:
            ConfigurationError: a outside [0, 1].
        """
        if not 0 <= self.scaling_floor <= 1:
            raise ConfigurationError(f"scaling_floor = {self.scaling_floor}: must be in [0, 1]")


Attack = Callable[[Update, np.random.Generator, AttackParameters], Update]


def gradient_scaling(
    update: Update, rng: np.random.Generator, parameters: AttackParameters
) -> Update:
    """Return the update with each element multiplied by its own draw from [a, 1).

    Args:
        update: Δ, shape (d,).
        rng: the attacker's stream.
        parameters: a.

    Returns:
        What is sent instead.
    """
    floor = parameters.scaling_floor
    factors = floor + (1.0 - floor) * rng.random(update.shape)
    return (update * factors).astype(np.float32)


def same_value(
    update: Update,
    rng: np.random.Generator,  # noqa: ARG001 - one signature for all attacks
    parameters: AttackParameters,  # noqa: ARG001
) -> Update:
    """Return a vector whose elements are all 0.

    Args:
        update: Δ, shape (d,).
        rng: not used.
        parameters: not used.

    Returns:
        What is sent instead.
    """
    return np.zeros_like(update)


def back_gradient(
    update: Update,
    rng: np.random.Generator,  # noqa: ARG001 - one signature for all attacks
    parameters: AttackParameters,  # noqa: ARG001
) -> Update:
    """Return the update in the opposite direction, −Δ.

    Args:
        update: Δ, shape (d,).
        rng: not used.
        parameters: not used.

    Returns:
        What is sent instead.
    """
    return -update


ATTACKS: Mapping[str, Attack] = {
    "gradient-scaling": gradient_scaling,
    "same-value": same_value,
    "back-gradient": back_gradient,
}


def attack_named(name: str) -> Attack:
    """Return an attack by the paper's name.

    Args:
        name: a key of `ATTACKS`.

    Returns:
        The attack.

    Raises:
        ConfigurationError: unknown name.
    """
    if name not in ATTACKS:
        raise ConfigurationError(f"unknown attack {name!r}; known are {', '.join(ATTACKS)}")
    return ATTACKS[name]


class MemberFault(StrEnum):
    """How a Byzantine committee member misbehaves."""

    FALSE_SCORES = "false-scores"
    SILENT = "silent"
    WRONG_PROPOSAL = "wrong-proposal"
    EQUIVOCATING = "equivocating"


class TrainerFault(StrEnum):
    """How a faulty training client fails to deliver a usable update."""

    NOT_FINITE = "not-finite"
    WRONG_LENGTH = "wrong-length"
    SILENT = "silent"


Fault = TypeVar("Fault", MemberFault, TrainerFault)


def malicious_clients(
    clients: int, malicious_rate: float, rng: np.random.Generator
) -> tuple[int, ...]:
    """Return which clients are malicious for the whole run, floor(rate · K + 1/2) of them.

    Args:
        clients: number of clients K.
        malicious_rate: epsilon, their share of all clients, in [0, 1].
        rng: the assignment's own stream.

    Returns:
        Ascending client indices.

    Raises:
        ConfigurationError: a rate outside [0, 1].
    """
    if not 0 <= malicious_rate <= 1:
        raise ConfigurationError(f"malicious_rate = {malicious_rate}: must be in [0, 1]")
    count = math.floor(malicious_rate * clients + 0.5)
    return tuple(sorted(rng.choice(clients, count, replace=False).tolist()))


def assign_faults(
    candidates: Sequence[int], counts: Mapping[Fault, int], rng: np.random.Generator
) -> dict[int, Fault]:
    """Return which client has which fault, no client more than one.

    Args:
        candidates: clients that may get a fault: all of them, or the malicious ones.
        counts: number of clients with each fault.
        rng: the assignment's own stream.

    Returns:
        Fault by client, in ascending order of clients.

    Raises:
        ConfigurationError: a negative number, or more faults than candidates.
    """
    if any(count < 0 for count in counts.values()):
        raise ConfigurationError("a number of faulty clients is negative")
    faults = [fault for fault, count in counts.items() for _ in range(count)]
    if len(faults) > len(candidates):
        raise ConfigurationError(
            f"{len(faults)} faulty clients wanted, but only {len(candidates)} to choose from"
        )
    chosen = rng.choice(np.array(candidates, dtype=np.int64), len(faults), replace=False)
    return dict(sorted(zip(chosen.tolist(), faults, strict=True)))


def false_scores(distances: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Return what a lying member publishes: who is near looks far, and far looks near.

    The nearest gets the largest distance, the second nearest the second largest, and so on;
    then all are exaggerated by one random factor of 1 to 10. That moves a mean over members by
    as much as the liar likes, and a median by no more than one place.

    Args:
        distances: the true distances D_k, shape (n,).
        rng: the liar's stream.

    Returns:
        The false distances, shape (n,), finite and at least 0 like the true ones.
    """
    order = np.argsort(distances, kind="stable")
    lies = np.empty_like(distances)
    lies[order] = distances[order[::-1]]
    return lies * rng.uniform(1.0, _LARGEST_EXAGGERATION)


def faulty_payload(update: Update, fault: TrainerFault) -> bytes | None:
    """Return the bytes that a faulty trainer publishes instead of its update.

    Args:
        update: its true update, shape (d,), d at least 1.
        fault: how it fails.

    Returns:
        The payload, or None where it publishes nothing.
    """
    match fault:
        case TrainerFault.NOT_FINITE:
            return np.full(update.shape, np.nan, dtype="<f4").tobytes()
        case TrainerFault.WRONG_LENGTH:
            return update.astype("<f4").tobytes()[:-1]
        case TrainerFault.SILENT:
            return None
