"""Faults of members and trainers: names, assignment, and some of the false values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ledger.protocol.errors import ConfigurationError
from ledger.protocol.payload import Payload

_LARGEST_EXAGGERATION = 10.0


class MemberFault(StrEnum):
    """Faults of a committee member; `faulty_members` implements them.

    Its own update as a wild reference, and honest distances to it, is `FALSE_REFERENCE`; bending
    its
    distances once all others have published is `GRINDING`; a record that hides what others did is
    `WHITEWASHING`; a request far ahead of its view is `VIEW_JUMPER`. Near scores for favoured
    clients
    are `FAVOURING`; one false vector that all of its kind have agreed on, in favour of the same, is
    `COLLUDING`; another member's vector as its own is `COPYING`.
    """

    FALSE_SCORES = "false-scores"
    SILENT = "silent"
    WRONG_PROPOSAL = "wrong-proposal"
    EQUIVOCATING = "equivocating"
    GRINDING = "grinding"
    VIEW_JUMPER = "view-jumper"
    FALSE_REFERENCE = "false-reference"
    WHITEWASHING = "whitewashing"
    FAVOURING = "favouring"
    COLLUDING = "colluding"
    COPYING = "copying"


WILD_FACTOR = 100.0
"""How much too large the update of a member with a false reference is."""

FAVOURS = frozenset({MemberFault.FAVOURING, MemberFault.COLLUDING})
"""Faults of members that favour somebody."""


class TrainerFault(StrEnum):
    """Faults of a training client; `faulty_trainers` implements them.

    `STRAY` is a commitment by a client that is not active, `COPIED` another's commitment repeated,
    `SELF_BAN` a proof of equivocation against oneself, sent while the round is open.
    """

    NOT_FINITE = "not-finite"
    WRONG_LENGTH = "wrong-length"
    SILENT = "silent"
    LATE = "late"
    STRAY = "stray"
    COPIED = "copied"
    SELF_BAN = "self-ban"


UNINVITED = frozenset({TrainerFault.STRAY})
"""Faults of clients that act in rounds in which they are not active."""


Fault = TypeVar("Fault", MemberFault, TrainerFault)


def assign_faults(
    candidates: Sequence[int], counts: Mapping[Fault, int], rng: np.random.Generator
) -> dict[int, Fault]:
    """Return the fault of each faulty client, at most one each, in ascending order of clients.

    Args:
        candidates: clients that may get a fault.
        rng: the assignment's own stream.
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
    """Return the false distances of a lying member: near looks far, and far looks near.

    The nearest gets the largest distance, the second nearest the second largest, and so on; then
    all are exaggerated by one random factor of 1 to 10. That moves a mean over members at will, and
    a median by at most one rank. The true and the false distances have shape (n,).
    """
    order = np.argsort(distances, kind="stable")
    lies = np.empty_like(distances)
    lies[order] = distances[order[::-1]]
    return lies * rng.uniform(1.0, _LARGEST_EXAGGERATION)


def wild_reference(honest: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a member's update, shape (d,), scaled to be a wild reference for its scores."""
    return (honest * WILD_FACTOR).astype("<f4")


def faulty_payload(honest: Payload, fault: TrainerFault) -> Payload | None:
    """Return the payload of a faulty trainer; None if it publishes nothing.

    Most faults are not in the payload, and leave it unchanged.
    """
    match fault:
        case TrainerFault.NOT_FINITE:
            return Payload.of(np.full(honest.size // 4, np.nan, dtype="<f4").tobytes())
        case TrainerFault.WRONG_LENGTH:
            return Payload.of(memoryview(honest.data).cast("B")[:-1])
        case TrainerFault.SILENT:
            return None
        case _:
            return honest
