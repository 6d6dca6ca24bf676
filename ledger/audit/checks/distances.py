"""Step 6: each member's published distances against the updates that it had before it.

A false vector that was counted is a contradiction that names its member. A vector that was left
out must deserve it: if it does, its signed digest is kept as evidence; if not, the contradiction
names the member who was wrongly left out.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from ledger.audit.checks.belonging import replayed
from ledger.audit.checks.objections import objected
from ledger.audit.codes import AuditCount, FindingKind, Need, Step
from ledger.audit.observations import DecidedRound
from ledger.audit.report import CountIncrement, Finding, MissingInput
from ledger.audit.sentences import hexed
from ledger.protocol.scores import COUNTING_MARGINS, parse_vector
from ledger.protocol.signing import typed_digest
from ledger.protocol.types import RefusalReason
from ledger.protocol.validation import ViolationCode, validate_score_claim

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.audit.evidence.round_evidence import RoundEvidence
    from ledger.audit.observations import Observation
    from ledger.audit.report import StepResult
    from ledger.protocol.documents.record import RefusedScores, RoundRecord
    from ledger.protocol.scores import DistanceTable

NUMBER = Step.DISTANCES
TITLE = "each member's distances"

_NEED_UPDATES = {RefusalReason.FALSE_DISTANCE, RefusalReason.NO_USABLE_UPDATE}

_UNFOUNDED = {ViolationCode.REFUSAL_UNFOUNDED, ViolationCode.VECTOR_TOO_LONG}

_KINDS = {
    RefusalReason.FALSE_DISTANCE: FindingKind.FALSE_SCORES,
    RefusalReason.TWO_VECTORS: FindingKind.TWO_VECTORS,
}


def check(seen: Observation) -> Iterator[StepResult]:
    """Yield false scores that count, true ones that do not, and who was caught.

    Args:
        seen: any observation.
    """
    yield from replayed(NUMBER, seen)
    if not isinstance(seen, DecidedRound) or seen.found.record is None:
        return
    found = seen.found
    yield from objected(NUMBER, found)
    if found.lacks_displacement:
        yield MissingInput(Need.TRAVEL, found.event.round)
    if found.table is not None:
        members = sum(member in found.updates for member in found.inputs.participants.members)
        yield CountIncrement(AuditCount.DISTANCES, members * len(found.updates))
    yield from _refused(found, seen.found.record)


def _refused(found: RoundEvidence, record: RoundRecord) -> Iterator[StepResult]:
    """Yield the evidence of scores that were left out, unless they were so wrongly."""
    unfounded = {doubt.clients[0] for doubt in found.violations if doubt.code in _UNFOUNDED}
    for member, group in groupby(record.refused, key=lambda entry: entry.signed.scores.member):
        if member not in unfounded:
            yield from _left_out(found, tuple(group))


def _left_out(found: RoundEvidence, entries: tuple[RefusedScores, ...]) -> Iterator[StepResult]:
    """Yield the evidence of one member's scores that were left out."""
    inputs, at, first = found.inputs, found.event.round, entries[0]
    member, reason = first.signed.scores.member, first.reason
    table = found.table if found.is_whole else None
    if table is None and reason in _NEED_UPDATES:
        yield MissingInput(Need.REFUSAL, at, (member,))
    is_signed = not any(validate_score_claim(inputs, entry.signed) for entry in entries)
    evidence = (
        hexed(digest)
        for scores in (entry.signed.scores for entry in entries)
        for digest in (scores.digest, typed_digest(inputs.domain, scores))
    )
    yield Finding(
        _KINDS.get(reason, FindingKind.REFUSED_SCORES),
        at,
        (member,),
        tuple(evidence),
        proven=is_signed and _is_compared(found, first, table),
        reason=reason,
        named=first.client if reason is RefusalReason.FALSE_DISTANCE else None,
    )


def _is_compared(found: RoundEvidence, entry: RefusedScores, table: DistanceTable | None) -> bool:
    """Say whether the reason was seen to hold, beyond the margin of doubt."""
    if entry.reason is RefusalReason.TWO_VECTORS:
        return True
    data = found.evidence.vectors.get(entry.signed.scores.digest)
    if data is None or (table is None and entry.reason in _NEED_UPDATES):
        return False
    if entry.reason is not RefusalReason.FALSE_DISTANCE:
        return True
    vector, member = parse_vector(data), entry.signed.scores.member
    claim = vector.claims().get(entry.client) if vector is not None else None
    return (
        table is not None
        and claim is not None
        and table.is_off(entry.client, member, claim, COUNTING_MARGINS)
    )
