"""The record of a round."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.protocol.documents.record import (
    Dropout,
    RefusedScores,
    RoundRecord,
    UsableUpdate,
    decode_record,
    encode_record,
)
from ledger.protocol.encoding import set_digest
from ledger.protocol.errors import EncodingError
from ledger.protocol.types import ClientId, DropoutReason, RefusalReason, Scores, SignedScores
from tests.protocol.documents.changes import KINDS, RECORD, SIGNATURE, claim, filled
from tests.protocol.support import client_ids, digests
from tests.support.keys import ids

KIND = KINDS["record"]
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
        (("refused", 2, 0), 1, "more than 2 refused vectors of one member"),
        (("refused", 0, 3), 0, "there is no refusal reason 0"),
        (("refused", 0, 4), 4, "reason 7 names no client, and 4 is one"),
        (("refused", 2, 3), 5, "reason 5 names no client, and 4 is one"),
        (("refused", 2, 4), 0, None),
    ],
)
def test_a_record_that_is_not_one_is_refused(
    path: tuple[object, ...], new: object, fact: str | None
) -> None:
    data = KIND.changed(path, new)
    if fact is None:
        assert encode_record(decode_record(data)) == data
        return
    with pytest.raises(EncodingError, match=fact) as caught:
        decode_record(data)
    assert len(str(caught.value)) < 300, "an error is one line"


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
    with pytest.raises(EncodingError, match="more than 2 refused vectors of one member"):
        decode_record(encode_record(replace(RECORD, refused=refused)))
