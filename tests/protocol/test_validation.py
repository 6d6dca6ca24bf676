"""Doubts about a record: for each objection the honest record beside the one that raises it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ledger.protocol import encoding
from ledger.protocol.documents.record import (
    MAX_VECTOR_BYTES,
    Dropout,
    RefusedScores,
    RoundRecord,
    ScoreVector,
    UsableUpdate,
)
from ledger.protocol.judgement import judge
from ledger.protocol.types import ClientId, Digest, DropoutReason, RefusalReason, SignedScores
from ledger.protocol.validation import (
    DistanceTable,
    Violation,
    ViolationCode,
    validate_claims,
    validate_omissions,
    validate_score_claim,
    validate_scores,
    validate_updates,
)
from tests.protocol.support import payload_of, small_round
from tests.support.keys import ids
from tests.support.rounds import ClosedRound

VALUES = {i: float(i + 1) for i in range(9)}
PLAIN = small_round(VALUES).scored()
# 3 committed nothing, 4 published nothing, 5 published what is no update.
HOLED = small_round(VALUES | {5: b"odd"}, uncommitted=[3], unpublished=[4]).scored()


def judged(told: ClosedRound, record: RoundRecord) -> list[Violation]:
    """Return the doubts of all stages together."""
    updates = {
        client: update
        for client in record.clients
        if (update := told.evidence.updates.get(client)) is not None
    }
    table = DistanceTable(told.inputs, updates)
    return [
        *validate_claims(told.inputs, record),
        *validate_updates(record, told.evidence),
        *validate_scores(told.inputs, record, told.evidence, table),
    ]


def raises(code: ViolationCode, *clients: int, reason: RefusalReason | None = None) -> Violation:
    return Violation(code, ids(*clients), reason)


def dropped(told: ClosedRound, client: int, dropout: Dropout) -> RoundRecord:
    """Return the honest record with a usable update or dropout replaced by another dropout."""
    record = told.compose()
    others = [entry for entry in record.dropouts if entry.client != client]
    return replace(
        record,
        updates=tuple(entry for entry in record.updates if entry.client != client),
        dropouts=tuple(sorted([*others, dropout], key=lambda entry: entry.client)),
    )


def used(told: ClosedRound, client: int, payload: Digest) -> RoundRecord:
    """Return the honest record with a dropout's update counted as usable."""
    record = told.compose()
    updates = [entry for entry in record.updates if entry.client != client]
    updates.append(UsableUpdate(ClientId(client), payload))
    return replace(
        record,
        updates=tuple(sorted(updates, key=lambda entry: entry.client)),
        dropouts=tuple(entry for entry in record.dropouts if entry.client != client),
    )


def digest_of(told: ClosedRound, client: int) -> Digest:
    return encoding.sha256(payload_of(VALUES[client], 1))


@pytest.mark.parametrize("change", [{"round": 3}, {"base": Digest(bytes(32))}])
def test_a_record_is_of_this_round_and_base(change: dict[str, object]) -> None:
    record = replace(PLAIN.compose(), scores=(), refused=(), **change)  # type: ignore[arg-type]
    assert validate_claims(PLAIN.inputs, record) == [raises(ViolationCode.OTHER_ROUND_OR_BASE)]


def test_updates_and_dropouts_are_all_active_clients() -> None:
    record = PLAIN.compose()
    odd = raises(ViolationCode.NOT_THE_ACTIVE_CLIENTS, 8)
    assert odd in validate_claims(PLAIN.inputs, replace(record, updates=record.updates[:-1]))
    more = (*record.dropouts, Dropout(ClientId(9), DropoutReason.NO_COMMITMENT))
    odd = raises(ViolationCode.NOT_THE_ACTIVE_CLIENTS, 9)
    assert odd in validate_claims(PLAIN.inputs, replace(record, dropouts=more))


def test_nobody_is_usable_and_a_dropout_at_once() -> None:
    record = PLAIN.compose()
    twice = (Dropout(ClientId(8), DropoutReason.PAYLOAD_MISSING),)
    violations = validate_claims(PLAIN.inputs, replace(record, dropouts=twice))
    assert violations == [raises(ViolationCode.NOT_THE_ACTIVE_CLIENTS)]


