"""Which updates are usable and which score vectors count; whatever does not has its reason."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.protocol import counting, encoding
from ledger.protocol.counting import collect_updates, count_scores, why_false, why_not_counted
from ledger.protocol.parameters import Parameters
from ledger.protocol.types import ClientId, Digest, Domain, SignedScores
from tests.protocol.support import (
    DOMAIN,
    Shelf,
    SmallRound,
    f32,
    ids,
    malleated,
    signed_scores,
    small_round,
)

if TYPE_CHECKING:
    from ledger.protocol.documents import ScoreVector

# Seven clients: members 0, 1, 2 with the updates 0, 1, 2; trainers 3 to 6 with 3, 4, 5, 6.
PARAMETERS = Parameters(
    clients=7,
    active_rate=1.0,
    committee_rate=0.45,
    aggregation_rate=0.5,
    rounds=1,
    dimension=1,
)
ROUND = small_round(PARAMETERS, {i: float(i) for i in range(7)})


def reason(
    vector: ScoreVector, *, round_: SmallRound = ROUND, claim: SignedScores | None = None
) -> str | None:
    """Return why a signed vector is refused, None if it counts."""
    shelf = Shelf()
    signed = claim or signed_scores(shelf, vector)
    return why_not_counted(round_.electorate, round_.updates, signed, vector)


def test_a_committed_and_published_update_is_usable() -> None:
    payload = encoding.vector_bytes(f32(1.0, 2.0))
    digest = encoding.sha256(payload)
    found = collect_updates(ids(3), {ClientId(3): digest}, Shelf([payload]).get, 2)
    assert found.vectors[ClientId(3)].tolist() == [1.0, 2.0]
    assert found.payloads == {3: digest}
    assert found.dropouts == ()


def test_dropouts_are_listed_ascending_each_with_its_reason() -> None:
    good = encoding.vector_bytes(f32(1.0))
    bad = [b"", bytes(5), encoding.vector_bytes(f32(float("nan")))]
    shelf = Shelf([good, *bad])
    commitments = {ClientId(6): encoding.sha256(good), ClientId(1): Digest(bytes(32))}
    commitments |= {ClientId(2 + i): encoding.sha256(blob) for i, blob in enumerate(bad)}
    found = collect_updates(ids(6, 5, 4, 3, 2, 1), commitments, shelf.get, 1)
    assert list(found.vectors) == list(found.payloads) == [6]
    malformed = [(client, counting.PAYLOAD_MALFORMED) for client in (2, 3, 4)]
    assert found.dropouts == (
        (1, counting.PAYLOAD_MISSING),
        *malformed,
        (5, counting.NO_COMMITMENT),
    )


@given(active=st.sets(st.integers(0, 20).map(ClientId)), data=st.data())
def test_every_active_client_is_usable_or_a_dropout(
    active: set[ClientId], data: st.DataObject
) -> None:
    blobs = data.draw(
        st.dictionaries(st.sampled_from([ClientId(i) for i in range(21)]), st.binary(max_size=8))
    )
    published = data.draw(st.sets(st.sampled_from(sorted(blobs)))) if blobs else set()
    shelf = Shelf(blobs[client] for client in published)
    commitments = {client: encoding.sha256(blob) for client, blob in blobs.items()}
    found = collect_updates(active, commitments, shelf.get, 1)
    dropouts = [client for client, _ in found.dropouts]
    assert sorted([*found.vectors, *dropouts]) == sorted(active)
    assert dropouts == sorted(dropouts)


def test_a_true_and_complete_vector_counts() -> None:
    vector = ROUND.vector(ClientId(1))
    assert vector.distances.tolist() == [4.0, 9.0, 16.0, 25.0]
    assert vector.member_distances.tolist() == [1.0, 1.0]
    assert reason(vector) is None
    assert why_false(vector, ROUND.distance) is None


def test_who_is_no_member_does_not_score() -> None:
    vector = replace(ROUND.vector(ClientId(1)), member=ClientId(3))
    assert reason(vector) == "its signer is no member"


def test_a_member_of_which_nothing_is_known_does_not_crash_the_count() -> None:
    shelf, vector = Shelf(), ROUND.vector(ClientId(1))
    scores = replace(signed_scores(shelf, vector).scores, member=ClientId(2**32 - 1))
    assert reason(vector, claim=SignedScores(scores, bytes(65))) == "its signer is no member"


def test_another_members_signature_does_not_count() -> None:
    vector = ROUND.vector(ClientId(1))
    claim = signed_scores(Shelf(), vector, key=2)
    assert reason(vector, claim=claim) == "it is not signed by its member"


def test_a_malleated_signature_does_not_count() -> None:
    claim = signed_scores(Shelf(), ROUND.vector(ClientId(1)))
    twin = replace(claim, signature=malleated(claim.signature))
    assert reason(ROUND.vector(ClientId(1)), claim=twin) == "it is not signed by its member"


def test_a_signature_for_another_contract_does_not_count() -> None:
    vector = ROUND.vector(ClientId(1))
    elsewhere = replace(ROUND.electorate, domain=Domain(DOMAIN.chain_id + 1, DOMAIN.contract))
    found = why_not_counted(elsewhere, ROUND.updates, signed_scores(Shelf(), vector), vector)
    assert found == "it is not signed by its member"


def test_a_vector_of_another_round_or_member_does_not_count() -> None:
    vector = ROUND.vector(ClientId(1))
    expected = "it is of another round or member"
    assert reason(replace(vector, round=2)) == expected
    copied = signed_scores(Shelf(), replace(vector, member=ClientId(2)))
    assert reason(vector, claim=copied) == expected


def test_a_claim_signed_for_another_round_does_not_count() -> None:
    vector = ROUND.vector(ClientId(1))
    claim = signed_scores(Shelf(), vector, round_number=2)
    # Only the vector says its round: the signature was for the other one's claim.
    early = replace(ROUND.electorate, round=2)
    assert (
        why_not_counted(early, ROUND.updates, claim, vector) == "it is of another round or member"
    )


def test_a_member_without_an_update_of_its_own_does_not_score() -> None:
    absent = small_round(PARAMETERS, {i: float(i) for i in range(7)}, missing=[1])
    vector = ROUND.vector(ClientId(1))
    assert reason(vector, round_=absent) == "its member has no usable update"


@pytest.mark.parametrize("trainers", [(3, 4, 5), (3, 4, 5, 7), (2, 3, 4, 5), ()])
def test_a_vector_scores_exactly_the_trainers_with_an_update(trainers: tuple[int, ...]) -> None:
    count = len(trainers)
    vector = replace(ROUND.vector(ClientId(1)), trainers=ids(*trainers), distances=np.ones(count))
    assert reason(vector) == "it does not score exactly the trainers with a usable update"


def test_trainers_without_an_update_are_not_scored() -> None:
    fewer = small_round(PARAMETERS, {i: float(i) for i in range(7)}, missing=[4])
    vector = fewer.vector(ClientId(1))
    assert vector.trainers == ids(3, 5, 6)
    assert reason(vector, round_=fewer) is None


@pytest.mark.parametrize("members", [(0,), (0, 1, 2), (2, 3)])
def test_a_vector_scores_exactly_the_other_members(members: tuple[int, ...]) -> None:
    vector = replace(
        ROUND.vector(ClientId(1)), members=ids(*members), member_distances=np.ones(len(members))
    )
    assert reason(vector) == "it does not score exactly the other members"


def test_a_distance_that_could_overflow_a_mean_does_not_count() -> None:
    vector = ROUND.vector(ClientId(1))
    at = np.array([4.0, 9.0, 16.0, counting.DISTANCE_LIMIT])
    beyond = np.nextafter(at, np.inf)
    assert reason(replace(vector, distances=at)) is None
    expected = "a distance is beyond any that float32 updates can have"
    assert reason(replace(vector, distances=beyond)) == expected
    assert reason(replace(vector, member_distances=beyond[2:])) == expected


def test_the_first_false_distance_is_named_with_the_true_one() -> None:
    vector = replace(ROUND.vector(ClientId(1)), distances=np.array([4.0, 9.5, 16.0, 0.0]))
    found = why_false(vector, ROUND.distance)
    assert found == "false distance to client 4: 9.5 published, 9 true"


def test_distances_to_members_are_checked_too() -> None:
    vector = replace(ROUND.vector(ClientId(1)), member_distances=np.array([1.0, 2.0]))
    found = why_false(vector, ROUND.distance)
    assert found == "false distance to client 2: 2 published, 1 true"


def test_orders_of_summation_may_differ_but_not_more() -> None:
    # The tolerance is 1e-9 of the truth: a summation of 10^6 float64 numbers errs by less.
    vector = ROUND.vector(ClientId(1))
    near = vector.distances * (1 + 0.9e-9)
    far = vector.distances * (1 + 1.1e-9)
    assert why_false(replace(vector, distances=near), ROUND.distance) is None
    assert why_false(replace(vector, distances=far), ROUND.distance) is not None


def test_between_equal_updates_only_zero_is_true() -> None:
    same = small_round(PARAMETERS, {})
    vector = same.vector(ClientId(1))
    assert why_false(vector, same.distance) is None
    lie = replace(vector, distances=np.array([0.0, 0.0, 0.0, 5e-324]))
    assert (
        why_false(lie, same.distance)
        == "false distance to client 6: 4.94065646e-324 published, 0 true"
    )


def test_counted_and_refused_claims_are_told_apart() -> None:
    shelf = Shelf()
    true = signed_scores(shelf, ROUND.vector(ClientId(0)))
    lie = replace(ROUND.vector(ClientId(1)), distances=np.zeros(4))
    false = signed_scores(shelf, lie)
    absent = signed_scores(Shelf(), ROUND.vector(ClientId(2)))
    noise = replace(true, scores=replace(true.scores, digest=shelf.put(b"noise")))
    published = [false, true, absent, noise]
    counted, refused = count_scores(
        ROUND.electorate, ROUND.updates, published, shelf.get, ROUND.distance
    )
    assert list(counted) == [0]
    assert counted[ClientId(0)].digest == true.scores.digest
    assert [(entry.signed, entry.reason) for entry in refused] == [
        (false, "false distance to client 3: 0 published, 4 true"),
        (absent, "unreadable: BlobMissingError"),
        (noise, "unreadable: EncodingError"),
    ]


def test_where_scores_are_not_checked_a_lie_counts() -> None:
    shelf = Shelf()
    lie = replace(ROUND.vector(ClientId(1)), distances=np.zeros(4))
    signed = signed_scores(shelf, lie)
    counted, refused = count_scores(ROUND.electorate, ROUND.updates, [signed], shelf.get, None)
    assert list(counted) == [1]
    assert refused == ()


def test_of_two_vectors_by_one_member_the_first_that_counts_is_taken() -> None:
    shelf, vector = Shelf(), ROUND.vector(ClientId(1))
    first = signed_scores(shelf, vector)
    second = signed_scores(shelf, replace(vector, distances=vector.distances + 1))
    counted, refused = count_scores(
        ROUND.electorate, ROUND.updates, [first, second], shelf.get, None
    )
    assert counted[ClientId(1)].digest == first.scores.digest
    assert [entry.reason for entry in refused] == ["its member has published another before"]
    counted, refused = count_scores(
        ROUND.electorate, ROUND.updates, [second, first], shelf.get, ROUND.distance
    )
    assert counted[ClientId(1)].digest == first.scores.digest
    assert len(refused) == 1


@given(published=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.booleans())))
def test_only_true_vectors_signed_by_their_members_count(
    published: list[tuple[int, int, bool]],
) -> None:
    shelf, claims = Shelf(), []
    for member, key, honest in published:
        vector = replace(ROUND.vector(ClientId(1)), member=ClientId(member))
        if member < 3:
            vector = ROUND.vector(ClientId(member))
        if not honest:
            vector = replace(vector, distances=vector.distances * 2)
        claims.append(signed_scores(shelf, vector, key=key))
    counted, refused = count_scores(
        ROUND.electorate, ROUND.updates, claims, shelf.get, ROUND.distance
    )
    expected = {member for member, key, honest in published if member == key < 3 and honest}
    assert set(counted) == expected
    assert len(counted) + len(refused) == len(published)
