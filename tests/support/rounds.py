"""The one builder of rounds: what clients and members sign and publish, honest by default.

`OpenRound` signs for a round; `ClosedRound` composes and judges what was published of one. Each
deviation from the protocol is an argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, cast

from ledger.protocol import encoding
from ledger.protocol.documents.record import RoundRecord, ScoreVector, encode_vector
from ledger.protocol.inputs import Evidence, Inputs, primary_seat
from ledger.protocol.judgement import (
    Judgement,
    compose_record,
    judge,
    score_updates,
    usable_clients,
)
from ledger.protocol.ledger_state import (
    EquivocationReport,
    LedgerState,
    QuorumCertificate,
    SignedStatement,
    StatementKind,
)
from ledger.protocol.signing import KeySigner, Message, sign
from ledger.protocol.types import (
    NO_DIGEST,
    ClientId,
    Commitment,
    Digest,
    Domain,
    Phase,
    Scores,
    SignedCommitment,
    SignedScores,
    SignedVote,
    Vote,
    VoteKind,
)
from ledger.protocol.validation import DistanceTable, Violation


def scores_by(
    inputs: Inputs, evidence: Evidence, clients: Sequence[ClientId], member: ClientId
) -> ScoreVector | None:
    """Return a member's true vector for a set of usable updates, None if it has no update."""
    updates = evidence.usable(clients)
    table = DistanceTable(inputs, updates, displacement=evidence.displacement)
    return score_updates(inputs, table, clients, member)


@dataclass(frozen=True)
class OpenRound:
    domain: Domain
    keys: Sequence[KeySigner]
    round: int = 1
    seed: Digest = NO_DIGEST
    committee: tuple[ClientId, ...] = ()
    replies: int = 0
    banned: frozenset[ClientId] = frozenset()

    @classmethod
    def of(cls, state: LedgerState, keys: Sequence[KeySigner]) -> Self:
        banned = (m for m in state.committee if state.registry[m].is_banned_in(state.round))
        return cls(
            domain=state.domain,
            keys=keys,
            round=state.round,
            seed=state.seed,
            committee=state.committee,
            replies=state.deployment.replies,
            banned=frozenset(banned),
        )

    def sign(self, message: Message, client: int) -> bytes:
        return sign(self.keys[client], self.domain, message)

    def commitment(
        self, client: int, word: Digest, *, round_number: int | None = None, key: int | None = None
    ) -> SignedCommitment:
        number = self.round if round_number is None else round_number
        commitment = Commitment(number, ClientId(client), word)
        return SignedCommitment(commitment, self.sign(commitment, client if key is None else key))

    def scores(
        self, member: int, base: Digest, clients: Digest, digest: Digest, key: int | None = None
    ) -> SignedScores:
        scores = Scores(self.round, ClientId(member), base, clients, digest)
        return SignedScores(scores, self.sign(scores, member if key is None else key))

    def primary(self, phase: Phase, view: int) -> ClientId:
        return self.committee[primary_seat(self.seed, phase, view, len(self.committee))]

    def first_view(self, phase: Phase) -> int:
        return next(v for v in range(1000) if self.primary(phase, v) not in self.banned)

    def request(
        self, phase: Phase, view: int, base: Digest, set_digest: Digest, result: Digest
    ) -> Vote:
        return Vote(VoteKind.REQUEST, self.round, phase, view, base, set_digest, result)

    def vote(self, vote: Vote, member: int, key: int | None = None) -> SignedVote:
        signature = self.sign(vote, member if key is None else key)
        return SignedVote(ClientId(member), vote, signature)

    def certificate(
        self, request: Vote, repliers: Sequence[ClientId] | None = None
    ) -> QuorumCertificate:
        primary = self.primary(request.phase, request.view)
        if repliers is None:
            others = [m for m in self.committee if m != primary and m not in self.banned]
            repliers = others[: self.replies]
        reply = replace(request, kind=VoteKind.REPLY)
        return QuorumCertificate(
            self.vote(request, primary), tuple(self.vote(reply, member) for member in repliers)
        )

    def equivocation(
        self,
        client: int,
        kind: StatementKind = StatementKind.REPLY,
        statements: tuple[Digest, Digest] = (encoding.sha256(b"one"), encoding.sha256(b"other")),
        **fields: object,
    ) -> EquivocationReport:
        first, second = (self.statement(client, kind, other, **fields) for other in statements)
        return EquivocationReport(ClientId(client), first, second)

    def statement(
        self, client: int, kind: StatementKind, digest: Digest, **fields: object
    ) -> SignedStatement:
        """Return one signed statement with this set, or this vector; see `equivocation`."""
        statement: Vote | Scores
        if kind is StatementKind.SCORES:
            statement = Scores(self.round, ClientId(client), NO_DIGEST, NO_DIGEST, digest)
        else:
            vote = VoteKind.REQUEST if kind is StatementKind.REQUEST else VoteKind.REPLY
            slot = (vote, self.round, Phase.AGGREGATION, 0, NO_DIGEST)
            statement = Vote(*slot, digest, NO_DIGEST)
        statement = replace(statement, **cast("Any", fields))
        return SignedStatement(statement, self.sign(statement, client))


@dataclass(frozen=True)
class ClosedRound:
    """A round whose inputs are closed, and what was published of it so far."""

    inputs: Inputs
    evidence: Evidence
    keys: Sequence[KeySigner]
    claims: tuple[SignedScores, ...] = ()

    @property
    def members(self) -> tuple[ClientId, ...]:
        return self.inputs.participants.members

    @property
    def usable(self) -> tuple[ClientId, ...]:
        return usable_clients(self.inputs, self.evidence)

    @property
    def open_round(self) -> OpenRound:
        inputs, participants = self.inputs, self.inputs.participants
        return OpenRound(
            domain=inputs.domain,
            keys=self.keys,
            round=inputs.round,
            seed=inputs.seed,
            committee=participants.committee,
            replies=inputs.parameters.replies,
            banned=participants.banned,
        )

    def vector(self, member: int, clients: Sequence[ClientId] | None = None) -> ScoreVector:
        scored = self.usable if clients is None else clients
        vector = scores_by(self.inputs, self.evidence, scored, ClientId(member))
        assert vector is not None
        return vector

    def claim(self, member: int, data: bytes, key: int | None = None) -> SignedScores:
        clients, base = encoding.set_digest(self.usable), self.inputs.closing.base
        return self.open_round.scores(member, base, clients, encoding.sha256(data), key)

    def publish(self, member: int, vector: ScoreVector | bytes) -> Self:
        data = vector if isinstance(vector, bytes) else encode_vector(vector)
        claim = self.claim(member, data)
        vectors = dict(self.evidence.vectors) | {claim.scores.digest: data}
        evidence = self.evidence.with_vectors(vectors)
        return replace(self, evidence=evidence, claims=(*self.claims, claim))

    def scored(self, *members: int) -> Self:
        """Return the round with true vectors of these members; of all that can without one."""
        scored = self
        for member in members or self.members:
            vector = scores_by(self.inputs, self.evidence, self.usable, ClientId(member))
            if vector is not None:
                scored = scored.publish(member, vector)
        return scored

    def compose(self) -> RoundRecord:
        return compose_record(self.inputs, self.evidence, self.claims)

    def judge(
        self, record: RoundRecord | None = None
    ) -> tuple[Judgement | None, tuple[Violation, ...]]:
        return judge(self.inputs, record or self.compose(), self.evidence)

    def judged(self) -> Judgement:
        judgement, violations = self.judge()
        assert not violations
        assert judgement is not None
        return judgement