def test_a_payload_opens_its_own_clients_commitment() -> None:
    record = used(PLAIN, 4, digest_of(PLAIN, 5))
    assert validate_claims(PLAIN.inputs, record) == [raises(ViolationCode.OPENS_NO_COMMITMENT, 4)]
    uncommitted = used(HOLED, 3, digest_of(HOLED, 3))
    assert raises(ViolationCode.OPENS_NO_COMMITMENT, 3) in validate_claims(
        HOLED.inputs, uncommitted
    )
    malformed = dropped(
        HOLED, 5, Dropout(ClientId(5), DropoutReason.PAYLOAD_MALFORMED, Digest(bytes(32)))
    )
    assert validate_claims(HOLED.inputs, malformed) == [
        raises(ViolationCode.OPENS_NO_COMMITMENT, 5)
    ]


def test_who_has_committed_is_not_called_late() -> None:
    record = dropped(PLAIN, 4, Dropout(ClientId(4), DropoutReason.NO_COMMITMENT))
    assert validate_claims(PLAIN.inputs, record) == [raises(ViolationCode.HAS_COMMITTED, 4)]


@pytest.mark.parametrize(
    "dropout",
    [
        Dropout(ClientId(3), DropoutReason.PAYLOAD_MISSING),
        Dropout(ClientId(3), DropoutReason.PAYLOAD_MALFORMED, Digest(bytes(32))),
    ],
)
def test_a_payload_can_lack_only_where_a_commitment_is(dropout: Dropout) -> None:
    violations = validate_claims(HOLED.inputs, dropped(HOLED, 3, dropout))
    assert violations == [raises(ViolationCode.HAS_NOT_COMMITTED, 3)]


def test_a_judge_needs_the_payloads_that_it_judges() -> None:
    record = used(HOLED, 4, digest_of(HOLED, 4))
    assert validate_updates(record, HOLED.evidence) == [raises(ViolationCode.UPDATE_MISSING, 4)]
    malformed = dropped(
        HOLED, 4, Dropout(ClientId(4), DropoutReason.PAYLOAD_MALFORMED, digest_of(HOLED, 4))
    )
    assert validate_updates(malformed, HOLED.evidence) == [raises(ViolationCode.UPDATE_MISSING, 4)]


def test_what_is_no_update_is_not_usable() -> None:
    record = used(HOLED, 5, encoding.sha256(b"odd"))
    assert validate_updates(record, HOLED.evidence) == [raises(ViolationCode.UPDATE_MALFORMED, 5)]


def test_a_usable_update_is_not_called_malformed() -> None:
    record = dropped(
        PLAIN, 4, Dropout(ClientId(4), DropoutReason.PAYLOAD_MALFORMED, digest_of(PLAIN, 4))
    )
    assert validate_updates(record, PLAIN.evidence) == [raises(ViolationCode.UPDATE_USABLE, 4)]


def test_missing_payload_is_a_violation_only_if_held_in_time() -> None:
    record = dropped(PLAIN, 4, Dropout(ClientId(4), DropoutReason.PAYLOAD_MISSING))
    assert validate_updates(record, PLAIN.evidence) == []
    assert validate_omissions(record, ids(3, 5), ()) == []
    assert validate_omissions(record, ids(3, 4), ()) == [raises(ViolationCode.PAYLOAD_HELD, 4)]


def test_scores_are_of_members_whose_seat_is_not_empty() -> None:
    trainer = PLAIN.claim(3, b"a trainer's vector")
    assert validate_score_claim(PLAIN.inputs, trainer) == [raises(ViolationCode.NO_MEMBER, 3)]
    record = replace(PLAIN.compose(), refused=(RefusedScores(trainer, RefusalReason.NOT_A_VECTOR),))
    assert validate_claims(PLAIN.inputs, record) == [raises(ViolationCode.NO_MEMBER, 3)]
    empty = small_round(VALUES, banned=[1]).scored()
    assert validate_score_claim(empty.inputs, empty.claim(0, b"vector")) == []
    assert validate_score_claim(empty.inputs, empty.claim(1, b"vector")) == [
        raises(ViolationCode.NO_MEMBER, 1)
    ]


