"""Steps 3 and 5 to 10: a round's decision, what was published of it, and all of its clients.

The replay recovers every signature. The findings that two signatures prove against their signer
are made here. Every commitment on the chain, every dropout and every silence is accounted for.

A false vector that was counted is a contradiction that names its member. A vector that was left
out must deserve it: if it does, its signed digest is kept as evidence; if not, the contradiction
names the member who was wrongly left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby

import numpy as np

from ledger.audit.checks.chain import OWN_RULE_MISSING, UPDATES_MISSING, VECTORS_UNUSABLE, compared
from ledger.audit.evidence import (
    UNPROVEN,
    Accusations,
    BlobFailure,
    ModelStep,
    ReplayedEvent,
    ReplayedRound,
    RoundEvidence,
    UnavailableBlob,
)
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
    reason_text,
)
from ledger.chain.contract.codec import ReportCall
from ledger.protocol.documents.record import MAX_VECTOR_BYTES, RefusedScores, RoundRecord
from ledger.protocol.encoding import float_from_bits, to_hex, word_client
from ledger.protocol.inputs import Participants, RoundClosing
from ledger.protocol.judgement import Ranking, result_preimage, sets_of
from ledger.protocol.ledger_state import ClientBanned, RoundDecided, UpdatesCommitted
from ledger.protocol.parameters import majority
from ledger.protocol.signing import typed_digest
from ledger.protocol.types import ClientId, Digest, DropoutReason, IncidentKind, RefusalReason, Vote
from ledger.protocol.validation import (
    COUNTING_MARGINS,
    DistanceTable,
    Violation,
    ViolationCode,
    parse_vector,
    validate_score_claim,
)

BLOB_DAMAGED = Fact("blob", "the {subject} is blob {recorded}", "it is not: {true}")
OPENS_NO_COMMITMENT = Fact(
    "opens no commitment",
    "the payload opens its commitment on the chain",
    "it does not open a commitment that its client made in time",
)
BLOB_MISSING = Need("blob", "the {subject} {detail} is missing")
BLOB_UNREADABLE = Need("blob unreadable", "the {subject} cannot be read: {detail}")
EQUAL_PAYLOADS = FindingKind("equal payloads", "they committed to the same payload")

BLOB_VIOLATIONS = {ViolationCode.OPENS_NO_COMMITMENT: OPENS_NO_COMMITMENT}


def check_blobs(
    evidence: RoundEvidence, model: ModelStep, accusations: Accusations
) -> Iterator[StepResult]:
    """Yield blobs that are missing or damaged, and payloads that open nothing or are shared."""
    # An unsigned document may name anything; only a blob that is there can be damaged.
    accused = [blob for blob in accusations.lost if blob.loss is BlobFailure.DAMAGED]
    yield from unavailable_blobs(*evidence.lost, model.lost, *accused)
    yield from evidence.contradictions(BLOB_VIOLATIONS)
    # A malformed payload shows no copying: in form q8 all that diverge publish the same byte.
    clients_by_payload: dict[Digest, list[ClientId]] = defaultdict(list)
    payloads = evidence.record.payloads() if evidence.record is not None else {}
    for client, payload in sorted(payloads.items()):
        clients_by_payload[payload].append(client)
    for payload, clients in clients_by_payload.items():
        if len(clients) > 1:
            named = tuple(clients), (to_hex(payload),)
            yield Finding(EQUAL_PAYLOADS, evidence.event.round, *named, proven=True)


def unavailable_blobs(*blobs: UnavailableBlob | None) -> Iterator[StepResult]:
    """Yield what unavailable blobs contradict or leave open."""
    for blob in filter(None, blobs):
        name, about = to_hex(blob.digest), (blob.round, blob.clients)
        if blob.loss in {BlobFailure.DAMAGED, BlobFailure.TOO_LARGE}:
            yield Contradiction(BLOB_DAMAGED, *about, str(blob.kind), name, blob.detail)
        elif blob.loss is BlobFailure.MISSING:
            yield MissingInput(BLOB_MISSING, *about, blob.kind, name)
        else:
            yield MissingInput(BLOB_UNREADABLE, *about, blob.kind, f"{name} ({blob.detail})")


NO_MEMBER = Fact(
    "no member",
    "its score vector comes from a member",
    "it is not a member, or its seat is empty",
)
CLAIM_NOT_SIGNED = Fact(
    "claim not signed", "it claimed a score vector", "it did not sign the claim"
)
VECTOR_TOO_LONG = Fact(
    "vector too long",
    "its score vector counts or is refused",
    "the vector is over {true} bytes long, and must not be recorded",
)
SCORES_COUNTED = Fact("scores counted", "its scores count", "{true}")
SCORES_REFUSED = Fact("scores refused", "its scores do not count: {recorded}", "this is false")
TOO_FEW_SCORES = Fact(
    "too few scores", "{recorded} score vectors suffice", "the protocol needs {true}"
)
VECTORS_MISSING = Need("vectors", "no score vector is available")
REFUSAL_UNCHECKED = Need("refusal", "whether the scores were rightly refused")
DISPLACEMENT_UNKNOWN = Need("travel", "its distances need two models, and they are not both known")
FALSE_SCORES = FindingKind(
    "false scores", "its scores were left out: its distance to client {named} is false"
)
REFUSED_SCORES = FindingKind("refused scores", "its scores were left out: {reason}")
TWO_VECTORS = FindingKind(
    "two vectors", "it signed two different score vectors for the same updates"
)
DISTANCES = "distances"

SCORE_VIOLATIONS = {
    ViolationCode.NO_MEMBER: NO_MEMBER,
    ViolationCode.CLAIM_NOT_SIGNED: CLAIM_NOT_SIGNED,
    ViolationCode.VECTOR_TOO_LONG: VECTOR_TOO_LONG,
    ViolationCode.SCORES_DO_NOT_COUNT: SCORES_COUNTED,
    ViolationCode.REFUSAL_UNFOUNDED: SCORES_REFUSED,
    ViolationCode.TOO_FEW_SCORES: TOO_FEW_SCORES,
}
UNCHECKED = {
    ViolationCode.UPDATE_MISSING: UPDATES_MISSING,
    ViolationCode.VECTOR_MISSING: VECTORS_MISSING,
}
_UNFOUNDED = {ViolationCode.REFUSAL_UNFOUNDED, ViolationCode.VECTOR_TOO_LONG}
_NEED_UPDATES = {RefusalReason.FALSE_DISTANCE, RefusalReason.NO_USABLE_UPDATE}
_FINDINGS = {RefusalReason.FALSE_DISTANCE: FALSE_SCORES, RefusalReason.TWO_VECTORS: TWO_VECTORS}


def check_distances(evidence: RoundEvidence) -> Iterator[StepResult]:
    """Yield false scores that count, true ones that do not, and their members."""
    record, at = evidence.record, evidence.event.round
    if record is None:
        return
    for violation in evidence.violations:
        yield from _violation(violation, evidence, record)
    if evidence.lacks_displacement:
        yield MissingInput(DISPLACEMENT_UNKNOWN, at)
    if (rule := evidence.unknown_distance) is not None:
        detail = f"{rule.label} (sha256 {rule.digest})"
        yield MissingInput(OWN_RULE_MISSING, at, detail=detail)
    if evidence.table is not None:
        members = sum(member in evidence.updates for member in evidence.inputs.participants.members)
        yield CountIncrement(DISTANCES, members * len(evidence.updates))
    # The evidence of scores that were left out, unless they were so wrongly.
    unfounded = {each.clients[0] for each in evidence.violations if each.code in _UNFOUNDED}
    for member, group in groupby(record.refused, key=lambda entry: entry.signed.scores.member):
        if member not in unfounded:
            yield from _left_out(evidence, tuple(group))


def _violation(
    violation: Violation, evidence: RoundEvidence, record: RoundRecord
) -> Iterator[StepResult]:
    code, at, clients = violation.code, evidence.event.round, violation.clients
    if code in UNCHECKED:
        # No distance is taken of a malformed payload: whether it is one is left open elsewhere.
        if code is ViolationCode.VECTOR_MISSING or clients[0] in record.clients:
            yield MissingInput(UNCHECKED[code], at, clients)
    elif code in SCORE_VIOLATIONS:
        reason, needed = violation.reason, majority(evidence.inputs.parameters.members)
        recorded, true = {
            ViolationCode.SCORES_DO_NOT_COUNT: ("", reason_text(reason, clients[1:])),
            ViolationCode.REFUSAL_UNFOUNDED: (reason_text(reason), ""),
            ViolationCode.VECTOR_TOO_LONG: ("", str(MAX_VECTOR_BYTES)),
            ViolationCode.TOO_FEW_SCORES: (str(len(record.scores)), str(needed)),
        }.get(code, ("", ""))
        named = clients[:1] if code is ViolationCode.SCORES_DO_NOT_COUNT else clients
        yield Contradiction(SCORE_VIOLATIONS[code], at, named, "", recorded, true)


def _left_out(evidence: RoundEvidence, entries: tuple[RefusedScores, ...]) -> Iterator[StepResult]:
    inputs, at, first = evidence.inputs, evidence.event.round, entries[0]
    member, reason = first.signed.scores.member, first.reason
    table = evidence.table if evidence.is_whole else None
    if table is None and reason in _NEED_UPDATES:
        yield MissingInput(REFUSAL_UNCHECKED, at, (member,))
    is_signed = not any(validate_score_claim(inputs, entry.signed) for entry in entries)
    digests = (
        to_hex(digest)
        for scores in (entry.signed.scores for entry in entries)
        for digest in (scores.digest, typed_digest(inputs.domain, scores))
    )
    yield Finding(
        _FINDINGS.get(reason, REFUSED_SCORES),
        at,
        (member,),
        tuple(digests),
        proven=is_signed and _is_compared(evidence, first, table),
        reason=reason,
        named=first.client if reason is RefusalReason.FALSE_DISTANCE else None,
    )


def _is_compared(
    evidence: RoundEvidence, entry: RefusedScores, table: DistanceTable | None
) -> bool:
    """Say whether the reason was seen to hold, beyond the margin of doubt."""
    if entry.reason is RefusalReason.TWO_VECTORS:
        return True
    data = evidence.blobs.vectors.get(entry.signed.scores.digest)
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


DISTANCE_DIFFERS = Fact("distance", "its distance is {recorded}", "the counted scores give {true}")


def check_means(evidence: RoundEvidence) -> Iterator[StepResult]:
    """Yield ranked distances that do not follow from the counted scores."""
    if evidence.record is None:
        return
    event, ranking = evidence.event, evidence.ranking
    if ranking is None:
        yield MissingInput(VECTORS_UNUSABLE, event.round)
        return
    true = dict(zip(map(word_client, ranking.words), ranking.words, strict=True))
    for client, word in zip(map(word_client, event.ranking), event.ranking, strict=True):
        if true.get(client, word) != word:
            values = (repr(float_from_bits(bits >> 32)) for bits in (word, true[client]))
            yield Contradiction(DISTANCE_DIFFERS, event.round, (client,), "", *values)


MODEL_DIFFERS = Fact("model", "the model is {recorded}", "the accepted updates give {true}")
MODEL_MALFORMED = Fact("model malformed", "blob {recorded} is a model", "it is not: {true}")
MODEL_NOT_FINITE = Fact("model not finite", "the model is usable", "it is not finite")
MODEL_BEFORE_UNKNOWN = Need("model before", "the previous model is unknown")


def check_model(step: ModelStep, at: int) -> Iterator[StepResult]:
    """Yield whether the model that round `at` recorded follows, is well formed, and is finite."""
    if not step.is_known_before:
        yield MissingInput(MODEL_BEFORE_UNKNOWN, at)
    elif step.computed is None or step.digest is None:
        yield MissingInput(UPDATES_MISSING, at, step.lacking)
    elif step.digest != step.recorded:
        yield from compared(at, MODEL_DIFFERS, step.recorded, step.digest)
    elif not np.isfinite(step.computed).all():
        yield Contradiction(MODEL_NOT_FINITE, at)
    if step.malformed:
        recorded = to_hex(step.recorded)
        yield Contradiction(MODEL_MALFORMED, at, recorded=recorded, true=step.malformed)


RANKING_RANGE = Fact(
    "ranking range",
    "the ranking is valid",
    "its words, clients or length are out of range, or it is not sorted",
)
RANKED_DIFFER = Fact(
    "ranked",
    "exactly the trainers with a usable update are ranked",
    "these clients are ranked or have a usable update, not both",
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
TOO_FEW_TRAINERS = Fact(
    "too few trainers", "there are enough trainers", "too few remain for a committee"
)

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
    odd = ranked ^ set(evidence.inputs.participants.trainers).intersection(record.clients)
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
    "the commitments up to the closing block {subject} give {true}",
)
RECORD_OF_ANOTHER = Fact(
    "record of another", "the record has this round and base", "it has another round or base"
)
CALL_DATA_UNAVAILABLE = Need(
    "call data",
    "the call and signatures of transaction {detail}: its call data are missing, or not for this "
    "ledger",
    (AuditStep.CERTIFICATES,),
)
WRONG_PROPOSAL = FindingKind("wrong proposal", "it signed a wrong request{slot}")
EQUIVOCATION = FindingKind("equivocation", "it signed two different votes{slot}")
SILENT_PRIMARY = FindingKind("silent primary", "as primary it reportedly sent no request{slot}")
NO_QUORUM = FindingKind("no quorum", "its request reportedly found no quorum{slot}")
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
    """Yield the accused clients of the incidents document, and the number of failed accusations."""
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
ROUND_ORDER = Fact("round order", "round {recorded} ended next", "round {true} is due")
RECORD_MALFORMED = Fact(
    "record malformed", "blob {recorded} is the round's record", "it is not: {true}"
)
RECORD_CLIENTS = Fact(
    "record clients",
    "the record lists exactly the active clients",
    "it does not list these clients, or they were not active",
)
HAS_COMMITTED = Fact(
    "has committed", "it had not committed", "its commitment is on the chain in time"
)
HAS_NOT_COMMITTED = Fact(
    "has not committed", "its payload is missing or malformed", "it had not committed in time"
)
UPDATE_MALFORMED = Fact(
    "update malformed", "its update is usable", "its payload is not an update of the model"
)
UPDATE_USABLE = Fact("update usable", "its payload is malformed", "it is a usable update")
EMPTY_SEAT = FindingKind("empty seat", "its seat is empty: it was banned before the round")
SILENT_MEMBER = FindingKind("silent member", "no scores of this member are recorded")
SCORES_NOT_DUE = FindingKind(
    "scores not due",
    "no scores of it are expected: its update is all zeros, so its distances show nothing",
)
DROPOUT = FindingKind("dropout", "it was left out: {reason}")
STRAY_COMMITMENT = FindingKind(
    "stray commitment", "it committed though it was neither trainer nor member"
)
LATE_COMMITMENT = FindingKind(
    "late commitment", "it committed after the closing block, without effect"
)
ABANDONED_ROUND = FindingKind(
    "abandoned round",
    "the round ended at its deadline without a decision; the model is unchanged",
)
PAYLOAD_APPEARED = FindingKind(
    "payload appeared",
    "its payload is recorded as missing, but is stored now; when it appeared cannot be checked",
    is_remark=True,
)
INCIDENTS_MISSING = FindingKind(
    "incidents missing",
    "evidence for the round's incidents is missing, so the accused members are unknown",
    is_remark=True,
)
COMMITMENTS = "commitments"
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
        yield Finding(ABANDONED_ROUND, ended.round, (), (to_hex(ended.transaction),), proven=True)


def check_commitments(
    replayed: ReplayedRound, participants: Participants, closing: RoundClosing
) -> Iterator[StepResult]:
    """Yield whether each commitment on the chain counted; name the commitments that did not."""
    active, counted = set(participants.active), 0
    for mined in replayed.commitments:
        if mined.block > closing.block:
            count, kind = "late commitments", LATE_COMMITMENT
        elif mined.client not in active:
            count, kind = "stray commitments", STRAY_COMMITMENT
        else:
            counted += 1
            continue
        yield CountIncrement(count, 1)
        evidence = (to_hex(mined.commitment),)
        yield Finding(kind, replayed.round, (mined.client,), evidence, proven=True)
    if counted:
        yield CountIncrement("counted commitments", counted)


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
