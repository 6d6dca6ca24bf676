"""What the tests of the protocol share: keys, a registry, and a round small enough for a pencil.

Keys are derived from a sentence: PUBLIC TEST KEYS, worth nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import strategies as st

from ledger.protocol import encoding
from ledger.protocol.closing import RoundClosing
from ledger.protocol.documents.vector import ScoreVector, encode_vector
from ledger.protocol.inputs import Evidence, Inputs, Participants
from ledger.protocol.judgement import (
    Judgement,
    compose_record,
    judge,
    score_updates,
    usable_clients,
)
from ledger.protocol.parameters import Parameters
from ledger.protocol.payload import Payload
from ledger.protocol.signing import GROUP_ORDER, KeySigner, sign
from ledger.protocol.types import (
    Address,
    ClientId,
    Digest,
    Domain,
    RegisteredClient,
    Scores,
    SignedScores,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from ledger.protocol.documents.record import RoundRecord
    from ledger.protocol.rules.distance import Layout
    from ledger.protocol.validation import Violation

DOMAIN = Domain(31337, Address(bytes(range(20))), Digest(bytes(range(32))))
SEED = Digest(bytes(32))
BASE = Digest(bytes([7]) * 32)

PENCIL = Parameters(
    clients=9,
    active_ppm=1_000_000,
    committee_ppm=333_333,
    aggregation_ppm=500_000,
    rounds=2,
    dimension=1,
    deadline_blocks=10,
)
"""Three members, six trainers, three of them accepted; two replies decide."""

digests = st.binary(min_size=32, max_size=32).map(Digest)
client_ids = st.integers(0, 2**32 - 1).map(ClientId)
distances = st.floats(0, allow_infinity=False, allow_nan=False).map(abs)
"""Non-negative and finite; never -0.0."""


def ids(*clients: int) -> tuple[ClientId, ...]:
    return tuple(map(ClientId, clients))


@cache
def signers() -> tuple[KeySigner, ...]:
    """Return sixteen PUBLIC TEST KEYS, ascending by address as a registry must be."""
    keys = (encoding.keccak256(b"PUBLIC TEST KEY of client %d" % i) for i in range(16))
    return tuple(sorted(map(KeySigner, keys), key=lambda signer: signer.address))


def registry_of(count: int, samples: int = 10) -> tuple[RegisteredClient, ...]:
    return tuple(RegisteredClient(signer.address, samples) for signer in signers()[:count])


def f32(*values: float) -> NDArray[np.float32]:
    return np.array(values, dtype=np.float32)


def malleated(signature: bytes) -> bytes:
    """Return the other signature of the same digest and key, with s in the upper half."""
    s = GROUP_ORDER - int.from_bytes(signature[32:64])
    return signature[:32] + s.to_bytes(32) + bytes([55 - signature[64]])


@dataclass(frozen=True)
class SmallRound:
    """A round that is closed, and what was published of it so far.

    Members come first: clients 0 .. C-1 by their places; the others train.
    """

    inputs: Inputs
    evidence: Evidence
    claims: tuple[SignedScores, ...] = ()

    @property
    def members(self) -> tuple[ClientId, ...]:
        return self.inputs.participants.members

    @property
    def usable(self) -> tuple[ClientId, ...]:
        return usable_clients(self.inputs, self.evidence)

    def vector(self, member: int, clients: Sequence[ClientId] | None = None) -> ScoreVector:
        """Return the true score vector of a member."""
        about = self.usable if clients is None else clients
        vector = score_updates(self.inputs, self.evidence, about, ClientId(member))
        assert vector is not None
        return vector

    def claim(self, member: int, data: bytes, key: int | None = None) -> SignedScores:
        """Return the member's signed claim of a vector for all usable updates."""
        clients = encoding.set_digest(self.usable)
        base, number = self.inputs.closing.base, self.inputs.round
        scores = Scores(number, ClientId(member), base, clients, encoding.sha256(data))
        signer = signers()[member if key is None else key]
        return SignedScores(scores, sign(signer, self.inputs.domain, scores))

    def publish(self, member: int, vector: ScoreVector | bytes) -> SmallRound:
        """Return the round with one more signed vector."""
        data = vector if isinstance(vector, bytes) else encode_vector(vector)
        claim = self.claim(member, data)
        vectors = dict(self.evidence.vectors) | {claim.scores.digest: data}
        return replace(
            self, evidence=replace(self.evidence, vectors=vectors), claims=(*self.claims, claim)
        )

    def scored(self, *members: int) -> SmallRound:
        """Return the round with true vectors of these members; of all that can without one."""
        told = self
        for member in members or self.members:
            vector = score_updates(self.inputs, self.evidence, self.usable, ClientId(member))
            if vector is not None:
                told = told.publish(member, vector)
        return told

    def compose(self) -> RoundRecord:
        return compose_record(self.inputs, self.evidence, self.claims)

    def judge(
        self, record: RoundRecord | None = None
    ) -> tuple[Judgement | None, tuple[Violation, ...]]:
        return judge(self.inputs, record or self.compose(), self.evidence)

    def judged(self) -> Judgement:
        """Return what follows from the record composed of everything that was published."""
        judgement, violations = self.judge()
        assert not violations
        assert judgement is not None
        return judgement


def small_round(
    updates: Mapping[int, Sequence[float] | bytes | float],
    *,
    parameters: Parameters = PENCIL,
    layout: Layout = (("w", (1,)),),
    model: Sequence[float] = (0.0,),
    travel: Sequence[float] | None = None,
    uncommitted: Collection[int] = (),
    unpublished: Collection[int] = (),
    banned: Collection[int] = (),
    **changes: Any,
) -> SmallRound:
    """Return a closed round.

    Args:
        updates: update of each client, or the bytes of its payload; 0.0 if not given.
        parameters: of the run.
        layout: of its model.
        model: w_2.
        travel: from w_1 to there; None for not known.
        uncommitted: clients without a commitment.
        unpublished: clients that committed and published nothing.
        banned: members whose seat is empty; they have committed nothing either.
        changes: of the parameters.
    """
    parameters = replace(parameters, dimension=len(model), **changes)
    missing = {*uncommitted, *banned}
    payloads = {
        ClientId(i): payload_of(updates.get(i, 0.0), len(model))
        for i in range(parameters.clients)
        if i not in missing
    }
    commitments = {c: encoding.commitment_of(c, encoding.sha256(p)) for c, p in payloads.items()}
    registry = tuple(
        replace(client, banned_in=1 if i in banned else 0)
        for i, client in enumerate(registry_of(parameters.clients))
    )
    inputs = Inputs(
        parameters=parameters,
        layout=layout,
        domain=DOMAIN,
        registry=registry,
        round=2,
        seed=SEED,
        participants=Participants(
            ids(*range(parameters.members)),
            ids(*range(parameters.members, parameters.clients)),
            frozenset(ids(*banned)),
        ),
        closing=RoundClosing(9, encoding.commitments_chain(commitments.items()), commitments),
    )
    published = payloads.keys() - set(unpublished)
    held = {client: Payload.of(payloads[client]) for client in sorted(published)}
    way = None if travel is None else f32(*travel)
    return SmallRound(inputs, Evidence(f32(*model), held, {}, displacement=way))


def payload_of(update: Sequence[float] | bytes | float, dimension: int) -> bytes:
    """Return the bytes of an update; one number stands for as many as the model has."""
    if isinstance(update, bytes):
        return update
    values = [update] * dimension if isinstance(update, (int, float)) else update
    return encoding.vector_bytes(f32(*values))
