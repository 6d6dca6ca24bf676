"""Step 10: every commitment on the chain, every dropout and every silence is accounted for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.audit.codes import Count, FindingKind
from ledger.audit.report import Finding
from ledger.audit.sentences import hexed
from ledger.protocol.types import DropoutReason

if TYPE_CHECKING:
    from ledger.audit.evidence import RoundEvidence
    from ledger.audit.findings import AuditLog
    from ledger.audit.replay import ReplayedRound
    from ledger.protocol.closing import Closing
    from ledger.protocol.inputs import Participants


def account_for_commitments(
    replayed: ReplayedRound, participants: Participants, closing: Closing, log: AuditLog
) -> None:
    """Say of every commitment on the chain whether it counted, and name those that did not.

    Args:
        replayed: a round that has ended.
        participants: who took part.
        closing: where its inputs end.
        log: where counts and findings are written down.
    """
    active = set(participants.active)
    for mined in replayed.commitments:
        if mined.block > closing.block:
            count, kind = Count.LATE_COMMITMENTS, FindingKind.LATE_COMMITMENT
        elif mined.client not in active:
            count, kind = Count.STRAY_COMMITMENTS, FindingKind.STRAY_COMMITMENT
        else:
            log.counts[Count.COUNTED_COMMITMENTS] += 1
            continue
        log.counts[count] += 1
        evidence = (hexed(mined.commitment),)
        log.find(Finding(kind, replayed.round, (mined.client,), evidence, proven=True))


def find_absent(found: RoundEvidence, log: AuditLog) -> None:
    """Name who was left out of a round, and who kept silent.

    Whether a payload was missing in time nobody can prove, nor that a member sent no scores.

    Args:
        found: of a decided round.
        log: where findings are written down.
    """
    record, at = found.record, found.event.round
    if record is None:
        return
    participants = found.inputs.participants
    for dropout in record.dropouts:
        evidence = () if dropout.payload is None else (hexed(dropout.payload),)
        who = (dropout.client,)
        if dropout.client in participants.banned:
            log.find(Finding(FindingKind.EMPTY_SEAT, at, who, (), proven=True))
            continue
        is_proven = dropout.reason is not DropoutReason.PAYLOAD_MISSING
        kind = FindingKind.DROPOUT
        log.find(Finding(kind, at, who, evidence, is_proven, reason=dropout.reason))
    heard = {signed.scores.member for signed in record.scores}
    heard |= {entry.signed.scores.member for entry in record.refused}
    for member in sorted(set(participants.members).intersection(record.clients) - heard):
        log.find(Finding(FindingKind.SILENT_MEMBER, at, (member,), (), proven=False))
