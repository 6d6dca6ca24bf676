"""Where each objection of the protocol's judges belongs among the steps: the one table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.audit.codes import Fact, Need, Step
from ledger.audit.report import Contradiction, MissingInput
from ledger.audit.sentences import why
from ledger.protocol.consensus import majority
from ledger.protocol.documents.vector import MAX_VECTOR_BYTES
from ledger.protocol.validation import ViolationCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.audit.evidence.round_evidence import RoundEvidence
    from ledger.protocol.types import ClientId
    from ledger.protocol.validation import Violation

CONTRADICTED: dict[ViolationCode, tuple[Step, Fact]] = {
    ViolationCode.OTHER_ROUND_OR_BASE: (Step.CERTIFICATES, Fact.RECORD_OF_ANOTHER),
    ViolationCode.NOT_THE_ACTIVE_CLIENTS: (Step.COMPLETENESS, Fact.RECORD_CLIENTS),
    ViolationCode.OPENS_NO_COMMITMENT: (Step.BLOBS, Fact.OPENS_NO_COMMITMENT),
    ViolationCode.HAS_COMMITTED: (Step.COMPLETENESS, Fact.HAS_COMMITTED),
    ViolationCode.HAS_NOT_COMMITTED: (Step.COMPLETENESS, Fact.HAS_NOT_COMMITTED),
    ViolationCode.UPDATE_MALFORMED: (Step.COMPLETENESS, Fact.UPDATE_MALFORMED),
    ViolationCode.UPDATE_USABLE: (Step.COMPLETENESS, Fact.UPDATE_USABLE),
    ViolationCode.NO_MEMBER: (Step.DISTANCES, Fact.NO_MEMBER),
    ViolationCode.CLAIM_NOT_SIGNED: (Step.DISTANCES, Fact.CLAIM_NOT_SIGNED),
    ViolationCode.VECTOR_TOO_LONG: (Step.DISTANCES, Fact.VECTOR_TOO_LONG),
    ViolationCode.SCORES_DO_NOT_COUNT: (Step.DISTANCES, Fact.SCORES_COUNTED),
    ViolationCode.REFUSAL_UNFOUNDED: (Step.DISTANCES, Fact.SCORES_REFUSED),
    ViolationCode.TOO_FEW_SCORES: (Step.DISTANCES, Fact.TOO_FEW_SCORES),
    ViolationCode.TOO_FEW_TRAINERS: (Step.RANKING, Fact.TOO_FEW_TRAINERS),
}
"""Objections that contradict the record: the step that fails, and what is not so."""

UNCHECKED: dict[ViolationCode, tuple[Step, Need]] = {
    ViolationCode.UPDATE_MISSING: (Step.DISTANCES, Need.UPDATES),
    ViolationCode.VECTOR_MISSING: (Step.DISTANCES, Need.VECTORS),
}
"""Objections for want of a blob: the step that they leave open."""


def objected(step: Step, found: RoundEvidence) -> Iterator[Contradiction | MissingInput]:
    """Yield what the protocol's judges object to a record, if it belongs to a step.

    Args:
        step: which.
        found: the round.
    """
    at = found.event.round
    for doubt in found.violations:
        if doubt.code in UNCHECKED:
            own, need = _left_open(doubt, found)
            if own is step:
                yield MissingInput(need, at, doubt.clients)
            continue
        own, fact = CONTRADICTED[doubt.code]
        if own is step:
            yield Contradiction(fact, at, _named(doubt), "", *_values(doubt, found))


def _left_open(doubt: Violation, found: RoundEvidence) -> tuple[Step, Need]:
    """Return the step that a doubt leaves open, and for want of what."""
    step, need = UNCHECKED[doubt.code]
    counted = () if found.record is None else found.record.clients
    if doubt.code is ViolationCode.UPDATE_MISSING and doubt.clients[0] not in counted:
        # No distance is taken of a malformed payload: whether it is one is left open.
        return Step.COMPLETENESS, need
    return step, need


def _named(doubt: Violation) -> tuple[ClientId, ...]:
    """Return whom an objection is about: of a false distance the member, and not its victim."""
    if doubt.code is ViolationCode.SCORES_DO_NOT_COUNT:
        return doubt.clients[:1]
    return doubt.clients


def _values(doubt: Violation, found: RoundEvidence) -> tuple[str, str]:
    """Return what is recorded and what is true, for the objections that have values."""
    match doubt.code:
        case ViolationCode.SCORES_DO_NOT_COUNT:
            return "", why(doubt.reason, doubt.clients[1:])
        case ViolationCode.REFUSAL_UNFOUNDED:
            return why(doubt.reason), ""
        case ViolationCode.VECTOR_TOO_LONG:
            return "", str(MAX_VECTOR_BYTES)
        case ViolationCode.TOO_FEW_SCORES:
            counted = 0 if found.record is None else len(found.record.scores)
            return str(counted), str(majority(found.inputs.parameters.members))
        case _:
            return "", ""
