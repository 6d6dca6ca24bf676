"""Selection rules: the trainers of a ranking that enter the model ("Selection Strategy")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.protocol.encoding import word_client
from ledger.protocol.types import AcceptanceForm, ClientId

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True, slots=True)
class SelectionOutcome:
    """The figures of the sentence that explains a selection.

    Attributes:
        accepted: size of S_a.
        edge: the accepted distance nearest to those refused.
        threshold: the certified threshold, 0 without one.
        threshold_sentence: name of the threshold.
    """

    accepted: int
    edge: float
    threshold: float
    threshold_sentence: str


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
    sentence: Callable[[SelectionOutcome], str]

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


def _nearest_sentence(outcome: SelectionOutcome) -> str:
    return f"the {outcome.accepted} nearest were accepted, up to distance {outcome.edge:.6g}."


def _farthest_sentence(outcome: SelectionOutcome) -> str:
    return f"the {outcome.accepted} farthest were accepted, from distance {outcome.edge:.6g} on."


def _threshold_sentence(outcome: SelectionOutcome) -> str:
    limit = f"{outcome.threshold_sentence} of {outcome.threshold:.6g}"
    if outcome.edge > outcome.threshold:
        return f"none lies within {limit}, so the {outcome.accepted} nearest were accepted."
    return f"the {outcome.accepted} within {limit} were accepted."


NEAREST = SelectionRule(1, "I", AcceptanceForm.FIRST, nearest, _nearest_sentence)
FARTHEST = SelectionRule(2, "II", AcceptanceForm.LAST, farthest, _farthest_sentence)
WITHIN_THRESHOLD = SelectionRule(
    3, "III", AcceptanceForm.WITHIN_THRESHOLD, within_threshold, _threshold_sentence
)
