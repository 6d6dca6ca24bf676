"""What a colluding committee may do to a round, one function for each departure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ledger.protocol import encoding
from ledger.protocol.documents.record import (
    MAX_VECTOR_BYTES,
    Dropout,
    RefusedScores,
    RoundRecord,
    UsableUpdate,
    decode_record,
    encode_record,
)
from ledger.protocol.encoding import (
    commitment_of,
    ranking_digest,
    reveal_of,
    sha256,
    vector_bytes,
    word_client,
)
from ledger.protocol.inputs import Participants
from ledger.protocol.judgement import Judgement, Ranking, sets_of, update_leaves
from ledger.protocol.types import ClientId, Digest, DropoutReason, RefusalReason, SignedScores
from tests.audit.runs import DIMENSION, Deviation, Payloads, Run, Vectors


def first_trainer(run: Run) -> ClientId:
    return run.trainers[0]


def last_trainer(run: Run) -> ClientId:
    return run.trainers[-1]


def first_member(run: Run) -> ClientId:
    return min(run.committee)


def bystander(run: Run) -> ClientId:
    return run.bystanders[0]


def ranked_anew(judged: Judgement, words: tuple[int, ...], run: Run) -> Judgement:
    """Return a judgement over another ranking, with all that the contract derives from it."""
    _, accepted, elected = sets_of(run.parameters, words)
    payloads = {c: sha256(run.payload(c)) for c in map(word_client, words)}
    leaves = update_leaves(words, accepted, payloads)
    opening = replace(
        judged.opening,
        updates_root=encoding.merkle_root(encoding.UPDATE_LEAF, leaves),
        ranking_digest=ranking_digest(words),
        reveal=reveal_of(payloads, payloads),
    )
    return replace(judged, ranking=Ranking(words, accepted, elected), opening=opening)


def wrong_model(judged: Judgement, _run: Run) -> Judgement:
    model = judged.model.copy()
    model[3] = np.nextafter(model[3], np.float32(9))
    opening = replace(judged.opening, model=sha256(vector_bytes(model)))
    return replace(judged, model=model, opening=opening)


def one_more_ulp(judged: Judgement, run: Run) -> Judgement:
    """Move the first trainer's mean by one unit in its last place."""
    first = run.trainers[0]
    words = (w + (1 << 32) * (word_client(w) == first) for w in judged.ranking.words)
    return ranked_anew(judged, tuple(sorted(words)), run)


def without_last_trainer(judged: Judgement, run: Run) -> Judgement:
    last = run.trainers[-1]
    kept = (w for w in judged.ranking.words if word_client(w) != last)
    return ranked_anew(judged, tuple(kept), run)


def other(name: str) -> Callable[[Judgement, Run], Judgement]:
    changed: dict[str, Any] = {name: sha256(b"another")}
    return lambda judged, _run: replace(judged, opening=replace(judged.opening, **changed))


def swapped_trainer(participants: Participants, run: Run) -> Participants:
    trainers = (*participants.trainers[1:], run.bystanders[0])
    return replace(participants, trainers=tuple(sorted(trainers)))


def foreign_commitment(words: dict[ClientId, Digest], run: Run) -> dict[ClientId, Digest]:
    last = run.trainers[-1]
    return words | {last: commitment_of(last, sha256(b"another payload"))}


def copied_commitment(words: dict[ClientId, Digest], run: Run) -> dict[ClientId, Digest]:
    """Let the last trainer repeat the first one's word, which it cannot open."""
    return words | {run.trainers[-1]: words[run.trainers[0]]}


def copied_payload(payloads: Payloads, run: Run) -> Payloads:
    return payloads | {run.trainers[-1]: payloads[run.trainers[0]]}


def malformed_payload(payloads: Payloads, run: Run) -> Payloads:
    return payloads | {run.trainers[-1]: np.full(DIMENSION, np.inf, dtype="<f4").tobytes()}


def silent_trainer(payloads: Payloads, run: Run) -> Payloads:
    return {client: data for client, data in payloads.items() if client != run.trainers[-1]}


def scaled(factor: float) -> Callable[[Vectors, Run], Vectors]:
    """Return the departure of a first member that multiplies its distances."""

    def scale(vectors: Vectors, run: Run) -> Vectors:
        liar = min(run.committee)
        wrong = vectors[liar].distances * factor
        return vectors | {liar: replace(vectors[liar], distances=wrong)}

    return scale


def lies_about_a_member(vectors: Vectors, run: Run) -> Vectors:
    liar = min(run.committee)
    wrong = vectors[liar].member_distances * 2
    return vectors | {liar: replace(vectors[liar], member_distances=wrong)}


def out_of_range(vectors: Vectors, run: Run) -> Vectors:
    member = min(run.committee)
    return vectors | {member: replace(vectors[member], distances=-vectors[member].distances)}


def shorter_vector(vectors: Vectors, run: Run) -> Vectors:
    """Let one member leave its first trainer out."""
    member = min(run.committee)
    vector = vectors[member]
    short = replace(vector, trainers=vector.trainers[1:], distances=vector.distances[1:])
    return vectors | {member: short}


def lies_count(record: RoundRecord, _run: Run) -> RoundRecord:
    """Count what was refused, whether true or not."""
    scores = (*record.scores, *(entry.signed for entry in record.refused))
    return replace(record, scores=by_member(scores), refused=())


def whitewashed(record: RoundRecord, _run: Run) -> RoundRecord:
    return replace(record, refused=())


