"""Selection rules: the trainers of a ranking that enter the model ("Selection Strategy")."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ledger.protocol.encoding import float_bits, word_client
from ledger.protocol.rules.direction import RIGHT_ANGLE
from ledger.protocol.types import AcceptanceForm, ClientId

RIGHT_ANGLE_BITS = float_bits(RIGHT_ANGLE)


def nearest(ranking: Sequence[int], accepted: int) -> tuple[ClientId, ...]:
    """Return the first m of the ranking (strategy I)."""
    return tuple(word_client(word) for word in ranking[:accepted])


def farthest(ranking: Sequence[int], accepted: int) -> tuple[ClientId, ...]:
    """Return the last m of the ranking, in ranking order (strategy II)."""
    return tuple(word_client(word) for word in ranking[len(ranking) - accepted :])


def below_two(ranking: Sequence[int], accepted: int) -> tuple[ClientId, ...]:
    """Return all trainers at a distance below 2, the m nearest if none is (strategy III, ours)."""
    below = sum(word >> 32 < RIGHT_ANGLE_BITS for word in ranking)
    return tuple(word_client(word) for word in ranking[: below or accepted])


SELECTIONS: dict[AcceptanceForm, Callable[[Sequence[int], int], tuple[ClientId, ...]]] = {
    AcceptanceForm.FIRST: nearest,
    AcceptanceForm.LAST: farthest,
    AcceptanceForm.BELOW_TWO: below_two,
}
"""From the ranking words (best first) and m to S_a in ranking order."""
