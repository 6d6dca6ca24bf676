"""Step 6: each member's published distances against the updates that it had before it.

A false vector that was counted is a contradiction that names its member. A vector that was left
out must deserve it: if it does, its signed digest is kept as evidence; if not, the contradiction
names the member who was wrongly left out.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from ledger.audit.codes import Count, FindingKind, Need, Step
from ledger.audit.report import Finding, Missing
from ledger.audit.sentences import hexed
from ledger.audit.steps.objections import note
from ledger.protocol.doubts import Doubt, Objection, doubt_claim, judge_scores
from ledger.protocol.judgement import counted_vectors
from ledger.protocol.rules.registry import DISTANCES
from ledger.protocol.scores import COUNTED_TO, DistanceTable, parse_vector
from ledger.protocol.signing import typed_digest
from ledger.protocol.types import RefusalReason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.audit.evidence import RoundEvidence
    from ledger.audit.findings import AuditLog
    from ledger.protocol.documents.record import RefusedScores, RoundRecord

_NEED_UPDATES = {RefusalReason.FALSE_DISTANCE, RefusalReason.NO_USABLE_UPDATE}

_KINDS = {
    RefusalReason.FALSE_DISTANCE: FindingKind.FALSE_SCORES,
    RefusalReason.TWO_VECTORS: FindingKind.TWO_VECTORS,
}


def check_distances(found: RoundEvidence, log: AuditLog) -> list[Doubt]:
    """Judge every score vector of a round, those that count and those that do not.

    Args:
        found: of a decided round.
        log: where objections and findings are written down.

    Returns:
        The doubts, with which later steps know what can be put together.
    """
    record, inputs = found.record, found.inputs
    if record is None:
        return []
    table = _table(found)
    is_whole = found.updates.keys() == set(record.clients)
    doubts = judge_scores(inputs, record, found.evidence, table if is_whole else None)
    if table is not None and not (is_whole and inputs.parameters.scores_checked):
        doubts += _false_distances(found, record, table)
    note(doubts, found, log)
    if table is not None:
        members = sum(member in found.updates for member in inputs.participants.members)
        log.counts[Count.DISTANCES] += members * len(found.updates)
    unfounded = {
        doubt.clients[0] for doubt in doubts if doubt.objection is Objection.REFUSAL_UNFOUNDED
    }
    for _, group in groupby(record.refused, key=lambda entry: entry.signed.scores.member):
        entries = list(group)
        if entries[0].signed.scores.member not in unfounded:
            _find_refused(found, entries, table if is_whole else None, log)
    return doubts


def _table(found: RoundEvidence) -> DistanceTable | None:
    """Return true distances as far as they can be computed; None if none can."""
    assert found.record is not None
    rule = DISTANCES[found.inputs.parameters.distance]
    if rule.needs_all and found.updates.keys() != set(found.record.clients):
        return None
    return DistanceTable(found.inputs, found.updates)


def _false_distances(
    found: RoundEvidence, record: RoundRecord, table: DistanceTable
) -> Iterator[Doubt]:
    """Yield what is false among the distances whose updates are there.

    Where members do not check scores, false ones are named all the same.
    """
    for vector in counted_vectors(record, found.evidence):
        if vector.clients != record.clients or not table.can_score(vector.member):
            continue
        for client, claim in vector.claims().items():
            if client in found.updates and table.is_off(client, vector.member, claim, COUNTED_TO):
                named = (vector.member, client)
                reason = RefusalReason.FALSE_DISTANCE
                yield Doubt(Objection.SCORES_DO_NOT_COUNT, named, reason)
                break


def _find_refused(
    found: RoundEvidence,
    entries: list[RefusedScores],
    table: DistanceTable | None,
    log: AuditLog,
) -> None:
    """Keep the evidence of one member's scores that were left out."""
    inputs, at, first = found.inputs, found.event.round, entries[0]
    member, reason = first.signed.scores.member, first.reason
    if table is None and reason in _NEED_UPDATES:
        log.lack(Missing(Need.REFUSAL, at, (member,)), Step.DISTANCES)
    is_signed = not any(doubt_claim(inputs, entry.signed) for entry in entries)
    evidence = (
        hexed(digest)
        for scores in (entry.signed.scores for entry in entries)
        for digest in (scores.digest, typed_digest(inputs.domain, scores))
    )
    log.find(
        Finding(
            _KINDS.get(reason, FindingKind.REFUSED_SCORES),
            at,
            (member,),
            tuple(evidence),
            proven=is_signed and _is_compared(found, first, table),
            reason=reason,
            named=first.client if reason is RefusalReason.FALSE_DISTANCE else None,
        )
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
        and table.is_off(entry.client, member, claim, COUNTED_TO)
    )
