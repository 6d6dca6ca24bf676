"""What was aggregated, with weights and roots, and all that the result that was voted on binds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.history.facts.words import coded, finite, hexed, hexed_or_none
from ledger.protocol import encoding
from ledger.protocol.types import AcceptanceForm

if TYPE_CHECKING:
    from ledger.history.facts.words import Facts, Told
    from ledger.protocol.types import ClientId


def aggregation_facts(told: Told) -> Facts:
    """Return what was aggregated; all empty unless the round is decided.

    Args:
        told: the round.
    """
    decided, form = told.one.decided, told.history.fixed.form
    opening = None if decided is None else decided.opening()
    return told.heading() | {
        "form": coded(form),
        "accepted": _accepted(told, decided.accepted if decided else ()),
        "set": None if decided is None else hexed(encoding.set_digest(decided.accepted)),
        "threshold": None
        if decided is None or form is not AcceptanceForm.WITHIN_THRESHOLD
        else {
            "value": finite(encoding.float_from_bits(decided.threshold_bits)),
            "bits": str(decided.threshold_bits),
        },
        "model": None if opening is None else hexed(opening.model),
        "updates_root": None if opening is None else hexed(opening.updates_root),
        "scores_root": None if opening is None else hexed(opening.scores_root),
        "ranking_digest": None if opening is None else hexed(opening.ranking_digest),
        "reveal": None if opening is None else hexed(opening.reveal),
        "record": told.record(),
        "result": None if decided is None else hexed(decided.result()),
    }


def _accepted(told: Told, accepted: tuple[ClientId, ...]) -> list[Facts]:
    """Return S_a in ranking order, with p_k = n_k / Σ n_k, exactly and as a float64."""
    samples = [told.one.registry[client].samples for client in accepted]
    total = sum(samples)
    payloads = told.documents.payloads
    return [
        {
            "client": client,
            "rank": told.one.places[client][0],
            "payload": hexed_or_none(payloads.get(client)),
            "weight": {"numerator": str(own), "denominator": str(total), "value": own / total},
        }
        for client, own in zip(accepted, samples, strict=True)
    ]
