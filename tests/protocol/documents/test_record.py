"""Records, incidents and score vectors: each malformation is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.protocol.documents.record import (
    MAX_VECTOR_BYTES,
    VOTES_OF,
    Dropout,
    RefusedScores,
    RoundRecord,
    ScoreVector,
    UsableUpdate,
    decode_incidents,
    decode_preimage,
    decode_record,
    decode_vector,
    encode_incidents,
    encode_record,
    encode_vector,
    preimage_fields,
)
from ledger.protocol.encoding import client_list, set_digest
from ledger.protocol.errors import EncodingError
from ledger.protocol.types import (
    ClientId,
    DropoutReason,
    IncidentKind,
    RefusalReason,
    Scores,
    SignedScores,
)
from tests.protocol.documents.changes import (
    INCIDENTS,
    OPENING,
    RECORD,
    SIGNATURE,
    VECTOR,
    claim,
    filled,
    require_refused,
    same,
)
from tests.protocol.support import client_ids, digests
from tests.support.keys import ids

signatures = st.binary(min_size=65, max_size=65)


def entries(maximum: int = 4) -> st.SearchStrategy[list[ClientId]]:
    return st.sets(client_ids, max_size=maximum).map(sorted)


@st.composite
def records(draw: st.DrawFn) -> RoundRecord:
    number, base = draw(st.integers(0, 2**64 - 1)), draw(digests)
    updates = tuple(UsableUpdate(client, draw(digests)) for client in draw(entries()))
    clients = set_digest([update.client for update in updates])
    dropouts = []
    for client in draw(entries()):
        reason = draw(st.sampled_from(DropoutReason))
        malformed = reason is DropoutReason.PAYLOAD_MALFORMED
        dropouts.append(Dropout(client, reason, draw(digests) if malformed else None))

    def signed(member: ClientId) -> SignedScores:
        return SignedScores(Scores(number, member, base, clients, draw(digests)), draw(signatures))

    refused = []
    for member in draw(entries()):
        reason = draw(st.sampled_from(RefusalReason))
        false = reason is RefusalReason.FALSE_DISTANCE
        named = draw(client_ids) if false else ClientId(0)
        refused += [RefusedScores(signed(member), reason, named) for _ in range(draw(twice))]
    refused.sort(key=lambda entry: (entry.signed.scores.member, entry.signed.scores.digest))
    scores = tuple(signed(member) for member in draw(entries()))
    return RoundRecord(number, base, updates, tuple(dropouts), scores, tuple(refused))


twice = st.integers(1, 2)


@given(record=records())
def test_every_record_can_be_read_back(record: RoundRecord) -> None:
    try:
        assert decode_record(encode_record(record)) == record
    except EncodingError:
        keys = [(e.signed.scores.member, e.signed.scores.digest) for e in record.refused]
        assert len(set(keys)) < len(keys), "the same vector was drawn twice"


def test_claims_are_for_the_records_own_round_base_and_updates() -> None:
    found = decode_record(encode_record(RECORD))
    assert found.clients == ids(0, 1, 2, 4, 7)
    assert found.clients_digest == set_digest(ids(0, 1, 2, 4, 7))
    assert found.payloads()[ClientId(4)] == filled(4)
    for signed in (*found.scores, *(entry.signed for entry in found.refused)):
        assert (signed.scores.round, signed.scores.base) == (3, RECORD.base)
        assert signed.scores.clients == found.clients_digest


@pytest.mark.parametrize(
    ("path", "new", "fact"),
    [
        (("round",), -1, "round -1"),
        (("base",), bytes(31), "is not 32 bytes"),
        (("updates", 0), [0], "is not a list of 2"),
        (("updates", 0, 0), 1, "updates are not strictly ascending"),
        (("updates", 0, 1), bytes(33), "is not 32 bytes"),
        (("dropouts", 0), [4, 1], "is not a list of 3"),
        (("dropouts", 0, 0), 5, "dropouts are not strictly ascending"),
        (("dropouts", 0, 1), 0, "there is no dropout reason 0"),
        (("dropouts", 0, 1), 3, "digest b'' is not 32 bytes"),
        (("dropouts", 0, 2), bytes(32), "is not 0 bytes"),
        (("dropouts", 2, 2), b"", "is not 32 bytes"),
        (("scores", 0), [1, bytes(32)], "is not a list of 3"),
        (("scores", 0, 2), bytes(64), "is not 65 bytes"),
        (("refused", 0), [1, bytes(32), SIGNATURE, 7], "is not a list of 5"),
        (("refused", 0, 1), bytes([12]) * 32, "refused are not strictly ascending"),
        (("refused", 0, 0), 2, "refused are not strictly ascending"),
        (("refused", 2, 0), 1, "a member has over 2 refused vectors"),
        (("refused", 0, 3), 0, "there is no refusal reason 0"),
        (("refused", 0, 4), 4, "reason 7 names no client, and 4 is one"),
        (("refused", 2, 3), 5, "reason 5 names no client, and 4 is one"),
        (("refused", 2, 4), 0, None),
    ],
)
def test_a_record_that_is_not_one_is_refused(
    path: tuple[object, ...], new: object, fact: str | None
) -> None:
    require_refused("record", path, new, fact)


def test_scores_ascend_by_member() -> None:
    for members, fits in (((0, 1), True), ((1, 0), False), ((1, 1), False)):
        scores = tuple(claim(member, 10 + place) for place, member in enumerate(members))
        data = encode_record(replace(RECORD, scores=scores))
        if fits:
            assert decode_record(data).scores == scores
            continue
        with pytest.raises(EncodingError, match="scores are not strictly ascending"):
            decode_record(data)


def test_no_member_is_refused_more_than_twice() -> None:
    refused = tuple(
        RefusedScores(claim(1, digest), RefusalReason.TWO_VECTORS) for digest in (11, 12, 13)
    )
    assert decode_record(encode_record(replace(RECORD, refused=refused[:2]))).refused == refused[:2]
    with pytest.raises(EncodingError, match="a member has over 2 refused vectors"):
        decode_record(encode_record(replace(RECORD, refused=refused)))


VOTE = ("incidents", 1, 4, 0)  # the second incident is a wrong proposal, the fourth an equivocation


def test_a_round_without_incidents_can_be_written_down() -> None:
    calm = replace(INCIDENTS, incidents=())
    assert decode_incidents(encode_incidents(calm)) == calm


def test_each_kind_has_its_number_of_votes() -> None:
    assert [VOTES_OF[kind] for kind in IncidentKind] == [0, 0, 1, 2]
    assert [kind.value for kind in IncidentKind] == [1, 2, 3, 4]


def test_an_opening_is_six_fields() -> None:
    assert len(preimage_fields(OPENING)) == 6
    assert decode_preimage(preimage_fields(OPENING)) == OPENING
    with pytest.raises(EncodingError, match="is not a list of 6"):
        decode_preimage(preimage_fields(OPENING)[:5])


def test_incidents_ascend_by_phase_view_member_and_kind() -> None:
    for one, other in ((0, 1), (1, 2), (2, 3)):
        swapped = list(INCIDENTS.incidents)
        swapped[one], swapped[other] = swapped[other], swapped[one]
        with pytest.raises(EncodingError, match="incidents are not strictly ascending"):
            decode_incidents(encode_incidents(replace(INCIDENTS, incidents=tuple(swapped))))
    twice = (INCIDENTS.incidents[0],) * 2
    with pytest.raises(EncodingError, match="incidents are not strictly ascending"):
        decode_incidents(encode_incidents(replace(INCIDENTS, incidents=twice)))


@pytest.mark.parametrize(
    ("path", "new", "fact"),
    [
        (("round",), -1, "round -1"),
        (("base",), b"", "is not 32 bytes"),
        (("incidents", 0), [1, 0, 2, 1, []], "is not a list of 6"),
        (("incidents", 0, 0), 0, "there is no phase 0"),
        (("incidents", 3, 1), 2**32, "view 4294967296"),
        (("incidents", 3, 1), 2**32 - 1, None),
        (("incidents", 0, 3), 0, "there is no kind of incident 0"),
        (("incidents", 0, 4), [1], "is not a list of 0"),
        (("incidents", 1, 4), [], "is not a list of 1"),
        (("incidents", 3, 4), [], "is not a list of 2"),
        (("incidents", 0, 3), 3, "is not a list of 1"),
        (VOTE, [1], "is not a list of 5"),
        ((*VOTE, 0), 0, "vote kind 0 is neither request nor reply"),
        ((*VOTE, 0), 2, None),
        ((*VOTE, 4), b"", "is not 65 bytes"),
        (("incidents", 0, 5), [1], "is not a list of 0"),
        (("incidents", 1, 5), [], "is not a list of 6"),
        (("incidents", 1, 5, 5), 7, "is not 32 bytes"),
    ],
)
def test_incidents_that_are_none_are_refused(
    path: tuple[object, ...], new: object, fact: str | None
) -> None:
    require_refused("incidents", path, new, fact)


anything = st.floats(allow_nan=False)


@st.composite
def vectors(draw: st.DrawFn) -> ScoreVector:
    def ascending() -> tuple[ClientId, ...]:
        return tuple(sorted(draw(st.sets(client_ids, max_size=5))))

    def values(count: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.array(draw(st.lists(anything, min_size=count, max_size=count)), dtype=np.float64)

    trainers, members = ascending(), ascending()
    return ScoreVector(
        draw(st.integers(0, 2**64 - 1)),
        draw(client_ids),
        draw(digests),
        trainers,
        values(len(trainers)),
        members,
        values(len(members)),
    )


@given(vector=vectors())
def test_every_score_vector_can_be_read_back(vector: ScoreVector) -> None:
    assert same(decode_vector(encode_vector(vector)), vector)


def test_it_says_whom_it_speaks_of() -> None:
    assert VECTOR.clients == ids(0, 1, 2, 4, 5)
    assert VECTOR.claims() == {4: 0.0, 5: 2.5, 0: 1.0, 2: 1e300}


def test_distances_out_of_range_can_be_read() -> None:
    for value in (np.inf, np.nan, -1.0, -0.0, 2e300):
        odd = replace(VECTOR, distances=np.array([0.0, value]))
        assert not decode_vector(encode_vector(odd)).is_in_range
    assert decode_vector(encode_vector(VECTOR)).is_in_range
    nobody: dict[str, Any] = {"trainers": (), "distances": np.zeros(0)}
    nobody |= {"members": (), "member_distances": np.zeros(0)}
    assert replace(VECTOR, **nobody).is_in_range


@pytest.mark.parametrize(
    ("path", "new", "fact"),
    [
        (("round",), -1, "round -1 is not a whole number of 64 bits"),
        (("member",), 2**32, "is not a whole number of 32 bits"),
        (("base",), bytes(31), "is not 32 bytes"),
        (("trainers",), client_list(ids(5, 4)), "clients are not strictly ascending"),
        (("trainers",), client_list(ids(4, 4)), "clients are not strictly ascending"),
        (("trainers",), bytes(7), "7 bytes are not a list of clients"),
        (("trainers",), client_list(ids(4)), "16 bytes are not 1 float64 distances"),
        (("distances",), bytes(15), "15 bytes are not 2"),
        (("members",), client_list(ids(2, 0)), "clients are not strictly ascending"),
        (("member_distances",), bytes(24), "24 bytes are not 2"),
    ],
)
def test_a_score_vector_that_is_not_one_is_refused(
    path: tuple[object, ...], new: object, fact: str | None
) -> None:
    require_refused("vector", path, new, fact)


def test_a_score_vector_has_a_bound_of_its_own() -> None:
    largest = bytes(MAX_VECTOR_BYTES)
    with pytest.raises(EncodingError, match="not a canonical"):
        decode_vector(largest)
    with pytest.raises(EncodingError, match="over the bound of 100000"):
        decode_vector(largest + b"\0")


def test_the_largest_committees_vector_fits() -> None:
    vector = ScoreVector(
        2**64 - 1,
        ClientId(2**32 - 1),
        VECTOR.base,
        ids(*range(256)),
        np.ones(256),
        ids(*range(159)),
        np.ones(159),
    )
    assert len(encode_vector(vector)) < 6_000
