"""What became of each trainer's update."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.history.facts.words import coded, finite, hexed_or_none
from ledger.history.participation import trainers_of
from ledger.protocol.encoding import float_from_bits

if TYPE_CHECKING:
    from ledger.history.facts.words import Facts, Told
    from ledger.history.participation import Participation


def updates_facts(told: Told) -> Facts:
    """Return every sampled trainer, ascending, and what became of its update.

    Args:
        told: the round.
    """
    entries = [_entry(part) for part in trainers_of(told.one, told.documents)]
    return told.heading() | {"updates": entries, "record": told.record()}


def _entry(part: Participation) -> Facts:
    outcome = None if part.outcome is None else part.outcome.value
    return {
        "client": part.client,
        "outcome": outcome,
        "committed": part.committed,
        "commitment": hexed_or_none(part.commitment),
        "payload": hexed_or_none(part.payload),
        **placed(part),
        "reason": None if part.dropout is None else coded(part.dropout),
    }


def placed(part: Participation) -> Facts:
    """Return rank and distance of an update; all None if it is not ranked."""
    bits = part.distance_bits
    return {
        "rank": part.rank,
        "distance": None if bits is None else finite(float_from_bits(bits)),
        "distance_bits": None if bits is None else str(bits),
    }
