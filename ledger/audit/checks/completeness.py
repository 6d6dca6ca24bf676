"""Step 10: every commitment on the chain, every dropout and every silence is accounted for."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.audit.checks.common import UPDATES_MISSING, AuditCheck, contradictions_of
from ledger.audit.evidence import RoundEvidence
from ledger.audit.observations import (
    ClosedRound,
    DecidedRound,
    EndedRound,
    Observation,
    ReplayedEvent,
)
from ledger.audit.report import (
    AuditStep,
    Contradiction,
    CountIncrement,
    Fact,
    Finding,
    FindingKind,
    MissingInput,
    StepResult,
)
from ledger.protocol.documents.record import RoundRecord
from ledger.protocol.encoding import to_hex
from ledger.protocol.errors import Refusal
from ledger.protocol.ledger_state import UpdatesCommitted
from ledger.protocol.types import DropoutReason
from ledger.protocol.validation import ViolationCode

EVENT_COUNT = Fact(
    "event count",
    "transaction {subject} made {recorded} events",
    "it made {true}",
    AuditStep.COMPLETENESS,
)
ROUND_ORDER = Fact("round order", "round {recorded} is the next that ended", "round {true} is due")
RECORD_MALFORMED = Fact(
    "record malformed", "blob {recorded} is the round's record", "it is not: {true}"
)
RECORD_CLIENTS = Fact(
    "record clients",
    "the record tells of all who were active, and of nobody else",
    "of these it does not, or they were not active",
)
HAS_COMMITTED = Fact(
    "has committed", "it had not committed", "its commitment is on the chain in time"
)
HAS_NOT_COMMITTED = Fact(
    "has not committed", "its payload is missing or malformed", "it had not even committed in time"
)
UPDATE_MALFORMED = Fact(
    "update malformed", "its update is usable", "its payload is no update of the model"
)
UPDATE_USABLE = Fact("update usable", "its payload is malformed", "it is a usable update")
EMPTY_SEAT = FindingKind("empty seat", "its seat is empty: it was banned before the round")
SILENT_MEMBER = FindingKind("silent member", "no scores of this member are recorded")
SCORES_NOT_DUE = FindingKind(
    "scores not due",
    "no scores of it are due: its update, all zeros, has no distances that tell anything",
)
DROPOUT = FindingKind("dropout", "it was left out: {reason}")
STRAY_COMMITMENT = FindingKind(
    "stray commitment", "it committed though it was neither trainer nor member"
)
LATE_COMMITMENT = FindingKind(
    "late commitment", "it committed after the closing block, to no effect"
)
ABANDONED_ROUND = FindingKind(
    "abandoned round", "the round ended at its deadline without a decision; the model stayed"
)
PAYLOAD_APPEARED = FindingKind(
    "payload appeared",
    "its payload is there, though it is recorded as missing: nobody can know since when",
    is_remark=True,
)
INCIDENTS_MISSING = FindingKind(
    "incidents missing",
    "evidence that the round's incidents name is not to be had: whom it accused is not known",
    is_remark=True,
)
COMMITMENTS = "commitments"
COUNTED_COMMITMENTS = "counted commitments"
STRAY_COMMITMENTS = "stray commitments"
LATE_COMMITMENTS = "late commitments"
ROUNDS_DECIDED = "rounds decided"
ROUNDS_ABANDONED = "rounds abandoned"

VIOLATIONS = {
    ViolationCode.NOT_THE_ACTIVE_CLIENTS: RECORD_CLIENTS,
    ViolationCode.HAS_COMMITTED: HAS_COMMITTED,
    ViolationCode.HAS_NOT_COMMITTED: HAS_NOT_COMMITTED,
    ViolationCode.UPDATE_MALFORMED: UPDATE_MALFORMED,
    ViolationCode.UPDATE_USABLE: UPDATE_USABLE,
}


def check_completeness(observation: Observation) -> Iterator[StepResult]:
    """Yield rounds out of order, the fate of every commitment, and the clients left out."""
    match observation:
        case ReplayedEvent(event=UpdatesCommitted() as event):
            yield CountIncrement(COMMITMENTS, len(event.clients))
        case EndedRound():
            yield from _check_order(observation)
        case ClosedRound():
            yield from _account_for_commitments(observation)
        case DecidedRound(_, evidence):
            yield from _check_record(evidence)
            if observation.accusations.lost:
                lost = tuple(to_hex(blob.digest) for blob in observation.accusations.lost)
                yield Finding(INCIDENTS_MISSING, evidence.event.round, (), lost, proven=False)
        case _:
            pass


def _check_order(observation: EndedRound) -> Iterator[StepResult]:
    ended, at = observation.replayed, observation.replayed.round
    if at != observation.due:
        yield Contradiction(ROUND_ORDER, at, (), "", str(at), str(observation.due))
    if not ended.known:
        return
    if ended.decided is not None:
        yield CountIncrement(ROUNDS_DECIDED, 1)
        return
    yield CountIncrement(ROUNDS_ABANDONED, 1)
    yield Finding(ABANDONED_ROUND, at, (), (to_hex(ended.transaction),), proven=True)


def _account_for_commitments(closed: ClosedRound) -> Iterator[StepResult]:
    """Yield for every commitment on the chain whether it counted; name those that did not."""
    active = set(closed.participants.active)
    for mined in closed.replayed.commitments:
        if mined.block > closed.closing.block:
            count, kind = LATE_COMMITMENTS, LATE_COMMITMENT
        elif mined.client not in active:
            count, kind = STRAY_COMMITMENTS, STRAY_COMMITMENT
        else:
            yield CountIncrement(COUNTED_COMMITMENTS, 1)
            continue
        yield CountIncrement(count, 1)
        evidence = (to_hex(mined.commitment),)
        yield Finding(kind, closed.replayed.round, (mined.client,), evidence, proven=True)


def _check_record(evidence: RoundEvidence) -> Iterator[StepResult]:
    event, record = evidence.event, evidence.record
    if evidence.malformed:
        digest = to_hex(event.record)
        yield Contradiction(RECORD_MALFORMED, event.round, recorded=digest, true=evidence.malformed)
    if record is not None:
        for violation in evidence.violations:
            is_missing = violation.code is ViolationCode.UPDATE_MISSING
            if is_missing and violation.clients[0] not in record.clients:
                # Whether the payload of a dropout is malformed is left open.
                yield MissingInput(UPDATES_MISSING, event.round, violation.clients)
        yield from contradictions_of(evidence, VIOLATIONS)
        yield from _absent(evidence, record)


def _absent(evidence: RoundEvidence, record: RoundRecord) -> Iterator[StepResult]:
    """Yield the clients that were left out of a round, and the silent members.

    It cannot be proven that a payload was missing in time, nor that a member sent no scores.
    """
    at, participants = evidence.event.round, evidence.inputs.participants
    for dropout in record.dropouts:
        digests = () if dropout.payload is None else (to_hex(dropout.payload),)
        clients = (dropout.client,)
        if dropout.client in participants.banned:
            yield Finding(EMPTY_SEAT, at, clients, (), proven=True)
            continue
        is_proven = dropout.reason is not DropoutReason.PAYLOAD_MISSING
        yield Finding(DROPOUT, at, clients, digests, is_proven, reason=dropout.reason)
    table = evidence.table
    heard = {signed.scores.member for signed in record.scores}
    heard |= {entry.signed.scores.member for entry in record.refused}
    for member in sorted(set(participants.members).intersection(record.clients) - heard):
        if table is not None and member in evidence.updates and not table.can_score(member):
            digests = (to_hex(record.payloads()[member]),)
            yield Finding(SCORES_NOT_DUE, at, (member,), digests, proven=True)
        else:
            yield Finding(SILENT_MEMBER, at, (member,), (), proven=False)


COMPLETENESS_CHECK = AuditCheck(
    AuditStep.COMPLETENESS,
    "nothing missing in between",
    check_completeness,
    refusals=(
        Refusal.NO_ROUND_OPEN,
        Refusal.NOT_OPENED,
        Refusal.WRONG_ROUND,
        Refusal.NO_COMMITMENT,
        Refusal.NO_COMMITMENTS,
        Refusal.NOTHING_TAKEN,
        Refusal.COMMITMENTS_CLOSED,
        Refusal.RANKING_TOO_EARLY,
        Refusal.DEADLINE_NOT_REACHED,
    ),
    event_fields=frozenset({"round", "client"}),
)
