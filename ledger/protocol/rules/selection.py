"""Selection rules: the trainers of a ranking that enter the model ("Selection Strategy")."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.protocol.encoding import word_client
from ledger.protocol.types import AcceptanceForm, ClientId

if TYPE_CHECKING:
    from collections.abc import Sequence


Sentence = Callable[[int, float, float, str], str]
"""Explains a selection by the size of S_a, the accepted distance nearest to those refused, the
certified threshold (0 without one) and the threshold's name."""


@dataclass(frozen=True, slots=True)
class SelectionRule:
    """A selection strategy.

    Attributes:
        number: as in TOML and in the run document.
        name: the paper's word for it.
        form: from which the contract derives the same set.
        select: from the ranking words (best first), m and the threshold's bits to S_a in
            ranking order.
        sentence: explains the selection to a reader.
    """

    number: int
    name: str
    form: AcceptanceForm
    select: Callable[[Sequence[int], int, int], tuple[ClientId, ...]]
    sentence: Sentence

    @property
    def needs_threshold(self) -> bool:
        """True if the committee certifies a threshold for it."""
        return self.form is AcceptanceForm.WITHIN_THRESHOLD


def nearest(
    ranking: Sequence[int],
    accepted: int,
    threshold_bits: int,  # noqa: ARG001 - one signature for all rules
) -> tuple[ClientId, ...]:
    """Return the first m of the ranking (strategy I)."""
    return tuple(word_client(word) for word in ranking[:accepted])


def farthest(
    ranking: Sequence[int],
    accepted: int,
    threshold_bits: int,  # noqa: ARG001
) -> tuple[ClientId, ...]:
    """Return the last m of the ranking, in ranking order (strategy II)."""
    return tuple(word_client(word) for word in ranking[len(ranking) - accepted :])


def within_threshold(
    ranking: Sequence[int], accepted: int, threshold_bits: int
) -> tuple[ClientId, ...]:
    """Return all trainers within the threshold, the m nearest if none is (strategy III, ours)."""
    within = sum(word >> 32 <= threshold_bits for word in ranking)
    return tuple(word_client(word) for word in ranking[: within or accepted])


def _nearest_sentence(accepted: int, edge: float, _threshold: float, _name: str) -> str:
    return f"the {accepted} nearest were accepted, up to distance {edge:.6g}."


def _farthest_sentence(accepted: int, edge: float, _threshold: float, _name: str) -> str:
    return f"the {accepted} farthest were accepted, from distance {edge:.6g} on."


def _threshold_sentence(accepted: int, edge: float, threshold: float, name: str) -> str:
    limit = f"distance {threshold:.6g}, {name},"
    if edge > threshold:
        return f"none lies within {limit} so the {accepted} nearest were accepted."
    return f"the {accepted} within {limit} were accepted."


NEAREST = SelectionRule(1, "I", AcceptanceForm.FIRST, nearest, _nearest_sentence)
FARTHEST = SelectionRule(2, "II", AcceptanceForm.LAST, farthest, _farthest_sentence)
WITHIN_THRESHOLD = SelectionRule(
    3, "III", AcceptanceForm.WITHIN_THRESHOLD, within_threshold, _threshold_sentence
)
