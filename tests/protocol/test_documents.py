"""Documents: every one can be read back, and nothing else can be read at all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.protocol import canonical, documents
from ledger.protocol.documents import (
    Incident,
    RefusedScores,
    RoundRecord,
    RunDocument,
    ScoreVector,
    decode_record,
    decode_run,
    decode_score_vector,
    encode_record,
    encode_run,
    encode_score_vector,
)
from ledger.protocol.errors import EncodingError
from ledger.protocol.parameters import Parameters
from ledger.protocol.types import (
    NO_DIGEST,
    Address,
    Beacon,
    ClientId,
    Digest,
    Phase,
    RegisteredClient,
    Scores,
    Scoring,
    SignedScores,
    SignedVote,
    Strategy,
    Vote,
    VoteKind,
)
from tests.protocol.support import client_ids, digests, distances, ids
from tests.protocol.test_canonical import maps

if TYPE_CHECKING:
    from collections.abc import Callable

PARAMETERS = Parameters(
    clients=7,
    active_rate=1.0,
    committee_rate=0.45,
    aggregation_rate=0.5,
    rounds=9,
    dimension=2,
    strategy=Strategy.WITHIN_SPREAD,
    scoring=Scoring.MEDIAN,
    beacon=Beacon.BLOCK,
)
REGISTRY = tuple(RegisteredClient(Address(bytes([i]) * 20), 10 + i) for i in range(7))
RUN = RunDocument(PARAMETERS, REGISTRY, NO_DIGEST, {"model": "softmax", "steps": 5})
VECTOR = ScoreVector(
    3, ClientId(1), ids(4, 5), np.array([0.0, 2.5]), ids(0, 2), np.array([1.0, 1e300])
)
SIGNATURE = bytes(range(65))
CLAIM = SignedScores(Scores(3, ClientId(1), Digest(bytes([1]) * 32)), SIGNATURE)
VOTE = Vote(VoteKind.REPLY, 3, Phase.ELECTION, 2, 1_700_000_000, NO_DIGEST, NO_DIGEST)
EVIDENCE = SignedVote(ClientId(1), VOTE, SIGNATURE)
RECORD = RoundRecord(
    round=3,
    scores=(CLAIM,),
    refused=(RefusedScores(CLAIM, "it is false"),),
    dropouts=((ClientId(4), "no commitment"),),
    incidents=(Incident(Phase.ELECTION, 2, ClientId(1), "equivocation", (EVIDENCE,)),),
)

u32s, u64s = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
signatures = st.binary(min_size=65, max_size=65)
phases = st.sampled_from(Phase)


def ascending(size: int = 5) -> st.SearchStrategy[tuple[ClientId, ...]]:
    return st.sets(client_ids, max_size=size).map(lambda found: tuple(sorted(found)))


@st.composite
def runs(draw: st.DrawFn) -> RunDocument:
    """Return configurations of three members and any other settings."""
    parameters = replace(
        PARAMETERS,
        aggregation_rate=draw(st.integers(0, 1_000_000)) / 1_000_000,
        rounds=draw(st.integers(1, 2**32 - 1)),
        dimension=draw(st.integers(1, 2**28)),
        strategy=draw(st.sampled_from(Strategy)),
        scoring=draw(st.sampled_from(Scoring)),
        server_rate=draw(st.floats(min_value=0, exclude_min=True, allow_infinity=False)),
        scores_checked=draw(st.booleans()),
        beacon=draw(st.sampled_from(Beacon)),
        deadline_blocks=draw(st.integers(1, 2**32 - 1)),
    )
    addresses = st.binary(min_size=20, max_size=20).map(Address)
    client = st.builds(RegisteredClient, addresses, st.integers(1, 2**64 - 1))
    registry = tuple(draw(st.lists(client, min_size=7, max_size=7)))
    return RunDocument(parameters, registry, draw(digests), draw(maps))


@st.composite
def vectors(draw: st.DrawFn) -> ScoreVector:
    trainers, members = draw(ascending()), draw(ascending())
    found = [
        draw(st.lists(distances, min_size=len(c), max_size=len(c))) for c in (trainers, members)
    ]
    own = draw(client_ids)
    return ScoreVector(draw(u64s), own, trainers, np.array(found[0]), members, np.array(found[1]))


@st.composite
def records(draw: st.DrawFn) -> RoundRecord:
    number, text = draw(u64s), st.text(max_size=10)
    claims = st.builds(
        SignedScores, st.builds(Scores, st.just(number), client_ids, digests), signatures
    )

    def votes(phase: Phase, view: int) -> st.SearchStrategy[SignedVote]:
        kinds, where = st.sampled_from(VoteKind), (st.just(number), st.just(phase), st.just(view))
        vote = st.builds(Vote, kinds, *where, u64s, digests, digests)
        return st.builds(SignedVote, client_ids, vote, signatures)

    incidents = st.tuples(phases, u32s).flatmap(
        lambda where: st.builds(
            Incident,
            st.just(where[0]),
            st.just(where[1]),
            client_ids,
            text,
            st.lists(votes(*where), max_size=2).map(tuple),
        )
    )
    return RoundRecord(
        number,
        tuple(draw(st.lists(claims, max_size=3))),
        tuple(draw(st.lists(st.builds(RefusedScores, claims, text), max_size=3))),
        tuple(draw(st.lists(st.tuples(client_ids, text), max_size=3))),
        tuple(draw(st.lists(incidents, max_size=3))),
    )


def same_vector(one: ScoreVector, other: ScoreVector) -> bool:
    """Say whether two vectors are equal; arrays do not compare as one value."""

    def plain(vector: ScoreVector) -> tuple[object, ...]:
        both = vector.distances.tolist(), vector.member_distances.tolist()
        return vector.round, vector.member, vector.trainers, vector.members, both

    return plain(one) == plain(other)


@given(document=runs())
def test_every_run_can_be_read_back(document: RunDocument) -> None:
    assert decode_run(encode_run(document)) == document


@given(vector=vectors())
def test_every_score_vector_can_be_read_back(vector: ScoreVector) -> None:
    assert same_vector(decode_score_vector(encode_score_vector(vector)), vector)


@given(record=records())
def test_every_record_can_be_read_back(record: RoundRecord) -> None:
    assert decode_record(encode_record(record)) == record


def test_a_score_vector_is_small() -> None:
    # Two 8-byte distances each, and the fields' names.
    assert len(encode_score_vector(VECTOR)) < 120


def test_a_rate_that_is_a_whole_number_is_written_as_a_float() -> None:
    whole = replace(RUN, parameters=replace(PARAMETERS, active_rate=1, server_rate=1))
    assert encode_run(whole) == encode_run(RUN)


DECODERS: list[tuple[Callable[[bytes], object], Callable[[Any], bytes], bytes]] = [
    (decode_run, encode_run, encode_run(RUN)),
    (decode_score_vector, encode_score_vector, encode_score_vector(VECTOR)),
    (decode_record, encode_record, encode_record(RECORD)),
]
each_document = pytest.mark.parametrize(
    ("decode", "encode", "data"), DECODERS, ids=["run", "scores", "record"]
)


@each_document
@given(noise=st.binary(max_size=80))
def test_any_bytes_are_refused(
    decode: Callable[[bytes], object], encode: object, data: bytes, noise: bytes
) -> None:
    with pytest.raises(EncodingError):
        decode(noise)


@each_document
@given(value=maps)
def test_any_other_map_is_refused(
    decode: Callable[[bytes], object], encode: object, data: bytes, value: dict[str, object]
) -> None:
    with pytest.raises(EncodingError):
        decode(canonical.encode(value))


def every_place(value: object) -> list[tuple[object, ...]]:
    """Return the paths to every value inside a document."""
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value if isinstance(value, list) else ())
    )
    return [()] + [(key, *path) for key, item in inner for path in every_place(item)]


def put(value: object, path: tuple[object, ...], new: object) -> object:
    """Return the document with another value at a path."""
    if not path:
        return new
    copy: Any = (
        dict(value)
        if isinstance(value, dict)
        else list(value)
        if isinstance(value, list)
        else value
    )
    copy[path[0]] = put(copy[path[0]], path[1:], new)
    return copy


odd_values = st.one_of(
    maps,
    st.lists(st.integers(), max_size=3).filter(lambda found: all(abs(x) < 2**63 for x in found)),
    st.sampled_from([None, True, False, 0, 1, 2, -1, 2**32, 2**64 - 1, 1.0, -0.0, float("nan")]),
    st.sampled_from([b"", "", b"x" * 20, b"x" * 32, b"x" * 65, "Reply", "mean", "a" * 500]),
)  # fmt: skip


@each_document
@given(new=odd_values, draw=st.data())
def test_a_document_with_another_value_inside_is_read_faithfully_or_refused(
    decode: Callable[[bytes], object],
    encode: Callable[[object], bytes],
    data: bytes,
    new: object,
    draw: st.DataObject,
) -> None:
    plain = canonical.decode(data)
    path = draw.draw(st.sampled_from(every_place(plain)))
    changed = canonical.encode(put(plain, path, new))
    try:
        found = decode(changed)
    except EncodingError:
        return
    assert encode(found) == changed, "one document, one encoding"


@each_document
@given(draw=st.data())
def test_a_document_with_changed_bytes_is_read_faithfully_or_refused(
    decode: Callable[[bytes], object],
    encode: Callable[[object], bytes],
    data: bytes,
    draw: st.DataObject,
) -> None:
    changed = bytearray(data)
    for _ in range(draw.draw(st.integers(1, 3))):
        changed[draw.draw(st.integers(0, len(data) - 1))] ^= draw.draw(st.integers(1, 255))
    try:
        found = decode(bytes(changed))
    except EncodingError:
        return
    assert encode(found) == changed


@each_document
def test_a_field_more_or_less_is_refused(
    decode: Callable[[bytes], object], encode: object, data: bytes
) -> None:
    plain = canonical.decode(data)
    with pytest.raises(EncodingError, match="missing or not known"):
        decode(canonical.encode(plain | {"more": 1}))
    for name in plain:
        with pytest.raises(EncodingError, match=name):
            decode(canonical.encode({key: plain[key] for key in plain if key != name}))


def changed(data: bytes, path: tuple[object, ...], new: object) -> bytes:
    return canonical.encode(put(canonical.decode(data), path, new))


@pytest.mark.parametrize(
    ("path", "new", "fact"),
    [
        (("version",), 2, "protocol version 2 is not 1"),
        (("version",), True, "version is not of type"),
        (("parameters", "active_rate"), 1, "active_rate is not of type"),
        (("parameters", "rounds"), 0, "rounds = 0 is not in"),
        (("parameters", "strategy"), 4, "4 is not a valid Strategy"),
        (("parameters", "scoring"), "mode", "not a valid Scoring"),
        (("parameters", "beacon"), "x" * 900, "parameters: 'xxx"),
        (("parameters", "scores_checked"), 1, "scores_checked is not of type"),
        (("parameters", "clients"), 8, "7 registered clients are not 8"),
        (("registry",), [], "0 registered clients are not 7"),
        (("registry", 3), [bytes(20)], "a registered client is"),
        (("registry", 3), [bytes(19), 1], "a registered client is"),
        (("registry", 3), [bytes(20), 0], "a registered client is"),
        (("registry", 3), [bytes(20), -1], "samples -1 is not a whole number of 64 bits"),
        (("registry", 3), [bytes(20), True], "samples True is not a whole number"),
        (("initial_model",), bytes(31), "a digest has 32 bytes"),
        (("experiment",), [], "experiment is not of type"),
    ],
)
def test_a_run_that_breaks_a_rule_is_refused(
    path: tuple[object, ...], new: object, fact: str
) -> None:
    with pytest.raises(EncodingError, match=fact) as caught:
        decode_run(changed(encode_run(RUN), path, new))
    assert len(str(caught.value)) < 300, "an error is one line"


@pytest.mark.parametrize(
    ("path", "new", "fact"),
    [
        (("round",), -1, "round -1 is not a whole number of 64 bits"),
        (("member",), 2**32, "is not a whole number of 32 bits"),
        (("trainers",), [5, 4], "clients are not ascending"),
        (("trainers",), [4, 4], "clients are not ascending"),
        (("trainers",), [4, True], "client True is not a whole number"),
        (("trainers",), [4], "16 bytes are not 1 float64 distances"),
        (("distances",), bytes(15), "15 bytes are not 2"),
        (("distances",), bytes(8) + np.float64(np.inf).tobytes(), "a distance is not finite"),
        (("distances",), bytes(8) + np.float64(np.nan).tobytes(), "a distance is not finite"),
        (("member_distances",), bytes(8) + np.float64(-1).tobytes(), "or negative"),
        (("member_distances",), bytes(8) + np.float64(-0.0).tobytes(), "or negative"),
    ],
)
def test_a_score_vector_that_is_not_one_is_refused(
    path: tuple[object, ...], new: object, fact: str
) -> None:
    with pytest.raises(EncodingError, match=fact):
        decode_score_vector(changed(encode_score_vector(VECTOR), path, new))


def test_a_score_vector_has_a_bound_of_its_own() -> None:
    largest = bytes(documents.MAX_SCORES_BYTES)
    with pytest.raises(EncodingError, match="not a canonical"):
        decode_score_vector(largest)
    with pytest.raises(EncodingError, match="over the bound of 100000"):
        decode_score_vector(largest + b"\0")


VOTES = ("incidents", 0, 4, 0)


@pytest.mark.parametrize(
    ("path", "new", "fact"),
    [
        (("round",), 2**63, None),
        (("round",), -1, "round -1"),
        (("scores", 0), [1, NO_DIGEST], "not a round record: .*missing"),
        (("scores", 0), 7, "not a round record"),
        (("scores", 0, 0), -1, "client -1"),
        (("scores", 0, 1), bytes(31), "a digest has 32 bytes"),
        (("scores", 0, 2), bytes(64), "a signature has 65 bytes"),
        (("refused", 0, 3), 5, "5 is not text"),
        (("refused", 0), [], "not a round record"),
        (("dropouts", 0), [4], "not a round record"),
        (("dropouts", 0, 1), b"x" * 900, "is not text"),
        (("incidents", 0, 0), 3, "3 is not a valid Phase"),
        (("incidents", 0, 0), True, "phase True"),
        (("incidents", 0, 1), 2**32, "view 4294967296"),
        (("incidents", 0, 1), 2**32 - 1, None),
        (("incidents", 0, 2), 1.0, "client 1.0"),
        (("incidents", 0, 3), None, "None is not text"),
        (("incidents", 0, 4), {}, "the votes of an incident are not a list"),
        ((*VOTES,), [1], "not a round record"),
        ((*VOTES, 1), "Refusal", "not a valid VoteKind"),
        ((*VOTES, 2), -1, "time stamp -1"),
        ((*VOTES, 2), True, "time stamp True"),
        ((*VOTES, 3), None, "a digest has 32 bytes"),
        ((*VOTES, 5), b"", "a signature has 65 bytes"),
    ],
)
def test_a_record_that_is_not_one_is_refused(
    path: tuple[object, ...], new: object, fact: str | None
) -> None:
    data = changed(encode_record(RECORD), path, new)
    if fact is None:
        assert encode_record(decode_record(data)) == data
        return
    with pytest.raises(EncodingError, match=fact) as caught:
        decode_record(data)
    assert len(str(caught.value)) < 300, "an error is one line"