def test_scores_are_signed_by_their_member() -> None:
    forged = PLAIN.claim(1, b"vector", key=2)
    assert validate_score_claim(PLAIN.inputs, forged) == [raises(ViolationCode.CLAIM_NOT_SIGNED, 1)]
    record = PLAIN.compose()
    scores = (*record.scores[:1], replace(record.scores[1], signature=bytes(65)), record.scores[2])
    violations = validate_claims(PLAIN.inputs, replace(record, scores=scores))
    assert violations == [raises(ViolationCode.CLAIM_NOT_SIGNED, 1)]


def test_a_judge_needs_the_vectors_that_it_judges() -> None:
    unseen = PLAIN.claim(1, b"unseen")
    record = PLAIN.compose()
    counted = replace(record, scores=(record.scores[0], unseen, record.scores[2]))
    assert judged(PLAIN, counted) == [raises(ViolationCode.VECTOR_MISSING, 1)]
    refused = replace(
        record,
        scores=(record.scores[0], record.scores[2]),
        refused=(RefusedScores(unseen, RefusalReason.NOT_A_VECTOR),),
    )
    assert judged(PLAIN, refused) == [raises(ViolationCode.VECTOR_MISSING, 1)]


def bent(vector: ScoreVector, by: float) -> ScoreVector:
    """Return the vector with its first distance off by so many margins."""
    distances = vector.distances.copy()
    distances[0] *= 1 + by * 1e-9
    return replace(vector, distances=distances)


def told_with(lie: Callable[[ScoreVector], ScoreVector | bytes]) -> ClosedRound:
    """Return the round in which member 1 publishes something else than its true vector."""
    told = small_round(VALUES)
    return told.publish(1, lie(told.vector(1))).scored(0, 2)


def counting(told: ClosedRound) -> RoundRecord:
    """Return the record that counts what everybody published."""
    record = told.compose()
    scores = sorted(told.claims, key=lambda signed: signed.scores.member)
    return replace(record, scores=tuple(scores), refused=())


def refusing(told: ClosedRound, reason: RefusalReason, client: int = 0) -> RoundRecord:
    """Return the record that refuses member 1's vector."""
    record = counting(told)
    entry = RefusedScores(record.scores[1], reason, ClientId(client))
    return replace(record, scores=(record.scores[0], record.scores[2]), refused=(entry,))


LIES: dict[RefusalReason, Callable[[ScoreVector], ScoreVector | bytes]] = {
    RefusalReason.NOT_A_VECTOR: lambda _: b"nothing",
    RefusalReason.OF_ANOTHER: lambda vector: replace(vector, round=9),
    RefusalReason.OTHER_CLIENTS: lambda vector: replace(
        vector, trainers=vector.trainers[1:], distances=vector.distances[1:]
    ),
    RefusalReason.OUT_OF_RANGE: lambda vector: replace(vector, distances=-vector.distances),
    RefusalReason.FALSE_DISTANCE: lambda vector: bent(vector, 1e6),
}


@pytest.mark.parametrize("reason", LIES, ids=lambda reason: reason.name.lower())
def test_an_invalid_vector_is_refused_for_its_reason(reason: RefusalReason) -> None:
    told = told_with(LIES[reason])
    named = 3 if reason is RefusalReason.FALSE_DISTANCE else 0
    assert told.compose() == refusing(told, reason, named)
    assert judged(told, refusing(told, reason, named)) == []
    clients = (1, 3) if named else (1,)
    violations = judged(told, counting(told))
    assert violations == [raises(ViolationCode.SCORES_DO_NOT_COUNT, *clients, reason=reason)]
    for other in RefusalReason:
        if other not in {reason, RefusalReason.TWO_VECTORS}:
            violations = judged(
                told, refusing(told, other, 3 if other is RefusalReason.FALSE_DISTANCE else 0)
            )
            assert violations == [raises(ViolationCode.REFUSAL_UNFOUNDED, 1, reason=other)]


