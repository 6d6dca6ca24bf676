"""Steps 5 to 7 and 9: what was published of a round: blobs, distances, means and the model.

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
    Accusations,
    BlobFailure,
    ModelStep,
    RoundEvidence,
    UnavailableBlob,
)
from ledger.audit.report import (
    Contradiction,
    CountIncrement,
    Fact,
    Finding,
    FindingKind,
    MissingInput,
    Need,
    StepResult,
    reason_text,
)
from ledger.protocol.documents.record import MAX_VECTOR_BYTES, RefusedScores, RoundRecord
from ledger.protocol.encoding import float_from_bits, to_hex, word_client
from ledger.protocol.parameters import majority
from ledger.protocol.signing import typed_digest
from ledger.protocol.types import ClientId, Digest, RefusalReason
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
    "it opens no commitment that its client made in time",
)
BLOB_MISSING = Need("blob", "the {subject} {detail} is missing")
BLOB_UNREADABLE = Need("blob unreadable", "the {subject} cannot be had: {detail}")
EQUAL_PAYLOADS = FindingKind("equal payloads", "they committed to one and the same payload")

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
        if blob.is_bad:
            yield Contradiction(BLOB_DAMAGED, *about, str(blob.kind), name, blob.detail)
        elif blob.loss is BlobFailure.MISSING:
            yield MissingInput(BLOB_MISSING, *about, blob.kind, name)
        else:
            yield MissingInput(BLOB_UNREADABLE, *about, blob.kind, f"{name} ({blob.detail})")


NO_MEMBER = Fact(
    "no member",
    "its score vector is one of the committee's",
    "it is no member, or its seat is empty",
)
CLAIM_NOT_SIGNED = Fact(
    "claim not signed", "it claims a score vector", "the claim is not signed by it"
)
VECTOR_TOO_LONG = Fact(
    "vector too long",
    "its score vector counts or is refused",
    "that is over {true} bytes long, and no such vector is recorded at all",
)
SCORES_COUNTED = Fact("scores counted", "its scores count", "{true}")
SCORES_REFUSED = Fact("scores refused", "its scores do not count: {recorded}", "that does not hold")
TOO_FEW_SCORES = Fact(
    "too few scores", "{recorded} score vectors suffice", "the protocol needs {true}"
)
VECTORS_MISSING = Need("vectors", "there is no score vector")
REFUSAL_UNCHECKED = Need("refusal", "whether the scores were rightly refused")
DISPLACEMENT_UNKNOWN = Need(
    "travel", "the two models that its distances stand on are not both known"
)
FALSE_SCORES = FindingKind(
    "false scores", "it published a false distance to client {named}, and was left out"
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


DISTANCE_DIFFERS = Fact(
    "distance", "its distance is {recorded}", "the counted scores make it {true}"
)


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


MODEL_DIFFERS = Fact("model", "the model is {recorded}", "the accepted updates make it {true}")
MODEL_MALFORMED = Fact("model malformed", "blob {recorded} is a model", "it is not: {true}")
MODEL_NOT_FINITE = Fact("model not finite", "the model is usable", "it is not finite")
MODEL_BEFORE_UNKNOWN = Need("model before", "the model before it is not known")


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
