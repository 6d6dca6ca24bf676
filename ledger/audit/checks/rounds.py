"""Steps 3, 8 and 10: certificates, sets and roots of a decision, and an account of all clients.

The replay recovers every signature. The findings that two signatures prove against their signer
are made here. Every commitment on the chain, every dropout and every silence is accounted for.
"""

from __future__ import annotations

from collections.abc import Iterator

from ledger.audit.checks.chain import UPDATES_MISSING, compared
from ledger.audit.evidence import UNPROVEN, Accusations, ReplayedEvent, ReplayedRound, RoundEvidence
from ledger.audit.report import (
    AuditStep,
    Contradiction,
    CountIncrement,
    Fact,
    Finding,
    FindingKind,
    MissingInput,
    Need,
    StepResult,
    VoteSlot,
)
from ledger.chain.contract.codec import ReportCall
from ledger.protocol.documents.record import RoundRecord
from ledger.protocol.encoding import to_hex, word_client
from ledger.protocol.inputs import Participants, RoundClosing
from ledger.protocol.judgement import Ranking, result_preimage, sets_of
from ledger.protocol.ledger_state import ClientBanned, RoundDecided, UpdatesCommitted
from ledger.protocol.signing import typed_digest
from ledger.protocol.types import DropoutReason, IncidentKind, Vote
from ledger.protocol.validation import ViolationCode

RANKING_RANGE = Fact(
    "ranking range",
    "there is a ranking",
    "its words, clients or length are out of range, or it is not sorted",
)
RANKED_DIFFER = Fact(
    "ranked", "those are ranked who have a usable update", "of these only one of both is true"
)
ACCEPTED_SET_DIFFERS = Fact(
    "accepted set", "the accepted set is {recorded}", "the ranking gives {true}"
)
NEXT_COMMITTEE_DIFFERS = Fact(
    "next committee", "the next committee is {recorded}", "the ranking gives {true}"
)
UPDATES_ROOT_DIFFERS = Fact(
    "updates root", "the updates root is {recorded}", "the record's updates have {true}"
)
SCORES_ROOT_DIFFERS = Fact(
    "scores root", "the scores root is {recorded}", "the record's scores have {true}"
)
REVEAL_DIFFERS = Fact(
    "reveal", "the reveal is {recorded}", "the payloads of the ranked trainers give {true}"
)
TOO_FEW_TRAINERS = Fact("too few trainers", "the trainers suffice", "fewer than a committee remain")

RANKING_VIOLATIONS = {ViolationCode.TOO_FEW_TRAINERS: TOO_FEW_TRAINERS}


def check_sets(replayed: ReplayedRound) -> Iterator[StepResult]:
    """Yield what does not follow from a decision's ranking alone."""
    event, sizes, at = replayed.decided, replayed.before.deployment, replayed.round
    if not replayed.is_in_range:
        yield Contradiction(RANKING_RANGE, at)
    elif event is not None:
        derived = sets_of(sizes, event.ranking)
        elected = derived.elected(sizes.members, event.next_seed)
        yield from compared(at, ACCEPTED_SET_DIFFERS, event.accepted, derived.accepted)
        yield from compared(at, NEXT_COMMITTEE_DIFFERS, event.next_committee, elected)


def check_ranking(evidence: RoundEvidence) -> Iterator[StepResult]:
    """Yield what does not follow from the scores, the record and the ranking."""
    event, record = evidence.event, evidence.record
    if record is None:
        return
    yield from evidence.contradictions(RANKING_VIOLATIONS)
    ranked = set(map(word_client, event.ranking))
    trainers = set(evidence.inputs.participants.trainers)
    odd = ranked ^ trainers.intersection(record.clients)
    if odd:
        yield Contradiction(RANKED_DIFFER, event.round, tuple(sorted(odd)))
    if ranked <= record.payloads().keys():
        # The result does not bind the candidates.
        ranking = Ranking(event.ranking, event.accepted, candidates=())
        true, at = result_preimage(record, ranking, event.model), event.round
        yield from compared(at, UPDATES_ROOT_DIFFERS, event.updates_root, true.updates_root)
        yield from compared(at, SCORES_ROOT_DIFFERS, event.scores_root, true.scores_root)
        yield from compared(at, REVEAL_DIFFERS, event.reveal, true.reveal)


TRANSACTION_DIFFERS = Fact(
    "transaction", "transaction {subject} made an event", "{true}", AuditStep.CERTIFICATES
)
INPUTS_OPEN = Fact(
    "inputs open", "the round was decided in block {recorded}", "its inputs close with block {true}"
)
BASE_DIFFERS = Fact(
    "base",
    "the base is {recorded}",
    "the commitments up to the closing block {subject} make it {true}",
)
RECORD_OF_ANOTHER = Fact(
    "record of another", "the record is of this round and base", "it is of another round or base"
)
CALL_DATA_UNAVAILABLE = Need(
    "call data",
    "what transaction {detail} asked for, and its signatures: its call data are not to be had, or "
    "not the ledger's",
    (AuditStep.CERTIFICATES,),
)
WRONG_PROPOSAL = FindingKind("wrong proposal", "it signed a wrong request{slot}")
EQUIVOCATION = FindingKind("equivocation", "it signed two different votes{slot}")
SILENT_PRIMARY = FindingKind(
    "silent primary", "as primary it is said to have sent no request{slot}"
)
NO_QUORUM = FindingKind("no quorum", "its request is said to have found no quorum{slot}")
BAN = FindingKind("ban", "it was banned for two different {statements}{slot}")
VOTES = "votes"
IGNORED_INCIDENTS = "ignored incidents"

