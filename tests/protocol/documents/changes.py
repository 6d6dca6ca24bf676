"""One honest document of each kind, and ways to change a document inside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from ledger.protocol import canonical
from ledger.protocol.documents.envelope import (
    Attestation,
    Envelope,
    PhaseCertificate,
    Proposal,
    PublishedEnvironment,
    PublishedPayload,
    PublishedScores,
    Reply,
    decode_envelope,
    encode_envelope,
)
from ledger.protocol.documents.record import (
    Dropout,
    Incident,
    Incidents,
    RefusedScores,
    RoundRecord,
    ScoreVector,
    UsableUpdate,
    decode_incidents,
    decode_record,
    decode_vector,
    encode_incidents,
    encode_record,
    encode_vector,
)
from ledger.protocol.documents.run import RunDocument, decode_run, encode_run
from ledger.protocol.encoding import RegisteredClient, ResultPreimage, set_digest, sha256
from ledger.protocol.errors import EncodingError
from ledger.protocol.parameters import Parameters
from ledger.protocol.training_replay import ReplayVerdict, TrainingEnvironment
from ledger.protocol.types import (
    Address,
    Beacon,
    ClientId,
    Commitment,
    Digest,
    DropoutReason,
    IncidentKind,
    Phase,
    Quorum,
    RefusalReason,
    Scores,
    SignedCommitment,
    SignedScores,
    SignedVote,
    Vote,
    VoteKind,
)
from tests.protocol.support import BASE
from tests.protocol.test_canonical import maps
from tests.support.keys import DOMAIN, ids


def filled(value: int) -> Digest:
    return Digest(bytes([value]) * 32)


SIGNATURE, OTHER_SIGNATURE = bytes(range(65)), bytes(range(1, 66))
PARAMETERS = Parameters(
    clients=7,
    active_ppm=1_000_000,
    committee_ppm=450_000,
    aggregation_ppm=500_000,
    rounds=9,
    dimension=7,
    strategy=3,
    quorum=Quorum.BFT,
    beacon=Beacon.BLOCK,
)
REGISTRY = tuple(RegisteredClient(Address(bytes([i + 1]) * 20), 10 + i) for i in range(7))
LAYOUT = (("weight", (2, 3)), ("bias", ()))
RUN = RunDocument(PARAMETERS, REGISTRY, filled(9), LAYOUT, {"model": "softmax", "steps": 5})

VECTOR = ScoreVector(
    3, ClientId(1), BASE, ids(4, 5), np.array([0.0, 2.5]), ids(0, 2), np.array([1.0, 1e300])
)

UPDATES = tuple(UsableUpdate(ClientId(i), filled(i)) for i in (0, 1, 2, 4, 7))


def claim(member: int, digest: int) -> SignedScores:
    clients = set_digest(ids(0, 1, 2, 4, 7))
    return SignedScores(Scores(3, ClientId(member), BASE, clients, filled(digest)), SIGNATURE)


RECORD = RoundRecord(
    round=3,
    base=BASE,
    updates=UPDATES,
    dropouts=(
        Dropout(ClientId(3), DropoutReason.NO_COMMITMENT),
        Dropout(ClientId(5), DropoutReason.PAYLOAD_MISSING),
        Dropout(ClientId(6), DropoutReason.PAYLOAD_MALFORMED, filled(6)),
    ),
    scores=(claim(0, 10),),
    refused=(
        RefusedScores(claim(1, 11), RefusalReason.TWO_VECTORS),
        RefusedScores(claim(1, 12), RefusalReason.TWO_VECTORS),
        RefusedScores(claim(2, 13), RefusalReason.FALSE_DISTANCE, ClientId(4)),
    ),
)

OPENING = ResultPreimage(filled(1), filled(2), filled(3), filled(4), filled(5), filled(6))


def vote(kind: VoteKind, phase: Phase, view: int, member: int, result: int = 8) -> SignedVote:
    about = (3, phase, view, BASE, filled(7), filled(result))
    return SignedVote(ClientId(member), Vote(kind, *about), SIGNATURE)


REQUEST, REPLY = VoteKind.REQUEST, VoteKind.REPLY
INCIDENTS = Incidents(
    3,
    BASE,
    (
        Incident(Phase.AGGREGATION, 0, ClientId(2), IncidentKind.SILENT),
        Incident(
            Phase.AGGREGATION,
            1,
            ClientId(0),
            IncidentKind.WRONG_PROPOSAL,
            (vote(REQUEST, Phase.AGGREGATION, 1, 0),),
            OPENING,
        ),
        Incident(Phase.ELECTION, 0, ClientId(1), IncidentKind.NO_QUORUM),
        Incident(
            Phase.ELECTION,
            2,
            ClientId(1),
            IncidentKind.EQUIVOCATION,
            (vote(REPLY, Phase.ELECTION, 2, 1), vote(REPLY, Phase.ELECTION, 2, 1, 9)),
        ),
    ),
)


def envelope(client: int, body: Any) -> Envelope:
    return Envelope(DOMAIN, 3, ClientId(client), body)


VECTOR_BYTES = encode_vector(VECTOR)
ENVIRONMENT = TrainingEnvironment("2.13.0+cpu", "plain", "x86_64", "avx2", "cpu", 1)
ENVELOPES = {
    "commitment": envelope(4, SignedCommitment(Commitment(3, ClientId(4), filled(4)), SIGNATURE)),
    "payload": envelope(4, PublishedPayload(filled(4))),
    "scores": envelope(
        1,
        PublishedScores(
            SignedScores(Scores(3, ClientId(1), BASE, filled(2), sha256(VECTOR_BYTES)), SIGNATURE),
            VECTOR_BYTES,
        ),
    ),
    "request 1": envelope(
        0, Proposal(vote(REQUEST, Phase.AGGREGATION, 1, 0), OPENING, encode_record(RECORD))
    ),
    "request 2": envelope(
        0,
        Proposal(
            vote(REQUEST, Phase.ELECTION, 1, 0),
            certificate=PhaseCertificate(
                2, filled(3), SIGNATURE, ((ClientId(5), SIGNATURE), (ClientId(2), OTHER_SIGNATURE))
            ),
        ),
    ),
    "reply": envelope(2, Reply(vote(REPLY, Phase.ELECTION, 1, 2))),
    "environment": envelope(4, PublishedEnvironment(ENVIRONMENT, SIGNATURE)),
    "attestation": envelope(
        4,
        Attestation(
            Address(bytes(20)), filled(1), ReplayVerdict.SAME, ENVIRONMENT, filled(2), SIGNATURE
        ),
    ),
}


@dataclass(frozen=True)
class Kind:
    """A kind of document: how it is read and written, and an honest one."""

    decode: Callable[[bytes], Any]
    encode: Callable[[Any], bytes]
    honest: Any

    @property
    def data(self) -> bytes:
        return self.encode(self.honest)

    def changed(self, path: tuple[object, ...], new: object) -> bytes:
        """Return the honest document's bytes with another value at a path."""
        return canonical.encode(put(canonical.decode(self.data), path, new))


