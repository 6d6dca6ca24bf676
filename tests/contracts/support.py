"""Builders of what honest clients and members send, and of damaged signatures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ledger.protocol import encoding, ledger_state
from ledger.protocol.inputs import sample_trainers
from ledger.protocol.judgement import sets_of
from ledger.protocol.ledger_state import (
    EquivocationReport,
    LedgerState,
    SignedStatement,
    StatementKind,
)
from ledger.protocol.rules.selection import rank
from ledger.protocol.types import (
    NO_DIGEST,
    ClientId,
    Commitment,
    Digest,
    Phase,
    SignedCommitment,
    Vote,
    VoteKind,
)
from tests.contracts.twins import Outcome, Proposal, Twins, digest_of
from tests.support.rounds import OpenRound


def open_round(twins: Twins) -> OpenRound:
    return OpenRound.of(twins.state, twins.keys)


def trainers_of(state: LedgerState) -> tuple[ClientId, ...]:
    """Return S_b of the open round, ascending."""
    deployment = state.deployment
    banned = [i for i, c in enumerate(state.registry) if c.is_banned_in(state.round)]
    excluded = {*state.committee, *map(ClientId, banned)}
    return sample_trainers(state.seed, deployment.clients, excluded, deployment.trainers)


def active_of(state: LedgerState) -> tuple[ClientId, ...]:
    """Return trainers and members of the open round who may commit, ascending."""
    able = (c for c in state.committee if not state.registry[c].is_banned_in(state.round))
    return tuple(sorted({*trainers_of(state), *able}))


def payload_of(round_number: int, client: ClientId) -> Digest:
    return digest_of("payload", round_number, client)


def commitment(
    twins: Twins, client: ClientId, *, round_number: int | None = None, key: int | None = None
) -> SignedCommitment:
    """Return a client's signed commitment to its update of the open round."""
    number = twins.state.round if round_number is None else round_number
    word = encoding.commitment_of(client, payload_of(number, client))
    return signed_commitment(twins, Commitment(number, client, word), key)


def signed_commitment(
    twins: Twins, promised: Commitment, key: int | None = None
) -> SignedCommitment:
    """Return a commitment with a signature, of its own client if no other key is named."""
    signature = open_round(twins).sign(promised, promised.client if key is None else key)
    return SignedCommitment(promised, signature)


def commit_all(twins: Twins, clients: Iterable[ClientId]) -> Outcome:
    return twins.commit(twins.state.round, [commitment(twins, client) for client in clients])


def ranking_of(clients: Iterable[ClientId], distances: Iterable[float] = ()) -> tuple[int, ...]:
    """Return a ranking of clients: given distances, or 1.0, 1.5, 2.0, ... in a scrambled order."""
    clients = list(clients)
    order = sorted(clients, key=lambda client: digest_of("place", client))
    given = list(distances) or [1.0 + 0.5 * place for place in range(len(order))]
    return rank(zip(order, given, strict=True))


def decision_of(twins: Twins, ranking: tuple[int, ...]) -> ledger_state.SubmittedDecision:
    state = twins.state
    return ledger_state.SubmittedDecision(
        committee=state.committee,
        ranking=ranking,
        base=state.commitments,
        model=digest_of("model", state.round),
        updates_root=digest_of("updates", state.round),
        scores_root=digest_of("scores", state.round),
        reveal=digest_of("reveal", state.round),
        record=digest_of("record", state.round),
        incidents=digest_of("incidents", state.round),
    )


def request(
    twins: Twins, decision: ledger_state.SubmittedDecision, phase: Phase, view: int
) -> Vote:
    """Return the request of the open round that an honest primary signs for a decision."""
    deployment, ranking = twins.state.deployment, decision.ranking
    chosen = NO_DIGEST
    if len(ranking) >= deployment.members:
        sets = sets_of(deployment, ranking)
        chosen = encoding.set_digest(sets.voted_on(phase))
    result = encoding.aggregation_result(decision.opening())
    number = twins.state.round
    return Vote(VoteKind.REQUEST, number, phase, view, decision.base, chosen, result)


def certificate(
    twins: Twins, vote: Vote, *, repliers: Sequence[int] | None = None
) -> ledger_state.SubmittedCertificate:
    """Return a certificate: the primary's request and the replies of members at these places."""
    committee = twins.state.committee
    chosen = None if repliers is None else [committee[seat] for seat in repliers]
    made = open_round(twins).certificate(vote, chosen)
    return ledger_state.submitted_certificate(made, committee)


def can_vote(state: LedgerState, place: int) -> bool:
    """Say whether the member at this place was not banned when the round opened."""
    return not state.registry[state.committee[place]].is_banned_in(state.round)


def able_view(twins: Twins, phase: Phase) -> int:
    """Return the first view whose primary is not banned."""
    return open_round(twins).first_view(phase)


def proposal(twins: Twins, ranking: tuple[int, ...]) -> Proposal:
    return certified(twins, decision_of(twins, ranking))


def certified(twins: Twins, decision: ledger_state.SubmittedDecision) -> Proposal:
    first, second = (
        certificate(twins, request(twins, decision, phase, able_view(twins, phase)))
        for phase in Phase
    )
    return Proposal(twins.state.round, decision, (first, second))


def equivocation(
    twins: Twins, client: ClientId, kind: StatementKind = StatementKind.REQUEST, **fields: object
) -> EquivocationReport:
    first, second = (statement(twins, client, kind, number, **fields) for number in (1, 2))
    return EquivocationReport(client, first, second)


def statement(
    twins: Twins, client: ClientId, kind: StatementKind, number: int, **fields: object
) -> SignedStatement:
    """Return one of a client's statements for a place, signed."""
    base, open_ = digest_of("base"), open_round(twins)
    if kind is StatementKind.SCORES:
        usual = {"base": base, "clients": digest_of("usable")}
        digest = digest_of("vector", number)
    else:
        usual = {"base": base, "result": digest_of("result")}
        digest = digest_of("set", number)
    return open_.statement(client, kind, digest, **usual | fields)


def high_s(signature: bytes) -> bytes:
    """Return a signature whose s is in the upper half, but fits the compact form's 255 bits."""
    return signature[:32] + (2**255 - 1).to_bytes(32) + signature[64:]


def damaged(signature: bytes) -> bytes:
    """Return a signature of something else."""
    return bytes([signature[0] ^ 1]) + signature[1:]