def unsigned_scores(record: RoundRecord, _run: Run) -> RoundRecord:
    forged = replace(record.scores[0], signature=record.scores[1].signature)
    return replace(record, scores=(forged, *record.scores[1:]))


def garbage_scores(record: RoundRecord, run: Run) -> RoundRecord:
    """Name a signed blob that is no score vector among those that count."""
    garbage = run.claim(b"no vector", record.scores[0].scores.member)
    return replace(record, scores=(garbage, *record.scores[1:]))


def garbage_refused(record: RoundRecord, run: Run) -> RoundRecord:
    """Refuse, rightly, a signed blob that is no score vector."""
    garbage = run.claim(b"no vector", record.scores[0].scores.member)
    entry = RefusedScores(garbage, RefusalReason.NOT_A_VECTOR)
    return replace(record, scores=record.scores[1:], refused=(entry,))


def too_long_counted(record: RoundRecord, run: Run) -> RoundRecord:
    longest = run.claim(bytes(MAX_VECTOR_BYTES + 1), record.scores[0].scores.member)
    return replace(record, scores=(longest, *record.scores[1:]))


def too_long_refused(record: RoundRecord, run: Run) -> RoundRecord:
    """Refuse, as no vector, a signed blob that is longer than any score vector."""
    longest = run.claim(bytes(MAX_VECTOR_BYTES + 1), record.scores[0].scores.member)
    entry = RefusedScores(longest, RefusalReason.NOT_A_VECTOR)
    return replace(record, scores=record.scores[1:], refused=(entry,))


def two_of_which_one_is_too_long(record: RoundRecord, run: Run) -> RoundRecord:
    true = record.scores[0]
    longest = run.claim(bytes(MAX_VECTOR_BYTES + 1), true.scores.member)
    both = sorted((true, longest), key=lambda signed: signed.scores.digest)
    entries = tuple(RefusedScores(signed, RefusalReason.TWO_VECTORS) for signed in both)
    return replace(record, scores=record.scores[1:], refused=entries)


def refuses(reason: RefusalReason) -> Callable[[RoundRecord, Run], RoundRecord]:
    """Return the departure that leaves the first member's true scores out."""

    def refuse(record: RoundRecord, run: Run) -> RoundRecord:
        named = run.trainers[0] if reason is RefusalReason.FALSE_DISTANCE else ClientId(0)
        entry = RefusedScores(record.scores[0], reason, named)
        return replace(record, scores=record.scores[1:], refused=(entry,))

    return refuse


def too_few_scores(record: RoundRecord, _run: Run) -> RoundRecord:
    return replace(record, scores=record.scores[:2])


def left_out(reason: DropoutReason) -> Deviation:
    """Return the deviation that leaves the last trainer out as if it had dropped out."""

    def instead(record: RoundRecord, run: Run) -> RoundRecord:
        payload = run.blobs.put(run.payload(run.trainers[-1]))
        given = payload if reason is DropoutReason.PAYLOAD_MALFORMED else None
        found = (Dropout(dropout.client, reason, given) for dropout in record.dropouts)
        return replace(record, dropouts=tuple(found))

    return Deviation(withheld=lambda run: run.trainers[-1:], record=instead)


def unnamed_dropout(record: RoundRecord, _run: Run) -> RoundRecord:
    return replace(record, dropouts=())


def invented_dropout(record: RoundRecord, run: Run) -> RoundRecord:
    invented = Dropout(run.bystanders[0], DropoutReason.NO_COMMITMENT)
    dropouts = sorted((*record.dropouts, invented), key=lambda dropout: dropout.client)
    return replace(record, dropouts=tuple(dropouts))


def missing_instead(record: RoundRecord, _run: Run) -> RoundRecord:
    """Say of a trainer without a commitment that its payload is missing."""
    found = (Dropout(d.client, DropoutReason.PAYLOAD_MISSING) for d in record.dropouts)
    return replace(record, dropouts=tuple(found))


def malformed_instead(record: RoundRecord, _run: Run) -> RoundRecord:
    """Say of a trainer that it sent a malformed payload, which opens nothing."""
    reason, digest = DropoutReason.PAYLOAD_MALFORMED, sha256(b"something")
    found = (Dropout(d.client, reason, digest) for d in record.dropouts)
    return replace(record, dropouts=tuple(found))


def counts_the_malformed(record: RoundRecord, run: Run) -> RoundRecord:
    """Bind a record that counts a malformed update, though nothing rests on it."""
    (dropout,) = record.dropouts
    assert dropout.payload is not None
    update = UsableUpdate(dropout.client, dropout.payload)
    updates = sorted((*record.updates, update), key=lambda update: update.client)
    return replace(record, updates=tuple(updates), dropouts=())


def with_a_stranger(record: RoundRecord, run: Run) -> RoundRecord:
    """Count the scores of somebody who is no member."""
    stranger = run.bystanders[0]
    claim = run.claim(run.scored(record.scores[0]), stranger)
    return replace(record, scores=by_member((*record.scores, claim)))


def of_base(base: Digest) -> Callable[[RoundRecord, Run], RoundRecord]:
    return lambda record, _run: replace(record, base=base)


def as_blob(change: Callable[[RoundRecord, Run], RoundRecord]) -> Callable[[bytes, Run], bytes]:
    return lambda data, run: encode_record(change(decode_record(data), run))


def by_member(claims: tuple[SignedScores, ...]) -> tuple[SignedScores, ...]:
    return tuple(sorted(claims, key=lambda claim: claim.scores.member))
