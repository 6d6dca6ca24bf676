"""Where each objection of the protocol's judges belongs among the steps: the one table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.audit.codes import Fact, Need, Step
from ledger.audit.report import Contradiction, Missing
from ledger.audit.sentences import why
from ledger.protocol.consensus import majority
from ledger.protocol.documents.vector import MAX_VECTOR_BYTES
from ledger.protocol.doubts import Objection

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.audit.evidence.round import RoundEvidence
    from ledger.protocol.doubts import Doubt
    from ledger.protocol.types import ClientId

CONTRADICTED: dict[Objection, tuple[Step, Fact]] = {
    Objection.OTHER_ROUND_OR_BASE: (Step.CERTIFICATES, Fact.RECORD_OF_ANOTHER),
    Objection.NOT_THE_ACTIVE_CLIENTS: (Step.COMPLETENESS, Fact.RECORD_CLIENTS),
    Objection.OPENS_NO_COMMITMENT: (Step.BLOBS, Fact.OPENS_NO_COMMITMENT),
    Objection.HAS_COMMITTED: (Step.COMPLETENESS, Fact.HAS_COMMITTED),
    Objection.HAS_NOT_COMMITTED: (Step.COMPLETENESS, Fact.HAS_NOT_COMMITTED),
    Objection.UPDATE_MALFORMED: (Step.COMPLETENESS, Fact.UPDATE_MALFORMED),
    Objection.UPDATE_USABLE: (Step.COMPLETENESS, Fact.UPDATE_USABLE),
    Objection.NO_MEMBER: (Step.DISTANCES, Fact.NO_MEMBER),
    Objection.CLAIM_NOT_SIGNED: (Step.DISTANCES, Fact.CLAIM_NOT_SIGNED),
    Objection.VECTOR_TOO_LONG: (Step.DISTANCES, Fact.VECTOR_TOO_LONG),
    Objection.SCORES_DO_NOT_COUNT: (Step.DISTANCES, Fact.SCORES_COUNTED),
    Objection.REFUSAL_UNFOUNDED: (Step.DISTANCES, Fact.SCORES_REFUSED),
    Objection.TOO_FEW_SCORES: (Step.DISTANCES, Fact.TOO_FEW_SCORES),
    Objection.TOO_FEW_TRAINERS: (Step.RANKING, Fact.TOO_FEW_TRAINERS),
}
"""Objections that contradict the record: the step that fails, and what is not so."""

UNCHECKED: dict[Objection, tuple[Step, Need]] = {
    Objection.UPDATE_MISSING: (Step.DISTANCES, Need.UPDATES),
    Objection.VECTOR_MISSING: (Step.DISTANCES, Need.VECTORS),
}
"""Objections for want of a blob: the step that they leave open."""


def objected(step: Step, found: RoundEvidence) -> Iterator[Contradiction | Missing]:
    """Yield what the protocol's judges object to a record, if it belongs to a step.

    Args:
        step: which.
        found: the round.
    """
    at = found.event.round
    for doubt in found.doubts:
        if doubt.objection in UNCHECKED:
            own, need = _left_open(doubt, found)
            if own is step:
                yield Missing(need, at, doubt.clients)
            continue
        own, fact = CONTRADICTED[doubt.objection]
        if own is step:
            yield Contradiction(fact, at, _named(doubt), "", *_values(doubt, found))


def _left_open(doubt: Doubt, found: RoundEvidence) -> tuple[Step, Need]:
    """Return the step that a doubt leaves open, and for want of what."""
    step, need = UNCHECKED[doubt.objection]
    counted = () if found.record is None else found.record.clients
    if doubt.objection is Objection.UPDATE_MISSING and doubt.clients[0] not in counted:
        # No distance is taken of a malformed payload: whether it is one is left open.
        return Step.COMPLETENESS, need
    return step, need


def _named(doubt: Doubt) -> tuple[ClientId, ...]:
    """Return whom an objection is about: of a false distance the member, and not its victim."""
    if doubt.objection is Objection.SCORES_DO_NOT_COUNT:
        return doubt.clients[:1]
    return doubt.clients


def _values(doubt: Doubt, found: RoundEvidence) -> tuple[str, str]:
    """Return what is recorded and what is true, for the objections that have values."""
    match doubt.objection:
        case Objection.SCORES_DO_NOT_COUNT:
            return "", why(doubt.reason, doubt.clients[1:])
        case Objection.REFUSAL_UNFOUNDED:
            return why(doubt.reason), ""
        case Objection.VECTOR_TOO_LONG:
            return "", str(MAX_VECTOR_BYTES)
        case Objection.TOO_FEW_SCORES:
            counted = 0 if found.record is None else len(found.record.scores)
            return str(counted), str(majority(found.inputs.parameters.members))
        case _:
            return "", ""
