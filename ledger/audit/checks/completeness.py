"""Step 10: every commitment on the chain, every dropout and every silence is accounted for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.audit.checks.belonging import replayed
from ledger.audit.checks.objections import objected
from ledger.audit.codes import AuditCount, Fact, FindingKind, Step
from ledger.audit.observations import (
    AppearedPayload,
    ClosedRound,
    DecidedRound,
    ReplayedEvent,
    WatchedRound,
)
from ledger.audit.report import Contradiction, CountIncrement, Finding
from ledger.audit.sentences import hexed
from ledger.protocol.ledger_state import UpdatesCommitted
from ledger.protocol.types import DropoutReason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.audit.evidence.round_evidence import RoundEvidence
    from ledger.audit.observations import Observation
    from ledger.audit.report import StepResult
    from ledger.protocol.documents.record import RoundRecord
    from ledger.protocol.types import ClientId

NUMBER = Step.COMPLETENESS
TITLE = "nothing missing in between"


def check(seen: Observation) -> Iterator[StepResult]:
    """Yield rounds out of order, what became of every commitment, and who was left out.

    Args:
        seen: any observation.
    """
    yield from replayed(NUMBER, seen)
    match seen:
        case ReplayedEvent(event=UpdatesCommitted() as event):
            yield CountIncrement(AuditCount.COMMITMENTS, len(event.clients))
        case WatchedRound():
            yield from _of_order(seen)
        case ClosedRound():
            yield from _of_commitments(seen)
        case DecidedRound(_, found):
            yield from _of_record(found)
            if seen.accusations.lost:
                lost = tuple(hexed(one.digest) for one in seen.accusations.lost)
                kind = FindingKind.INCIDENTS_MISSING
                yield Finding(kind, found.event.round, (), lost, proven=False)
        case AppearedPayload(_, at, client, payload):
            kind, evidence = FindingKind.PAYLOAD_APPEARED, (hexed(payload),)
            yield Finding(kind, at, (client,), evidence, proven=False)
        case _:
            pass


def _of_order(seen: WatchedRound) -> Iterator[StepResult]:
    at, ended = seen.replayed.round, seen.replayed
    if at != seen.due:
        yield Contradiction(Fact.ROUND_ORDER, at, (), "", str(at), str(seen.due))
    if not ended.known:
        return
    if ended.decided is not None:
        yield CountIncrement(AuditCount.ROUNDS_DECIDED, 1)
        return
    yield CountIncrement(AuditCount.ROUNDS_ABANDONED, 1)
    evidence = (hexed(ended.transaction),)
    yield Finding(FindingKind.ABANDONED_ROUND, at, (), evidence, proven=True)


def _of_commitments(seen: ClosedRound) -> Iterator[StepResult]:
    """Say of every commitment on the chain whether it counted, and name those that did not."""
    active = set(seen.participants.active)
    for mined in seen.replayed.commitments:
        if mined.block > seen.closing.block:
            count, kind = AuditCount.LATE_COMMITMENTS, FindingKind.LATE_COMMITMENT
        elif mined.client not in active:
            count, kind = AuditCount.STRAY_COMMITMENTS, FindingKind.STRAY_COMMITMENT
        else:
            yield CountIncrement(AuditCount.COUNTED_COMMITMENTS, 1)
            continue
        yield CountIncrement(count, 1)
        evidence = (hexed(mined.commitment),)
        yield Finding(kind, seen.replayed.round, (mined.client,), evidence, proven=True)


def _of_record(found: RoundEvidence) -> Iterator[StepResult]:
    at, event = found.event.round, found.event
    if found.malformed:
        recorded = hexed(event.record)
        yield Contradiction(Fact.RECORD_MALFORMED, at, recorded=recorded, true=found.malformed)
    if found.record is not None:
        yield from objected(NUMBER, found)
        yield from _absent(found, found.record)


def _absent(found: RoundEvidence, record: RoundRecord) -> Iterator[StepResult]:
    """Yield who was left out of a round, and who kept silent.

    Whether a payload was missing in time nobody can prove, nor that a member sent no scores.
    """
    at, participants = found.event.round, found.inputs.participants
    for dropout in record.dropouts:
        evidence = () if dropout.payload is None else (hexed(dropout.payload),)
        who = (dropout.client,)
        if dropout.client in participants.banned:
            yield Finding(FindingKind.EMPTY_SEAT, at, who, (), proven=True)
            continue
        is_proven = dropout.reason is not DropoutReason.PAYLOAD_MISSING
        kind = FindingKind.DROPOUT
        yield Finding(kind, at, who, evidence, is_proven, reason=dropout.reason)
    heard = {signed.scores.member for signed in record.scores}
    heard |= {entry.signed.scores.member for entry in record.refused}
    for member in sorted(set(participants.members).intersection(record.clients) - heard):
        if _owes_no_scores(found, member):
            evidence = (hexed(record.payloads()[member]),)
            yield Finding(FindingKind.SCORES_NOT_DUE, at, (member,), evidence, proven=True)
        else:
            yield Finding(FindingKind.SILENT_MEMBER, at, (member,), (), proven=False)


def _owes_no_scores(found: RoundEvidence, member: ClientId) -> bool:
    """Say whether a member's update is seen to be one that nobody could score by."""
    table = found.table
    return table is not None and member in found.updates and not table.can_score(member)