KINDS = {
    "run": Kind(decode_run, encode_run, RUN),
    "vector": Kind(decode_vector, encode_vector, VECTOR),
    "record": Kind(decode_record, encode_record, RECORD),
    "incidents": Kind(decode_incidents, encode_incidents, INCIDENTS),
    **{
        name: Kind(partial(decode_envelope, domain=DOMAIN), encode_envelope, each)
        for name, each in ENVELOPES.items()
    },
}


def same(one: object, other: object) -> bool:
    """Say whether two documents are equal; arrays do not compare as one value."""
    if isinstance(one, ScoreVector) and isinstance(other, ScoreVector):
        empty = np.zeros(0)
        return (
            np.array_equal(one.distances, other.distances)
            and np.array_equal(one.member_distances, other.member_distances)
            and repr(replace(one, distances=empty, member_distances=empty))
            == repr(replace(other, distances=empty, member_distances=empty))
        )
    return one == other


def every_place(value: object) -> list[tuple[object, ...]]:
    """Return the paths to every value inside a document."""
    inner: Any = ()
    if isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    return [()] + [(key, *path) for key, item in inner for path in every_place(item)]


def put(value: object, path: tuple[object, ...], new: object) -> object:
    """Return the document with another value at a path."""
    if not path:
        return new
    copy: Any = dict(value) if isinstance(value, dict) else list(value)  # type: ignore[call-overload]
    copy[path[0]] = put(copy[path[0]], path[1:], new)
    return copy


odd_values = st.one_of(
    maps,
    st.lists(st.integers(-(2**63), 2**63), max_size=3),
    st.sampled_from([None, True, False, 0, 1, 2, 3, -1, 2**32, 2**64 - 1, 1.0, -0.0, float("nan")]),
    st.sampled_from([b"", "", *(b"x" * size for size in (4, 8, 20, 32, 65)), "mean", "a" * 500]),
)


def require_refused(name: str, path: tuple[object, ...], new: object, fact: str | None) -> None:
    """Hold that a changed document is refused with a fact; without one, that it is read."""
    kind = KINDS[name]
    data = kind.changed(path, new)
    if fact is None:
        assert kind.encode(kind.decode(data)) == data
        return
    with pytest.raises(EncodingError, match=fact) as caught:
        kind.decode(data)
    assert len(str(caught.value)) < 300, "an error is one line"
