"""What follows from a record: by pencil, then for any round, then that every field tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.protocol import encoding
from ledger.protocol.documents.record import (
    Dropout,
    RoundRecord,
    decode_record,
    encode_record,
    encode_vector,
)
from ledger.protocol.judgement import (
    counted_vectors,
    judge,
    result_preimage,
    score_leaves,
    update_leaves,
    usable_clients,
)
from ledger.protocol.parameters import STRATEGIES
from ledger.protocol.payloads import PAYLOAD_FORMS, Payload
from ledger.protocol.types import ClientId, Digest, DropoutReason, RefusalReason
from ledger.protocol.validation import Violation, ViolationCode
from tests.faults import times
from tests.protocol.support import f32, small_round
from tests.support.keys import ids
from tests.support.rounds import ClosedRound, scores_by

# Members 0, 1, 2 have -1, 0, 1; trainers 3 to 8 have 1, 2, 3, 4, 5, 60.
VALUES = {0: -1.0, 1: 0.0, 2: 1.0, 3: 1.0, 4: 2.0, 5: 3.0, 6: 4.0, 7: 5.0, 8: 60.0}


def told(**changes: Any) -> ClosedRound:
    return small_round(VALUES, **changes).scored()


def clients(words: Sequence[int]) -> list[int]:
    return [encoding.word_client(word) for word in words]


def test_a_round_by_pencil() -> None:
    judged = told().judged()
    # A trainer at x is at mean ((x+1)^2 + x^2 + (x-1)^2) / 3 = x^2 + 2/3.
    assert clients(judged.ranking.words) == [3, 4, 5, 6, 7, 8]
    distances = [encoding.word_distance(word) for word in judged.ranking.words]
    assert distances == [5 / 3, 14 / 3, 29 / 3, 50 / 3, 77 / 3, 10802 / 3]
    assert judged.ranking.accepted == ids(3, 4, 5)
    assert judged.ranking.candidates == ids(4, 5, 6)
    # Equal samples: 0 - (1 + 2 + 3) / 3.
    assert judged.model.tolist() == [-2.0]


def test_a_round_of_rounded_updates_by_pencil() -> None:
    # With 100 as the largest number, the step is 1: 3.4 is published as 3, 1.5 as 2.
    rows = {i: (float(i), 100.0) for i in range(9)} | {4: (3.4, 100.0), 5: (1.5, 100.0)}
    small = small_round(rows, model=(0.0, 0.0), payload="q8").scored()
    assert all(payload.size == 68 for payload in small.evidence.payloads.values())
    judged = small.judged()
    said = small.evidence.updates
    assert np.array_equal(said[ClientId(4)], [3.0, 100.0])  # type: ignore[arg-type]
    assert np.array_equal(said[ClientId(5)], [2.0, 100.0])  # type: ignore[arg-type]
    # A trainer at x is at mean (x^2 + (x-1)^2 + (x-2)^2) / 3 = (x-1)^2 + 2/3.
    assert clients(judged.ranking.words) == [5, 3, 4, 6, 7, 8]
    distances = [encoding.word_distance(word) for word in judged.ranking.words]
    assert distances == [5 / 3, 14 / 3, 14 / 3, 77 / 3, 110 / 3, 149 / 3]
    assert judged.model.tolist() == [np.float32(-8 / 3), -100.0]


@pytest.mark.parametrize("form", PAYLOAD_FORMS)
def test_a_payload_of_another_form_is_malformed(form: str) -> None:
    (other,) = PAYLOAD_FORMS.keys() - {form}
    payload = PAYLOAD_FORMS[other].encode(np.ones(1, np.float32))
    small = small_round({3: bytes(payload)}, payload=form).scored()
    dropout = Dropout(ClientId(3), DropoutReason.PAYLOAD_MALFORMED, encoding.sha256(payload))
    assert small.compose().dropouts == (dropout,)
    assert clients(small.judged().ranking.words) == [4, 5, 6, 7, 8]


def test_dropouts_leave_a_shorter_ranking_from_which_all_follows() -> None:
    small = told(uncommitted=[3], unpublished=[4])
    record, judged = small.compose(), small.judged()
    assert record.dropouts == (
        Dropout(ClientId(3), DropoutReason.NO_COMMITMENT),
        Dropout(ClientId(4), DropoutReason.PAYLOAD_MISSING),
    )
    assert clients(judged.ranking.words) == [5, 6, 7, 8]
    assert judged.ranking.accepted == ids(5, 6)
    assert judged.ranking.candidates == ids(5, 6, 7)


def test_a_banned_members_seat_is_empty() -> None:
    small = told(banned=[1])
    record = small.compose()
    assert record.dropouts == (Dropout(ClientId(1), DropoutReason.NO_COMMITMENT),)
    assert [signed.scores.member for signed in record.scores] == [0, 2]
    assert small.judge()[1] == ()


def test_of_a_lot_the_members_vote_on_all_candidates() -> None:
    many = along(5.0, {4: 1.0}).scored().judged()
    assert set(many.ranking.accepted) == {3, 4, 5, 7, 8}
    assert many.ranking.candidates == many.ranking.accepted
    few = along(5.0, {3: -2.0, 5: -1.0, 7: -1.0, 0: 3.0}).scored().judged()
    assert len(few.ranking.accepted) == 5, "most of a round decides"


def test_the_opening_binds_model_ranking_payloads_vectors_and_record() -> None:
    small = told()
    judged, record = small.judged(), small.compose()
    opening, payloads = judged.opening, record.payloads()
    assert opening.model == encoding.sha256(encoding.vector_bytes(judged.model))
    assert opening.ranking_digest == encoding.ranking_digest(judged.ranking.words)
    assert opening.reveal == encoding.keccak256(b"".join(payloads[c] for c in ids(*range(3, 9))))
    assert opening.record == encoding.sha256(encode_record(record))
    leaves = update_leaves(judged.ranking.words, judged.ranking.accepted, payloads)
    assert leaves[2] == (5, payloads[ClientId(5)], 2, encoding.float_bits(29 / 3), True)
    assert [leaf[4] for leaf in leaves] == [True] * 3 + [False] * 3
    assert opening.updates_root == encoding.merkle_root(encoding.UPDATE_LEAF, leaves)
    scores = [(c, encoding.sha256(encode_vector(small.vector(c)))) for c in (0, 1, 2)]
    assert score_leaves(record) == scores
    assert opening.scores_root == encoding.merkle_root(encoding.SCORES_LEAF, scores)


def test_a_record_that_is_doubted_has_no_judgement() -> None:
    small = told()
    record = replace(small.compose(), dropouts=(), updates=())
    judgement, violations = small.judge(record)
    assert judgement is None
    assert ViolationCode.NOT_THE_ACTIVE_CLIENTS in {doubt.code for doubt in violations}
    fewer = replace(small.compose(), scores=small.compose().scores[:1])
    assert small.judge(fewer) == (None, (Violation(ViolationCode.TOO_FEW_SCORES),))


def test_without_the_model_before_it_nothing_follows() -> None:
    small = told()
    blind = replace(small, evidence=replace(small.evidence, model=None))
    assert blind.judge() == (None, (Violation(ViolationCode.MODEL_UNKNOWN),))
    assert blind.compose() == small.compose()


def test_a_model_that_is_not_finite_is_refused() -> None:
    small = small_round(dict.fromkeys(range(9), 3e38), model=(-3e38,)).scored()
    assert small.judge() == (None, (Violation(ViolationCode.MODEL_NOT_FINITE),))
    half = small_round(dict.fromkeys(range(9), 3e38), model=(-3e38,), server_rate=0.1).scored()
    assert half.judge()[1] == ()


def test_an_update_is_usable_only_if_active_and_committed() -> None:
    small = small_round(VALUES, uncommitted=[3])
    payloads = dict(small.evidence.payloads) | {
        ClientId(3): Payload.of(encoding.vector_bytes(f32(1.0))),
        ClientId(12): Payload.of(encoding.vector_bytes(f32(1.0))),
    }
    evidence = replace(small.evidence, payloads=payloads)
    assert usable_clients(small.inputs, evidence) == ids(0, 1, 2, 4, 5, 6, 7, 8)


def test_claims_for_other_sets_or_unsigned_are_skipped() -> None:
    small = told()
    honest = small.compose()
    scores = small.claims[0].scores
    strays = [
        replace(small.claims[0], scores=replace(scores, clients=Digest(bytes(32)))),
        replace(small.claims[0], scores=replace(scores, base=Digest(bytes(32)))),
        replace(small.claims[0], scores=replace(scores, round=9)),
        replace(small.claims[0], scores=replace(scores, digest=Digest(bytes(32)))),
        replace(small.claims[0], signature=bytes(65)),
        small.claim(0, b"forged", key=1),
        small.claim(3, b"a trainer's"),
    ]
    vectors = dict(small.evidence.vectors)
    vectors |= {encoding.sha256(data): data for data in (b"forged", b"a trainer's")}
    noisy = replace(
        small, claims=(*strays, *small.claims), evidence=small.evidence.with_vectors(vectors)
    )
    assert noisy.compose() == honest


def test_vectors_not_held_are_omitted_from_the_comparison() -> None:
    small = told()
    record = small.compose()
    assert [vector.member for vector in counted_vectors(record, small.evidence)] == [0, 1, 2]
    vectors = dict(small.evidence.vectors)
    del vectors[record.scores[1].scores.digest]
    vectors[record.scores[2].scores.digest] = b"damaged"
    found = counted_vectors(record, small.evidence.with_vectors(vectors))
    assert [vector.member for vector in found] == [0]


numbers = st.integers(-8, 8).map(lambda value: value / 4)
plain_rows = st.tuples(numbers, numbers, numbers)
rows = plain_rows | st.sampled_from(
    [(0.0, 0.0, 0.0), (1e30, 0.0, 1.0), b"", b"odd", np.full(3, np.nan, "<f4").tobytes()]
)
LIES = ("silent", "false", "near", "garbage", "range", "other", "twice", "thrice")


def few(clients: st.SearchStrategy[int]) -> st.SearchStrategy[set[int]]:
    return st.just(set[int]()) | st.just(set[int]()) | clients.map(lambda client: {client})


@st.composite
def rounds(draw: st.DrawFn) -> ClosedRound:
    """Return rounds with dropouts, liars and double vectors, under any rules."""
    small = small_round(
        {i: draw(plain_rows if i % 4 else rows) for i in range(9)},
        model=(1.0, -2.0, 0.5),
        travel=draw(plain_rows),
        uncommitted=draw(few(st.integers(0, 8))),
        unpublished=draw(few(st.integers(0, 8))),
        banned=draw(few(st.integers(0, 2))),
        strategy=draw(st.sampled_from(list(STRATEGIES))),
    )
    for member in small.members:
        vector = scores_by(small.inputs, small.evidence, small.usable, member)
        if vector is None:
            continue
        lie = draw(st.just("honest") | st.just("honest") | st.sampled_from(LIES))
        if lie in {"honest", "twice", "thrice"}:
            small = small.publish(member, vector)
        if lie in {"garbage", "twice", "thrice"}:
            small = small.publish(member, b"garbage")
        if lie == "false":
            small = small.publish(member, replace(vector, distances=vector.distances * 3))
        if lie == "near":
            nearly = vector.distances * (1 + draw(st.floats(-3e-9, 3e-9)))
            small = small.publish(member, replace(vector, distances=nearly))
        if lie == "range":
            small = small.publish(member, replace(vector, distances=-1 - vector.distances))
        if lie in {"other", "thrice"}:
            small = small.publish(member, replace(vector, round=7))
    return small


EXPECTED = {
    ViolationCode.TOO_FEW_SCORES,
    ViolationCode.TOO_FEW_TRAINERS,
    ViolationCode.MODEL_NOT_FINITE,
}
"""What no primary can help; everything else would be a fault of its own."""


@settings(max_examples=times(100, 5_000))
@given(small=rounds())
def test_what_a_primary_composes_nobody_doubts(small: ClosedRound) -> None:
    record = small.compose()
    assert decode_record(encode_record(record)) == record
    judgement, violations = small.judge(record)
    assert {doubt.code for doubt in violations} <= EXPECTED
    assert (judgement is None) == bool(violations)
    if judgement is None:
        return
    ranked, accepted = clients(judgement.ranking.words), judgement.ranking.accepted
    assert set(ranked) == set(record.clients) & set(small.inputs.participants.trainers)
    assert 1 <= len(accepted) <= len(ranked)
    assert set(accepted) <= set(ranked)
    stand = set(judgement.ranking.candidates)
    by_lot = small.inputs.parameters.strategy == 3
    assert len(stand) == (max(3, len(accepted)) if by_lot else 3)
    again, _ = small.judge(decode_record(encode_record(record)))
    assert again is not None
    assert again.result == judgement.result


@settings(max_examples=times(40, 2_000))
@given(small=rounds(), order=st.randoms(use_true_random=False))
def test_the_order_in_which_claims_arrive_changes_no_byte(small: ClosedRound, order: Any) -> None:
    claims = list(small.claims)
    order.shuffle(claims)
    shuffled = replace(small, claims=tuple(claims))
    assert encode_record(shuffled.compose()) == encode_record(small.compose())


def along(
    travel: float | None, other: Mapping[int, float] | None = None, **changes: Any
) -> ClosedRound:
    """Return a round whose members disagree: two go along with a travel of 5, and one against."""
    values = {0: 1.0, 1: 1.0, 2: -1.0, 3: 2.0, 4: -2.0, 5: 1.0, 6: -1.0, 7: 2.0, 8: 1.0}
    values |= other or {}
    way = None if travel is None else (travel,)
    return small_round(values, travel=way, **{"strategy": 3} | changes)


def test_strategy_three_accepts_what_points_as_most_of_the_round() -> None:
    # One number has two directions: 6 of 9 updates and the travel point one way, and all lie in it,
    # so that nobody crowds. The median from the others is 0 or 4, and b is 1.
    small = along(5.0)
    for member in (0, 1, 2):
        assert small.vector(member).distances.tolist() == [0, 4, 0, 4, 0, 0]
    judged = small.scored().judged()
    assert judged.ranking.accepted == ids(3, 5, 7, 8)
    # Against the travel b is 0.
    assert along(-5.0).vector(2).distances.tolist() == [0, 4, 0, 4, 0, 0]


def test_a_false_distance_of_strategy_three_is_refused_by_name() -> None:
    small = along(5.0)
    lie = replace(small.vector(2), distances=np.array([4.0, 0.0, 4.0, 0.0, 4.0, 4.0]))
    told = small.scored(0, 1).publish(2, lie)
    (entry,) = told.compose().refused
    assert (entry.signed.scores.member, entry.reason) == (2, RefusalReason.FALSE_DISTANCE)
    assert entry.client == 3
    assert told.judge()[1] == ()


def test_without_the_travel_nothing_can_be_judged_scored_or_composed() -> None:
    record, unknown = along(5.0).scored().compose(), along(None)
    told = replace(unknown.evidence, vectors=along(5.0).scored().evidence.vectors)
    judgement, violations = judge(unknown.inputs, record, told)
    assert judgement is None
    assert violations == (Violation(ViolationCode.MODEL_UNKNOWN),)
    with pytest.raises(ValueError, match="the distances of round 2 need an unknown displacement"):
        unknown.vector(0)
    with pytest.raises(ValueError, match="unknown displacement"):
        unknown.compose()


def test_a_first_round_has_no_travel_and_needs_none() -> None:
    first = replace(along(None), inputs=replace(along(None).inputs, round=1))
    assert first.vector(2).distances.tolist() == [0, 4, 0, 4, 0, 0]


def test_members_sending_zeros_have_no_vector_and_others_decide() -> None:
    small = along(5.0, {0: 0.0})
    assert scores_by(small.inputs, small.evidence, small.usable, ClientId(0)) is None
    judged = small.scored().judged()
    assert [signed.scores.member for signed in judged.record.scores] == [1, 2]
    assert len(judged.record.updates) == 9, "its update is usable all the same"
    # Whoever of them publishes one nevertheless is refused, whatever it says.
    bold = replace(small.vector(1), member=ClientId(0), members=ids(1, 2))
    record = small.scored(1, 2).publish(0, bold).compose()
    (entry,) = record.refused
    assert (entry.signed.scores.member, entry.reason) == (0, RefusalReason.NO_USABLE_UPDATE)


@pytest.mark.parametrize("zeros", [2, 3])
def test_where_most_members_send_zeros_nobody_can_decide(zeros: int) -> None:
    values = {i: 0.0 if i < zeros else float(i) for i in range(9)}
    small = small_round(values, travel=(1.0,), strategy=3).scored()
    judgement, violations = small.judge()
    assert judgement is None
    assert violations == (Violation(ViolationCode.TOO_FEW_SCORES),)


def test_one_wild_member_turns_the_rankings_of_strategies_one_and_two() -> None:
    # Member 0 commits -100 and scores honestly: no check of scores finds it, and trainer 3 at -30
    # is the nearest to the members' mean.
    wild = VALUES | {0: -100.0, 3: -30.0}
    assert clients(small_round(wild).scored().judged().ranking.words)[0] == 3


def test_who_sends_most_of_a_round_moves_the_model_by_an_honest_length() -> None:
    # Five of nine, two of them members, along a travel that was theirs: they alone are accepted.
    values = dict.fromkeys(range(9), 1.0) | dict.fromkeys((1, 2, 3, 4, 5), -1e6)
    judged = along(-5.0, values).scored().judged()
    assert set(judged.ranking.accepted) == {3, 4, 5}
    assert judged.model.tolist() == [1.0]


def test_a_record_with_another_field_is_another_result() -> None:
    small = told(unpublished=[8]).publish(1, b"another")
    honest, judged = small.compose(), small.judged()

    def result(record: RoundRecord, words: tuple[int, ...]) -> Digest:
        ranking = judged.ranking._replace(words=words)
        return encoding.aggregation_result(result_preimage(record, ranking, judged.opening.model))

    assert result(decode_record(encode_record(honest)), judged.ranking.words) == judged.result
    for field in fields(RoundRecord):
        assert getattr(honest, field.name), "there is something to leave out"
        other = {"round": 9, "base": Digest(bytes(32))}.get(field.name, ())
        changed = replace(honest, **{field.name: other})  # type: ignore[arg-type]
        words = () if field.name == "updates" else judged.ranking.words
        assert result(changed, words) != judged.result, field.name
