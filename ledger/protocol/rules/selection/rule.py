"""What a selection rule is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.protocol.types import AcceptanceForm, ClientId

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ledger.protocol.rules.selected import SelectionOutcome


@dataclass(frozen=True, slots=True)
class SelectionRule:
    """A selection strategy.

    Attributes:
        number: as in TOML and in the run document.
        name: the paper's word for it.
        form: how the contract derives the same set.
        select: from the ranking words (best first), m and the threshold's bits to S_a in
            ranking order.
        sentence: explains what was selected.
    """

    number: int
    name: str
    form: AcceptanceForm
    select: Callable[[Sequence[int], int, int], tuple[ClientId, ...]]
    sentence: Callable[[SelectionOutcome], str]

    @property
    def needs_threshold(self) -> bool:
        """Whether the committee certifies a threshold for it."""
        return self.form is AcceptanceForm.WITHIN_THRESHOLD