def test_a_member_without_an_update_is_refused_for_that() -> None:
    told = small_round(VALUES | {1: b"odd"})
    other = told.vector(0)
    vector = replace(other, member=ClientId(1), members=ids(0, 2), member_distances=np.ones(2))
    told = told.scored().publish(1, vector)
    (entry,) = told.compose().refused
    assert entry.reason is RefusalReason.NO_USABLE_UPDATE
    assert judged(told, told.compose()) == []
    counted = sorted(told.claims, key=lambda signed: signed.scores.member)
    record = replace(told.compose(), scores=tuple(counted), refused=())
    found = raises(ViolationCode.SCORES_DO_NOT_COUNT, 1, reason=RefusalReason.NO_USABLE_UPDATE)
    assert judged(told, record) == [found]


def test_a_true_vector_is_not_refused() -> None:
    for reason in RefusalReason:
        record = refusing(PLAIN, reason, 3 if reason is RefusalReason.FALSE_DISTANCE else 0)
        assert judged(PLAIN, record) == [raises(ViolationCode.REFUSAL_UNFOUNDED, 1, reason=reason)]


@pytest.mark.parametrize(
    ("margins", "counted", "refused"),
    [(0.9, True, False), (1.1, True, True), (1.9, True, True), (2.1, False, True)],
)
def test_between_one_margin_and_two_both_judgements_are_valid(
    margins: float, counted: bool, refused: bool
) -> None:
    told = told_with(lambda vector: bent(vector, margins))
    assert (judged(told, counting(told)) == []) == counted
    record = refusing(told, RefusalReason.FALSE_DISTANCE, 3)
    assert (judged(told, record) == []) == refused


def test_any_false_distance_may_be_named_but_no_true_one() -> None:
    def lie(vector: ScoreVector) -> ScoreVector:
        return replace(
            vector,
            distances=vector.distances * [1, 2, 1, 2, 1, 1],
            member_distances=vector.member_distances * [1, 2],
        )

    told = told_with(lie)
    reason = RefusalReason.FALSE_DISTANCE
    assert told.compose().refused[0].client == 4
    for named in (4, 6, 2):
        assert judged(told, refusing(told, reason, named)) == []
    for named in (3, 5, 0, 1, 99):
        violations = judged(told, refusing(told, reason, named))
        assert violations == [raises(ViolationCode.REFUSAL_UNFOUNDED, 1, reason=reason)]


TOO_LONG = bytes(MAX_VECTOR_BYTES + 1)


def test_a_vector_over_the_limit_is_not_recorded_at_all() -> None:
    told = told_with(lambda _: TOO_LONG)
    record = told.compose()
    assert [signed.scores.member for signed in record.scores] == [0, 2]
    assert not record.refused
    assert judged(told, record) == []
    too_long = [raises(ViolationCode.VECTOR_TOO_LONG, 1)]
    assert judged(told, counting(told)) == too_long
    for reason in RefusalReason:
        if reason is not RefusalReason.TWO_VECTORS:
            assert judged(told, refusing(told, reason)) == too_long


def test_beside_a_vector_over_the_limit_the_other_one_counts() -> None:
    told = small_round(VALUES).scored().publish(1, TOO_LONG)
    assert [signed.scores.member for signed in told.compose().scores] == [0, 1, 2]
    assert not told.compose().refused


TWICE = small_round(VALUES).scored().publish(1, b"another").publish(1, b"a third")


def test_of_a_member_with_two_vectors_none_counts() -> None:
    record = TWICE.compose()
    assert [signed.scores.member for signed in record.scores] == [0, 2]
    smallest = sorted(s.scores.digest for s in TWICE.claims if s.scores.member == 1)[:2]
    assert [entry.signed.scores.digest for entry in record.refused] == smallest
    assert {entry.reason for entry in record.refused} == {RefusalReason.TWO_VECTORS}
    assert judged(TWICE, record) == []


def test_a_member_votes_without_the_two_vectors_of_reason_7() -> None:
    record = TWICE.compose()
    counted = [signed.scores.digest for signed in record.scores]
    held = {digest: TWICE.evidence.vectors[digest] for digest in counted}
    evidence = replace(TWICE.evidence, vectors=held)
    found, violations = judge(TWICE.inputs, record, evidence)
    whole, _ = judge(TWICE.inputs, record, TWICE.evidence)
    assert violations == ()
    assert found is not None
    assert whole is not None
    assert found.result == whole.result
    assert [signed.scores.digest for signed in record.claims_with_vectors] == counted


