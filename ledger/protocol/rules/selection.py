"""Selection rules: the trainers of a ranking that enter the model ("Selection Strategy")."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.protocol.encoding import TWO_BITS, word_client
from ledger.protocol.types import AcceptanceForm, ClientId

if TYPE_CHECKING:
    from collections.abc import Sequence


Sentence = Callable[[int, float], str]
"""Explains a selection by the size of S_a and the accepted distance nearest to those refused."""


@dataclass(frozen=True, slots=True)
class SelectionRule:
    """A selection strategy.

    Attributes:
        number: as in TOML and in the run document.
        name: the paper's word for it.
        form: from which the contract derives the same set.
        select: from the ranking words (best first) and m to S_a in ranking order.
        sentence: explains the selection to a reader.
    """

    number: int
    name: str
    form: AcceptanceForm
    select: Callable[[Sequence[int], int], tuple[ClientId, ...]]
    sentence: Sentence

    @property
    def needs_threshold(self) -> bool:
        """True if it compares distances with a threshold."""
        return self.form is AcceptanceForm.BELOW_TWO


def nearest(ranking: Sequence[int], accepted: int) -> tuple[ClientId, ...]:
    """Return the first m of the ranking (strategy I)."""
    return tuple(word_client(word) for word in ranking[:accepted])


def farthest(ranking: Sequence[int], accepted: int) -> tuple[ClientId, ...]:
    """Return the last m of the ranking, in ranking order (strategy II)."""
    return tuple(word_client(word) for word in ranking[len(ranking) - accepted :])


def below_two(ranking: Sequence[int], accepted: int) -> tuple[ClientId, ...]:
    """Return all trainers at a distance below 2, the m nearest if none is (strategy III, ours)."""
    below = sum(word >> 32 < TWO_BITS for word in ranking)
    return tuple(word_client(word) for word in ranking[: below or accepted])


def _nearest_sentence(accepted: int, edge: float) -> str:
    return f"the {accepted} nearest were accepted, up to distance {edge:.6g}."


def _farthest_sentence(accepted: int, edge: float) -> str:
    return f"the {accepted} farthest were accepted, from distance {edge:.6g} on."


def _below_two_sentence(accepted: int, edge: float) -> str:
    if edge >= 2:
        return f"no distance is below 2, so the {accepted} nearest were accepted."
    return f"the {accepted} at a distance below 2 were accepted."


NEAREST = SelectionRule(1, "I", AcceptanceForm.FIRST, nearest, _nearest_sentence)
FARTHEST = SelectionRule(2, "II", AcceptanceForm.LAST, farthest, _farthest_sentence)
BELOW_TWO = SelectionRule(3, "III", AcceptanceForm.BELOW_TWO, below_two, _below_two_sentence)