CERTIFICATE_VIOLATIONS = {ViolationCode.OTHER_ROUND_OR_BASE: RECORD_OF_ANOTHER}
_INCIDENTS = {
    IncidentKind.SILENT: SILENT_PRIMARY,
    IncidentKind.NO_QUORUM: NO_QUORUM,
    IncidentKind.WRONG_PROPOSAL: WRONG_PROPOSAL,
    IncidentKind.EQUIVOCATION: EQUIVOCATION,
}


def check_signatures(replayed: ReplayedEvent) -> Iterator[StepResult]:
    """Yield the client that a report bans, and the numbers of commitments and of votes."""
    event = replayed.event
    if isinstance(event, ClientBanned):
        yield _ban(replayed, event)
    elif isinstance(event, RoundDecided) and replayed.call is not None:
        yield CountIncrement(VOTES, 2 + sum(signers.bit_count() for signers in event.signers))
    elif isinstance(event, UpdatesCommitted):
        yield CountIncrement(COMMITMENTS, len(event.clients))


def check_base(event: RoundDecided, ended: int, closing: RoundClosing) -> Iterator[StepResult]:
    """Yield whether a decision, in block `ended`, has another base or came before the closing."""
    if ended < closing.block:
        yield Contradiction(INPUTS_OPEN, event.round, (), "", str(ended), str(closing.block))
    yield from compared(event.round, BASE_DIFFERS, event.base, closing.base, str(closing.block))


def _ban(replayed: ReplayedEvent, event: ClientBanned) -> Finding:
    before, clients = replayed.before, (event.client,)
    transaction = to_hex(replayed.transaction)
    if not isinstance(replayed.call, ReportCall):
        return Finding(BAN, before.round, clients, (transaction,), proven=False)
    report = replayed.call.report
    first, second = report.first.statement, report.second.statement
    signed = (to_hex(typed_digest(before.domain, statement)) for statement in (first, second))
    phase, view = (first.phase, first.view) if isinstance(first, Vote) else (0, 0)
    return Finding(
        BAN,
        before.round,
        clients,
        (*signed, transaction),
        proven=True,
        reason=report.kind,
        place=VoteSlot(first.round, phase, view),
    )


def check_accusations(evidence: RoundEvidence, accusations: Accusations) -> Iterator[StepResult]:
    """Yield whom the incidents document accuses, and the number of accusations that fail."""
    yield from evidence.contradictions(CERTIFICATE_VIOLATIONS)
    at, domain = evidence.event.round, evidence.inputs.domain
    for incident in accusations.holding:
        yield Finding(
            _INCIDENTS[incident.kind],
            at,
            (incident.member,),
            tuple(to_hex(typed_digest(domain, signed.vote)) for signed in incident.votes),
            proven=incident.kind not in UNPROVEN,
            place=VoteSlot(at, incident.phase, incident.view),
        )
    yield CountIncrement(IGNORED_INCIDENTS, accusations.ignored)


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

COMPLETENESS_VIOLATIONS = {
    ViolationCode.NOT_THE_ACTIVE_CLIENTS: RECORD_CLIENTS,
    ViolationCode.HAS_COMMITTED: HAS_COMMITTED,
    ViolationCode.HAS_NOT_COMMITTED: HAS_NOT_COMMITTED,
    ViolationCode.UPDATE_MALFORMED: UPDATE_MALFORMED,
    ViolationCode.UPDATE_USABLE: UPDATE_USABLE,
}


def check_order(ended: ReplayedRound, due: int) -> Iterator[StepResult]:
    """Yield whether a round is the next that was due to end, and how it ended."""
    yield from compared(ended.round, ROUND_ORDER, ended.round, due)
    if ended.known and ended.decided is not None:
        yield CountIncrement(ROUNDS_DECIDED, 1)
    elif ended.known:
        yield CountIncrement(ROUNDS_ABANDONED, 1)
        evidence = (to_hex(ended.transaction),)
        yield Finding(ABANDONED_ROUND, ended.round, (), evidence, proven=True)


def check_commitments(
    replayed: ReplayedRound, participants: Participants, closing: RoundClosing
) -> Iterator[StepResult]:
    """Yield for every commitment on the chain whether it counted; name those that did not."""
    active, counted = set(participants.active), 0
    for mined in replayed.commitments:
        if mined.block > closing.block:
            count, kind = LATE_COMMITMENTS, LATE_COMMITMENT
        elif mined.client not in active:
            count, kind = STRAY_COMMITMENTS, STRAY_COMMITMENT
        else:
            counted += 1
            continue
        yield CountIncrement(count, 1)
        evidence = (to_hex(mined.commitment),)
        yield Finding(kind, replayed.round, (mined.client,), evidence, proven=True)
    if counted:
        yield CountIncrement(COUNTED_COMMITMENTS, counted)


def check_record(evidence: RoundEvidence, accusations: Accusations) -> Iterator[StepResult]:
    """Yield whether the record accounts for every client, and the evidence that is missing."""
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
        yield from evidence.contradictions(COMPLETENESS_VIOLATIONS)
        yield from _absent(evidence, record)
    if accusations.lost:
        lost = tuple(to_hex(blob.digest) for blob in accusations.lost)
        yield Finding(INCIDENTS_MISSING, event.round, (), lost, proven=False)


def _absent(evidence: RoundEvidence, record: RoundRecord) -> Iterator[StepResult]:
    """Yield the clients that were left out, and the silent members; absence cannot be proven."""
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