def test_two_vectors_are_refused_for_that_and_for_nothing_else() -> None:
    record, seven = TWICE.compose(), RefusalReason.TWO_VECTORS
    one = replace(record, refused=record.refused[:1])
    found = raises(ViolationCode.REFUSAL_UNFOUNDED, 1, reason=seven)
    assert judged(TWICE, one) == [found], "one vector is not two"
    simple = replace(record.refused[0], reason=RefusalReason.NOT_A_VECTOR)
    mixed = replace(record, refused=(simple, record.refused[1]))
    first = raises(ViolationCode.REFUSAL_UNFOUNDED, 1, reason=RefusalReason.NOT_A_VECTOR)
    assert judged(TWICE, mixed) == [first]
    true = TWICE.claims[1]
    counted = replace(record, scores=(record.scores[0], true, record.scores[1]))
    assert judged(TWICE, counted) == [found, found], "none of them counts"


def test_more_than_half_the_committees_vectors_count() -> None:
    told = small_round(VALUES).scored(0, 2)
    record = told.compose()
    assert judged(told, record) == []
    fewer = replace(record, scores=record.scores[:1])
    assert judged(told, fewer) == [raises(ViolationCode.TOO_FEW_SCORES)]


def test_enough_trainers_are_ranked_to_fill_the_next_committee() -> None:
    told = small_round(VALUES, unpublished=[3, 4, 5]).scored()
    assert judged(told, told.compose()) == []
    fewer = small_round(VALUES, unpublished=[3, 4, 5, 6]).scored()
    assert judged(fewer, fewer.compose()) == [raises(ViolationCode.TOO_FEW_TRAINERS)]


def test_a_vector_held_in_time_is_counted_or_refused() -> None:
    held: tuple[SignedScores, ...] = PLAIN.claims
    record = PLAIN.compose()
    assert validate_omissions(record, (), held) == []
    fewer = replace(record, scores=record.scores[1:])
    assert validate_omissions(fewer, (), held) == [raises(ViolationCode.VECTOR_LEFT_OUT, 0)]
    refused = replace(fewer, refused=(RefusedScores(record.scores[0], RefusalReason.NOT_A_VECTOR),))
    assert validate_omissions(refused, (), held) == []


def test_a_record_may_omit_vectors_for_other_sets_or_bases() -> None:
    record = replace(PLAIN.compose(), scores=())
    scores = PLAIN.claims[0].scores
    other = Digest(bytes(32))
    for elsewhere in (replace(scores, clients=other), replace(scores, base=other)):
        assert validate_omissions(record, (), [SignedScores(elsewhere, bytes(65))]) == []


def test_a_record_may_omit_a_third_vector_but_no_second() -> None:
    record = TWICE.compose()
    assert validate_omissions(record, (), TWICE.claims) == []
    one = replace(record, refused=record.refused[:1])
    left = raises(ViolationCode.VECTOR_LEFT_OUT, 1)
    assert validate_omissions(one, (), TWICE.claims) == [left, left]


def test_without_the_updates_what_needs_them_is_not_doubted() -> None:
    told = told_with(LIES[RefusalReason.FALSE_DISTANCE])

    def without(record: RoundRecord) -> list[Violation]:
        return validate_scores(told.inputs, record, told.evidence, None)

    assert without(counting(told)) == []
    assert without(refusing(told, RefusalReason.FALSE_DISTANCE, 3)) == []
    assert without(refusing(told, RefusalReason.NO_USABLE_UPDATE)) == []
    unfounded = raises(ViolationCode.REFUSAL_UNFOUNDED, 1, reason=RefusalReason.NOT_A_VECTOR)
    assert without(refusing(told, RefusalReason.NOT_A_VECTOR)) == [unfounded]


def test_every_violation_before_a_model_is_tested_here() -> None:
    # The last two are the judge's own: see test_judgement.
    raised = re.findall(r"raises\(\s*ViolationCode\.(\w+)", Path(__file__).read_text("utf-8"))
    assert {each.name for each in ViolationCode} - set(raised) == {
        "MODEL_UNKNOWN",
        "MODEL_NOT_FINITE",
    }
