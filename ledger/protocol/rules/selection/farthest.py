"""Strategy II of the paper: the m trainers farthest from the committee."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.protocol.encoding import word_client
from ledger.protocol.rules.selection.rule import SelectionRule
from ledger.protocol.types import AcceptanceForm, ClientId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.protocol.rules.selected import SelectionOutcome


def farthest(
    ranking: Sequence[int],
    accepted: int,
    threshold_bits: int,  # noqa: ARG001 - one signature for all rules
) -> tuple[ClientId, ...]:
    """Return the last m of the ranking, in ranking order.

    Args:
        ranking: ranking words, best first.
        accepted: m.
        threshold_bits: not used.
    """
    return tuple(word_client(word) for word in ranking[len(ranking) - accepted :])


def _sentence(found: SelectionOutcome) -> str:
    return f"the {found.accepted} farthest were accepted, from distance {found.edge:.6g} on."


FARTHEST = SelectionRule(
    number=2, name="II", form=AcceptanceForm.LAST, select=farthest, sentence=_sentence
)
