"""Envelopes: seven kinds, each with exactly what makes it genuine."""

from __future__ import annotations

import pytest

from ledger.protocol import canonical
from ledger.protocol.documents.envelope import (
    Attestation,
    EnvelopeKind,
    decode_envelope,
    encode_envelope,
)
from ledger.protocol.documents.vector import MAX_VECTOR_BYTES
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import EncodingError
from ledger.protocol.parameters import MAX_MEMBERS
from ledger.protocol.types import ClientId, ReplayStatement
from tests.protocol.documents.changes import ENVELOPES, KINDS, SIGNATURE, VECTOR_BYTES, filled
from tests.support.keys import DOMAIN

BODY = ("body",)


def test_there_are_seven_kinds() -> None:
    assert {name: int(each.kind) for name, each in ENVELOPES.items()} == {
        "commitment": 1,
        "payload": 2,
        "scores": 3,
        "request 1": 4,
        "request 2": 4,
        "reply": 5,
        "environment": 6,
        "attestation": 7,
    }
    assert [int(kind) for kind in EnvelopeKind] == [1, 2, 3, 4, 5, 6, 7]


def test_what_was_signed_is_put_together_from_the_whole_envelope() -> None:
    # Round and client stand in the envelope, the vector's digest follows from its bytes.
    plain = canonical.decode(encode_envelope(ENVELOPES["scores"]))
    moved = decode_envelope(canonical.encode(plain | {"round": 4, "client": 2}), DOMAIN)
    body: object = moved.body
    assert "round=4" in repr(body)
    assert "member=2" in repr(body)
    assert repr(sha256(VECTOR_BYTES)) in repr(body)


def test_an_auditor_signs_what_its_envelope_is_about() -> None:
    envelope = ENVELOPES["attestation"]
    body = envelope.body
    assert isinstance(body, Attestation)
    statement = body.statement(3, ClientId(4))
    digest = body.environment.digest
    assert statement == ReplayStatement(filled(1), 3, ClientId(4), 1, digest, filled(2))


@pytest.mark.parametrize(
    ("name", "path", "new", "fact"),
    [
        ("payload", ("chain_id",), -1, "chain_id -1 is not a whole number of 64 bits"),
        ("payload", ("contract",), bytes(19), "contract .* is not 20 bytes"),
        ("payload", ("round",), -1, "round -1"),
        ("payload", ("kind",), 0, "there is no envelope of kind 0"),
        ("payload", ("kind",), 1, "is not a list of 2"),
        ("payload", BODY, [], "is not a list of 1"),
        ("payload", (*BODY, 0), bytes(31), "is not 32 bytes"),
        ("commitment", BODY, [filled(1)], "is not a list of 2"),
        ("commitment", (*BODY, 1), bytes(64), "is not 65 bytes"),
        ("scores", BODY, [filled(1)] * 3, "is not a list of 4"),
        ("scores", (*BODY, 2), "text", "a score vector is at most 100000 bytes"),
        ("scores", (*BODY, 2), bytes(MAX_VECTOR_BYTES + 1), "a score vector is at most 100000"),
        ("scores", (*BODY, 2), bytes(MAX_VECTOR_BYTES), None),
        ("request 1", BODY, [], "is not a list of 6"),
        ("request 1", (*BODY, 0), 2, "is not a list of 1"),
        ("request 1", (*BODY, 0), 3, "there is no phase 3"),
        ("request 1", (*BODY, 6), [], "is not a list of 6"),
        ("request 1", (*BODY, 7), "text", "the record of a request is not bytes"),
        ("request 1", (*BODY, 7), b"anything: it is judged, not read here", None),
        ("request 2", (*BODY, 0), 1, "is not a list of 2"),
        ("request 2", (*BODY, 6), [], "is not a list of 4"),
        ("request 2", (*BODY, 6, 3), {}, "the replies of a certificate are not a list"),
        ("request 2", (*BODY, 6, 3), [], None),
        ("request 2", (*BODY, 6, 3, 0), [5], "is not a list of 2"),
        ("reply", BODY, [1], "is not a list of 6"),
        ("reply", (*BODY, 5), None, "is not 65 bytes"),
        ("environment", BODY, [b""], "is not a list of 2"),
        ("environment", (*BODY, 0), "text", "the environment of an envelope is not bytes"),
        ("environment", (*BODY, 0), b"", "not a canonical msgpack document"),
        ("attestation", BODY, [b""], "is not a list of 6"),
        ("attestation", (*BODY, 2), 2, None),
        ("attestation", (*BODY, 2), 3, "verdict 3 cannot be attested"),
        ("attestation", (*BODY, 3), b"", "not a canonical msgpack document"),
        ("attestation", (*BODY, 5), bytes(64), "is not 65 bytes"),
    ],
)
def test_an_envelope_that_is_none_is_refused(
    name: str, path: tuple[object, ...], new: object, fact: str | None
) -> None:
    data = KINDS[name].changed(path, new)
    if fact is None:
        assert encode_envelope(decode_envelope(data, DOMAIN)) == data
        return
    with pytest.raises(EncodingError, match=fact) as caught:
        decode_envelope(data, DOMAIN)
    assert len(str(caught.value)) < 300, "an error is one line"


@pytest.mark.parametrize("more", [0, 1])
def test_a_certificate_has_at_most_a_committee_of_replies(more: int) -> None:
    replies = [[member, SIGNATURE] for member in range(MAX_MEMBERS + more)]
    data = KINDS["request 2"].changed((*BODY, 6, 3), replies)
    if not more:
        assert encode_envelope(decode_envelope(data, DOMAIN)) == data
        return
    with pytest.raises(EncodingError, match=str(MAX_MEMBERS)):
        decode_envelope(data, DOMAIN)
