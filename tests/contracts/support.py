"""Builders of what honest clients and members send, and of damaged signatures."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ledger.protocol import encoding, ledger_state
from ledger.protocol.consensus import primary_place, quorum
from ledger.protocol.election import elect
from ledger.protocol.sampling import sample_trainers
from ledger.protocol.selection import accepted_size, rank, select
from ledger.protocol.signing import GROUP_ORDER, sign
from ledger.protocol.types import (
    NO_DIGEST,
    ClientId,
    Commitment,
    Digest,
    Phase,
    Strategy,
    Vote,
    VoteKind,
)
from tests.contracts.twins import Proposal, digest_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.contracts.twins import Outcome, SignedCommitment, Twins

REQUEST_TIME = 1_700_000_000


def trainers_of(state: ledger_state.LedgerState) -> tuple[ClientId, ...]:
    """Return S_b of the open round, ascending."""
    deployment = state.deployment
    return sample_trainers(state.seed, deployment.clients, state.committee, deployment.trainers)


def commitment(
    twins: Twins, client: ClientId, *, round_number: int | None = None, key: int | None = None
) -> SignedCommitment:
    """Return a client's signed commitment to its update of the open round.

    Args:
        twins: the contract it is for.
        client: who commits.
        round_number: another round to sign for.
        key: another client's key to sign with.
    """
    number = twins.state.round if round_number is None else round_number
    payload = digest_of("payload", number, client)
    signer = twins.keys[client if key is None else key]
    return client, payload, sign(signer, twins.state.domain, Commitment(number, client, payload))


def commit_all(twins: Twins, clients: Iterable[ClientId]) -> Outcome:
    """Commit for all of these clients in one transaction."""
    return twins.commit(twins.state.round, [commitment(twins, client) for client in clients])


def ranking_of(clients: Iterable[ClientId], distances: Iterable[float] = ()) -> tuple[int, ...]:
    """Return a ranking of clients: given distances, or 1.0, 1.5, 2.0, ... in a scrambled order."""
    clients = list(clients)
    order = sorted(clients, key=lambda client: digest_of("place", client))
    given = list(distances) or [1.0 + 0.5 * place for place in range(len(order))]
    return rank(zip(order, given, strict=True))


def decision_of(
    twins: Twins, ranking: tuple[int, ...], threshold_bits: int | None = None
) -> ledger_state.SubmittedDecision:
    """Return what a committee decides from a ranking; strategy III has the threshold 2.0."""
    state = twins.state
    if threshold_bits is None:
        spread = state.deployment.strategy is Strategy.WITHIN_SPREAD
        threshold_bits = encoding.float_bits(2.0) if spread else 0
    return ledger_state.SubmittedDecision(
        committee=state.committee,
        ranking=ranking,
        model=digest_of("model", state.round),
        updates_root=digest_of("updates", state.round),
        scores_root=digest_of("scores", state.round),
        threshold_bits=threshold_bits,
        record=digest_of("record", state.round),
    )


def voted(
    twins: Twins, decision: ledger_state.SubmittedDecision, phase: Phase
) -> tuple[Digest, Digest]:
    """Return set digest and result that an honest member votes for."""
    deployment, ranking = twins.state.deployment, decision.ranking
    if phase is Phase.ELECTION:
        if len(ranking) < deployment.members:
            return NO_DIGEST, NO_DIGEST
        return encoding.set_digest(elect(ranking, deployment.members)), NO_DIGEST
    size = accepted_size(deployment.aggregation_ppm, len(ranking))
    accepted = select(ranking, deployment.strategy, size, decision.threshold_bits)
    result = encoding.aggregation_result(
        decision.model,
        decision.updates_root,
        decision.scores_root,
        encoding.ranking_digest(ranking),
        decision.threshold_bits,
    )
    return encoding.set_digest(accepted), result


def certificate(
    twins: Twins,
    vote: Vote,
    *,
    repliers: Sequence[int] | None = None,
) -> ledger_state.SubmittedCertificate:
    """Return a certificate: the primary's request and the replies of members at these places.

    Args:
        twins: the contract it is for.
        vote: the request.
        repliers: places, ascending; by default the first quorum of members beside the primary
            who are not banned (fewer if there are not as many).
    """
    committee, state = twins.state.committee, twins.state
    place = primary_place(state.seed, vote.phase, vote.view, len(committee))
    if repliers is None:
        others = [other for other in range(len(committee)) if other != place]
        able = [other for other in others if not state.registry[committee[other]].banned]
        repliers = able[: quorum(len(committee))]
    reply = replace(vote, kind=VoteKind.REPLY)
    return ledger_state.SubmittedCertificate(
        view=vote.view,
        timestamp=vote.timestamp,
        set_digest=vote.set_digest,
        request=sign(twins.keys[committee[place]], state.domain, vote),
        signers=sum(1 << other for other in repliers),
        replies=tuple(
            sign(twins.keys[committee[other]], state.domain, reply) for other in repliers
        ),
    )


def request(
    twins: Twins,
    phase: Phase,
    view: int,
    set_digest: Digest,
    result: Digest,
    at: int = REQUEST_TIME,
) -> Vote:
    """Return a request of the open round."""
    return Vote(VoteKind.REQUEST, twins.state.round, phase, view, at, set_digest, result)


def able_view(twins: Twins, phase: Phase) -> int:
    """Return the first view whose primary is not banned."""
    state = twins.state
    members = len(state.committee)
    for view in range(10 * members):
        place = primary_place(state.seed, phase, view, members)
        if not state.registry[state.committee[place]].banned:
            return view
    raise AssertionError("every primary is banned")


def proposal(twins: Twins, ranking: tuple[int, ...], threshold_bits: int | None = None) -> Proposal:
    """Return the honest decision on a ranking, with both certificates."""
    return certified(twins, decision_of(twins, ranking, threshold_bits))


def certified(twins: Twins, decision: ledger_state.SubmittedDecision) -> Proposal:
    """Return a decision with both certificates, as honest members sign them."""
    votes = [
        request(twins, phase, able_view(twins, phase), *voted(twins, decision, phase))
        for phase in Phase
    ]
    first, second = (certificate(twins, vote) for vote in votes)
    return Proposal(twins.state.round, decision, (first, second))


def equivocation(
    twins: Twins, client: ClientId, kind: VoteKind = VoteKind.REQUEST
) -> tuple[tuple[Vote, bytes], tuple[Vote, bytes]]:
    """Return two different votes of a client for one round, phase and view."""
    votes = [
        replace(
            request(twins, Phase.AGGREGATION, 0, digest_of("set", number), NO_DIGEST), kind=kind
        )
        for number in (1, 2)
    ]
    first, second = ((vote, sign(twins.keys[client], twins.state.domain, vote)) for vote in votes)
    return first, second


def mirrored(signature: bytes) -> bytes:
    """Return the other signature of the same digest and key, with s in the upper half."""
    s = GROUP_ORDER - int.from_bytes(signature[32:64])
    return signature[:32] + s.to_bytes(32) + bytes([55 - signature[64]])


def high_s(signature: bytes) -> bytes:
    """Return a signature whose s is in the upper half, but fits the compact form's 255 bits."""
    return signature[:32] + (2**255 - 1).to_bytes(32) + signature[64:]


def damaged(signature: bytes) -> bytes:
    """Return a signature of something else."""
    return bytes([signature[0] ^ 1]) + signature[1:]
