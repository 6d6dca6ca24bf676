"""Strategy I of the paper: the m trainers nearest to the committee."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.protocol.encoding import word_client
from ledger.protocol.rules.selection.rule import SelectionRule
from ledger.protocol.types import AcceptanceForm, ClientId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.protocol.rules.selected import SelectionOutcome


def nearest(
    ranking: Sequence[int],
    accepted: int,
    threshold_bits: int,  # noqa: ARG001 - one signature for all rules
) -> tuple[ClientId, ...]:
    """Return the first m of the ranking.

    Args:
        ranking: ranking words, best first.
        accepted: m.
        threshold_bits: not used.
    """
    return tuple(word_client(word) for word in ranking[:accepted])


def _sentence(found: SelectionOutcome) -> str:
    return f"the {found.accepted} nearest were accepted, up to distance {found.edge:.6g}."


NEAREST = SelectionRule(
    number=1, name="I", form=AcceptanceForm.FIRST, select=nearest, sentence=_sentence
)
