"""The run document and envelopes: every setting in its range, and what makes each genuine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.protocol import canonical
from ledger.protocol.documents.envelope import (
    Attestation,
    EnvelopeKind,
    decode_envelope,
    encode_envelope,
)
from ledger.protocol.documents.record import MAX_VECTOR_BYTES
from ledger.protocol.documents.run import MAX_SIZES, RunDocument, decode_run, encode_run
from ledger.protocol.encoding import RegisteredClient, sha256
from ledger.protocol.errors import EncodingError
from ledger.protocol.parameters import MAX_MEMBERS
from ledger.protocol.payloads import PAYLOAD_FORMS
from ledger.protocol.types import Address, Beacon, ClientId, Quorum, ReplayStatement
from tests.protocol.documents.changes import (
    ENVELOPES,
    KINDS,
    LAYOUT,
    PARAMETERS,
    REGISTRY,
    RUN,
    SIGNATURE,
    VECTOR_BYTES,
    filled,
    require_refused,
)
from tests.protocol.support import digests
from tests.protocol.test_canonical import maps
from tests.support.keys import DOMAIN

OWN = f"mine.py:manhattan@sha256:{'ab' * 32}"
RULES: tuple[dict[str, Any], ...] = (
    {"strategy": 1},
    {"strategy": 2, "distance": OWN},
    {"strategy": 3},
)


@st.composite
def runs(draw: st.DrawFn) -> RunDocument:
    """Return configurations of three members and any other settings."""
    window = draw(st.integers(1, 2**31))
    parameters = replace(
        PARAMETERS,
        aggregation_ppm=draw(st.integers(0, 1_000_000)),
        rounds=draw(st.integers(1, 2**32 - 1)),
        server_rate=draw(st.floats(min_value=0, exclude_min=True, allow_infinity=False)),
        quorum=draw(st.sampled_from(Quorum)),
        beacon=draw(st.sampled_from(Beacon)),
        commit_blocks=window,
        deadline_blocks=draw(st.integers(window + 2, 2**32 - 1)),
        view_seconds=draw(st.integers(1, 2**20)),
        payload=draw(st.sampled_from(list(PAYLOAD_FORMS))),
        **draw(st.sampled_from(RULES)),
    )
    addresses = draw(
        st.sets(st.binary(min_size=20, max_size=20).map(Address), min_size=7, max_size=7)
    )
    claims = draw(st.lists(st.integers(1, 2**50), min_size=7, max_size=7))
    registry = tuple(map(RegisteredClient, sorted(addresses), claims))
    return RunDocument(parameters, registry, draw(digests), LAYOUT, draw(maps))


@given(document=runs())
def test_every_run_can_be_read_back(document: RunDocument) -> None:
    assert decode_run(encode_run(document)) == document


def test_only_a_non_default_payload_form_is_in_the_document() -> None:
    rounded = replace(RUN, parameters=replace(PARAMETERS, payload="q8"))
    assert b"payload" not in encode_run(RUN)
    assert b"\xa7payload\xa2q8" in encode_run(rounded)
    assert len(encode_run(rounded)) == len(encode_run(RUN)) + len(b"\xa7payload\xa2q8")
    assert decode_run(encode_run(rounded)) == rounded


@pytest.mark.parametrize(
    ("payload", "fact"),
    [
        ("float32", "payload = float32 is the default; omit it"),
        ("q4", "payload = q4 is none of float32, q8"),
        (8, "payload is not of type str"),
    ],
)
def test_a_payload_form_that_is_no_other_is_refused(payload: object, fact: str) -> None:
    value: Any = canonical.decode(encode_run(RUN))
    value["parameters"]["payload"] = payload
    with pytest.raises(EncodingError, match=fact):
        decode_run(canonical.encode(value))


def test_only_a_users_own_distance_is_in_the_document() -> None:
    own = replace(RUN, parameters=replace(PARAMETERS, strategy=1, distance=OWN))
    assert b"distance" not in encode_run(RUN)
    assert decode_run(encode_run(own)) == own


@pytest.mark.parametrize(
    ("strategy", "distance", "fact"),
    [
        (1, "squared", "distance = squared is the default; omit it"),
        (1, "l2", "distance = l2 is neither squared nor a function"),
        (3, OWN, "cannot be set with strategy 3"),
        (1, True, "distance is not of type str"),
    ],
)
def test_a_distance_that_is_not_the_users_own_is_refused(
    strategy: int, distance: object, fact: str
) -> None:
    value: Any = canonical.decode(encode_run(RUN))
    value["parameters"] |= {"strategy": strategy, "distance": distance}
    with pytest.raises(EncodingError, match=fact):
        decode_run(canonical.encode(value))


@pytest.mark.parametrize(
    "name", ["scoring", "reference", "threshold", "clip", "election", "scores_checked"]
)
def test_a_removed_setting_is_refused_by_name(name: str) -> None:
    value: Any = canonical.decode(encode_run(RUN))
    value["parameters"][name] = "mean"
    with pytest.raises(EncodingError, match=f"'{name}'.* are missing or not known"):
        decode_run(canonical.encode(value))


@pytest.mark.parametrize(
    ("path", "new", "fact"),
    [
        (("parameters", "rounds"), 0, "rounds = 0 is not in"),
        (("parameters", "server_rate"), 1, "server_rate is not of type float"),
        (("parameters", "server_rate"), float("nan"), "not a positive number"),
        (("parameters", "strategy"), 4, "strategy = 4 is none of 1, 2, 3"),
        (("parameters", "quorum"), "most", "'most' is not a valid Quorum"),
        (("parameters", "beacon"), "x" * 900, "parameters: 'xxx"),
        (("parameters", "deadline_blocks"), 5, "deadline_blocks = 5 is not in"),
        (("parameters", "clients"), 8, "7 registered clients are not 8"),
        (("parameters", "dimension"), 8, "its tensors have 7 numbers, and d = 8"),
        (("parameters",), {}, "fields .* are missing or not known"),
        (("registry",), [], "0 registered clients are not 7"),
        (("registry", 3), [bytes([4]) * 20], "is not a list of 2"),
        (("registry", 3), ["a" * 20, 1], "is not 20 bytes"),
        (("registry", 3), [bytes([4]) * 20, 0], "claims at least one sample"),
        (("registry", 3), [bytes([3]) * 20, 1], "addresses are not strictly ascending"),
        (("layout", 0), ["weight"], "is not a list of 2"),
        (("layout", 0), [1, [2, 3]], "is not a tensor's name and shape"),
        (("layout", 0), ["weight", [2, -3]], "size -3 is not a whole number of 32 bits"),
        (("layout", 0), ["bias", [2, 3]], "a tensor's name is repeated"),
        (("experiment",), [], "experiment is not of type"),
    ],
)
def test_a_run_that_breaks_a_rule_is_refused(
    path: tuple[object, ...], new: object, fact: str | None
) -> None:
    require_refused("run", path, new, fact)


def test_the_clients_claim_fewer_than_two_to_the_53_samples() -> None:
    others = sum(client.samples for client in REGISTRY[1:])
    for total, fits in ((2**53 - 1, True), (2**53, False)):
        first = replace(REGISTRY[0], samples=total - others)
        data = encode_run(replace(RUN, registry=(first, *REGISTRY[1:])))
        if fits:
            assert decode_run(data).registry[0] == first
            continue
        with pytest.raises(EncodingError, match="must be fewer than 2\\^53"):
            decode_run(data)


def test_a_shape_has_at_most_sixteen_sizes() -> None:
    # A megabyte of sizes would take a minute to multiply.
    layout = (("weight", (1,) * (MAX_SIZES - 1) + (7,)),)
    assert decode_run(encode_run(replace(RUN, layout=layout))).layout == layout
    longer = (("weight", (1,) * MAX_SIZES + (7,)),)
    with pytest.raises(EncodingError, match="has 17 sizes, and at most 16"):
        decode_run(encode_run(replace(RUN, layout=longer)))


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
    require_refused(name, path, new, fact)


@pytest.mark.parametrize("more", [0, 1])
def test_a_certificate_has_at_most_a_committee_of_replies(more: int) -> None:
    replies = [[member, SIGNATURE] for member in range(MAX_MEMBERS + more)]
    data = KINDS["request 2"].changed((*BODY, 6, 3), replies)
    if not more:
        assert encode_envelope(decode_envelope(data, DOMAIN)) == data
        return
    with pytest.raises(EncodingError, match=str(MAX_MEMBERS)):
        decode_envelope(data, DOMAIN)
