"""The executable specification of the contract: its five transitions.

Every function takes the state and a transaction's arguments and returns the next state and the
events, or raises the `Refusal` that the contract reverts with. Guards stand in the contract's
order. `contracts/committee_ledger.vy` is the twin of this file; a Hypothesis state machine drives
both side by side. The state itself, the arguments and the events are in `ledger_state.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ledger.protocol import encoding, errors
from ledger.protocol.consensus import primary_place, quorum
from ledger.protocol.election import elect
from ledger.protocol.ledger_state import (
    BlockContext,
    ClientBanned,
    ClientsRegistered,
    Deployment,
    LedgerOpened,
    LedgerState,
    RoundAbandoned,
    RoundDecided,
    Stage,
    Step,
    SubmittedCertificate,
    SubmittedDecision,
    UpdatesCommitted,
)
from ledger.protocol.sampling import redrawn_committee
from ledger.protocol.selection import accepted_size, select
from ledger.protocol.signing import GROUP_ORDER, is_signed_by
from ledger.protocol.types import (
    NO_DIGEST,
    Beacon,
    ClientId,
    Commitment,
    Digest,
    Domain,
    Phase,
    Strategy,
    Vote,
    VoteKind,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


def deployed(deployment: Deployment, domain: Domain) -> LedgerState:
    """Return the state after the constructor.

    Args:
        deployment: its arguments.
        domain: the contract's address on its chain.

    Returns:
        A ledger that waits for its clients.
    """
    return LedgerState(
        deployment=deployment,
        domain=domain,
        stage=Stage.REGISTERING,
        round=0,
        opened_block=0,
        seed=NO_DIGEST,
        committee=(),
        model=deployment.model,
        head=deployment.config,
        registry_rest=deployment.registry,
        registry=(),
        committed=frozenset(),
        commitments=NO_DIGEST,
    )


def register_clients(
    state: LedgerState, words: Sequence[int], rest: Digest, block: BlockContext
) -> Step:
    """Register the next batch of clients; the last batch opens round 1.

    Anyone may send it: the deployment fixed the clients by digest.

    Args:
        state: before the transaction.
        words: address << 64 | samples of each client, addresses ascending.
        rest: digest of the batches after this one.
        block: the block that it is in.

    Returns:
        The next state and its events.

    Raises:
        Refusal: registration is over, or the batch is not the one fixed at deployment.
    """
    deployment = state.deployment
    if state.stage is not Stage.REGISTERING:
        raise errors.NotRegisteringError
    if encoding.registry_digest(words, rest) != state.registry_rest:
        raise errors.RegistryMismatchError
    count = len(state.registry) + len(words)
    if count > deployment.clients or (rest == NO_DIGEST) != (count == deployment.clients):
        raise errors.RegistryEndError
    previous = int.from_bytes(state.registry[-1].address) if state.registry else 0
    for word in words:
        if word >> 224 or not word & 0xFFFF_FFFF_FFFF_FFFF:
            raise errors.MalformedClientError
        if word >> 64 <= previous:
            raise errors.ClientsNotAscendingError
        previous = word >> 64
    registered = ClientsRegistered(ClientId(len(state.registry)), tuple(words))
    registry = state.registry + tuple(encoding.registered_client(word) for word in words)
    state = replace(state, registry=registry, registry_rest=rest)
    if count < deployment.clients:
        return state, (registered,)
    seed = encoding.first_seed(deployment.config, _beacon(state, block))
    state = replace(
        state,
        stage=Stage.OPEN,
        round=1,
        opened_block=block.number,
        seed=seed,
        committee=deployment.committee,
    )
    opened = LedgerOpened(deployment.config, seed, deployment.committee, deployment.model)
    return state, (registered, opened)


def commit_updates(
    state: LedgerState, round_number: int, signed: Sequence[tuple[ClientId, Digest, bytes]]
) -> Step:
    """Take signed commitments to updates; anyone may carry them.

    Args:
        state: before the transaction.
        round_number: the round that they are for.
        signed: client, payload digest and signature of each.

    Returns:
        The next state and its event.

    Raises:
        Refusal: for the first commitment that is unknown, banned, repeated or not signed.
    """
    _require_open(state, round_number)
    if not signed:
        raise errors.NoCommitmentsError
    committed, digest = set(state.committed), state.commitments
    for client, payload, signature in signed:
        if client >= state.deployment.clients:
            raise errors.UnknownClientError
        registered = state.registry[client]
        if registered.banned:
            raise errors.ClientBannedError
        if client in committed:
            raise errors.RepeatedCommitmentError
        _require_canonical(signature)
        commitment = Commitment(round_number, client, payload)
        if not is_signed_by(registered.address, state.domain, commitment, signature):
            raise errors.CommitmentNotSignedError
        committed.add(client)
        digest = encoding.commitments_digest(digest, client, payload)
    event = UpdatesCommitted(
        round_number,
        tuple(client for client, _, _ in signed),
        tuple(payload for _, payload, _ in signed),
    )
    return replace(state, committed=frozenset(committed), commitments=digest), (event,)


def decide(
    state: LedgerState,
    round_number: int,
    decision: SubmittedDecision,
    certificates: tuple[SubmittedCertificate, SubmittedCertificate],
    block: BlockContext,
) -> Step:
    """Record a round: derive S_a and the next committee, check both certificates, move on.

    Args:
        state: before the transaction.
        round_number: t.
        decision: what the committee decided.
        certificates: of the aggregation and of the election phase.
        block: the block that it is in.

    Returns:
        The next state and its event.

    Raises:
        Refusal: the ranking is not one, or a certificate does not hold.
    """
    deployment, ranking = state.deployment, decision.ranking
    _require_open(state, round_number)
    if decision.committee != state.committee:
        raise errors.WrongCommitteeError
    _require_ranking(state, ranking)
    _require_threshold(deployment.strategy, decision.threshold_bits)
    size = accepted_size(deployment.aggregation_ppm, len(ranking))
    accepted = select(ranking, deployment.strategy, size, decision.threshold_bits)
    next_committee = elect(ranking, deployment.members)
    result = encoding.aggregation_result(
        decision.model,
        decision.updates_root,
        decision.scores_root,
        encoding.ranking_digest(ranking),
        decision.threshold_bits,
    )
    sets = (encoding.set_digest(accepted), encoding.set_digest(next_committee))
    if certificates[0].set_digest != sets[0]:
        raise errors.WrongAggregationSetError
    first = _require_certificate(state, Phase.AGGREGATION, certificates[0], result)
    if certificates[1].set_digest != sets[1]:
        raise errors.WrongNextCommitteeError
    second = _require_certificate(state, Phase.ELECTION, certificates[1], NO_DIGEST)
    head = encoding.head_after_decision(
        state.head, round_number, state.seed, state.commitments, (*sets, result)
    )
    seed = encoding.next_seed(state.seed, sets[0], result, sets[1], _beacon(state, block))
    event = RoundDecided(
        round=round_number,
        ranking=ranking,
        accepted=accepted,
        next_committee=next_committee,
        model=decision.model,
        updates_root=decision.updates_root,
        scores_root=decision.scores_root,
        threshold_bits=decision.threshold_bits,
        record=decision.record,
        views=(certificates[0].view, certificates[1].view),
        primaries=(first, second),
        signers=(certificates[0].signers, certificates[1].signers),
        next_seed=seed,
        head=head,
    )
    state = replace(state, model=decision.model)
    return _next_round(state, block, seed, next_committee, head), (event,)


def abandon_round(state: LedgerState, round_number: int, block: BlockContext) -> Step:
    """End an undecided round after its deadline; the model stays, a committee is drawn.

    Args:
        state: before the transaction.
        round_number: t.
        block: the block that it is in.

    Returns:
        The next state and its event; finished if no committee can be drawn any more.

    Raises:
        Refusal: the round is not open, or its deadline is not reached.
    """
    _require_open(state, round_number)
    if block.number < state.opened_block + state.deployment.deadline_blocks:
        raise errors.DeadlineNotReachedError
    seed = encoding.seed_after_abandoned(state.seed, _beacon(state, block))
    banned = {ClientId(i) for i, client in enumerate(state.registry) if client.banned}
    deployment = state.deployment
    committee = redrawn_committee(seed, deployment.clients, deployment.members, banned)
    head = encoding.head_after_abandoned(
        state.head, round_number, state.seed, state.commitments, encoding.set_digest(committee)
    )
    event = RoundAbandoned(round_number, committee, seed, head)
    state = _next_round(state, block, seed, committee, head)
    if len(committee) < deployment.members:
        state = replace(state, stage=Stage.FINISHED)
    return state, (event,)


def report_equivocation(
    state: LedgerState,
    client: ClientId,
    first: tuple[Vote, bytes],
    second: tuple[Vote, bytes],
) -> Step:
    """Ban a client that signed two different votes for one round, phase and view.

    Membership is not asked: an honest client that is no member signs no vote at all.

    Args:
        state: before the transaction.
        client: the accused.
        first: a vote and its signature.
        second: another of the same kind, round, phase and view, and its signature.

    Returns:
        The next state and its event.

    Raises:
        Refusal: no such client, banned already, or the votes are no proof.
        ValueError: the votes differ in kind, round, phase or view.
    """
    if _slot(first[0]) != _slot(second[0]):
        # Not a refusal: the contract's arguments cannot even say it.
        raise ValueError("the votes are not of one kind, round, phase and view")
    if state.stage is not Stage.OPEN:
        raise errors.NoRoundOpenError
    if client >= state.deployment.clients:
        raise errors.UnknownClientError
    accused = state.registry[client]
    if accused.banned:
        raise errors.ClientBannedError
    if first[0] == second[0]:
        raise errors.VotesEqualError
    for vote, signature in (first, second):
        _require_canonical(signature)
        if not is_signed_by(accused.address, state.domain, vote, signature):
            raise errors.VoteNotSignedError
    head = encoding.head_after_ban(state.head, state.round, client)
    registry = list(state.registry)
    registry[client] = replace(accused, banned=True)
    state = replace(
        state,
        registry=tuple(registry),
        # Without its commitment a banned trainer cannot be ranked any more.
        committed=state.committed - {client},
        head=head,
    )
    return state, (ClientBanned(state.round, client, head),)


def _slot(vote: Vote) -> tuple[VoteKind, int, Phase, int]:
    """Return where a client may sign one vote only."""
    return vote.kind, vote.round, vote.phase, vote.view


def _require_open(state: LedgerState, round_number: int) -> None:
    if state.stage is not Stage.OPEN:
        raise errors.NoRoundOpenError
    if round_number != state.round:
        raise errors.WrongRoundError


def _require_ranking(state: LedgerState, ranking: Sequence[int]) -> None:
    if len(ranking) > state.deployment.trainers:
        raise errors.RankingTooLongError
    if len(ranking) < state.deployment.members:
        raise errors.RankingTooShortError
    members, seen, previous = set(state.committee), set[int](), -1
    for word in ranking:
        if word <= previous:
            raise errors.RankingNotSortedError
        client = encoding.word_client(word)
        if client >= state.deployment.clients:
            raise errors.UnknownClientError
        if client in members:
            raise errors.MemberRankedError
        if client in seen:
            raise errors.RepeatedClientError
        if client not in state.committed:
            raise errors.NoCommitmentError
        seen.add(client)
        previous = word
    # The words ascend, so the last distance bounds them all.
    if previous >> 32 >= encoding.INFINITY_BITS:
        raise errors.DistanceNotFiniteError


def _require_threshold(strategy: Strategy, threshold_bits: int) -> None:
    if strategy is not Strategy.WITHIN_SPREAD:
        if threshold_bits:
            raise errors.ThresholdUnusedError
    elif threshold_bits >= encoding.INFINITY_BITS:
        raise errors.ThresholdNotFiniteError


def _require_certificate(
    state: LedgerState, phase: Phase, certificate: SubmittedCertificate, result: Digest
) -> ClientId:
    """Return the primary if its request and a quorum of other members' replies are signed."""
    committee, signers = state.committee, certificate.signers
    place = primary_place(state.seed, phase, certificate.view, len(committee))
    request = Vote(
        VoteKind.REQUEST,
        state.round,
        phase,
        certificate.view,
        certificate.timestamp,
        certificate.set_digest,
        result,
    )
    _require_vote(state, committee[place], request, certificate.request)
    if signers >> len(committee):
        raise errors.SignersOutOfRangeError
    if signers >> place & 1:
        raise errors.PrimaryRepliesError
    if len(certificate.replies) < quorum(len(committee)):
        raise errors.QuorumNotReachedError
    reply = replace(request, kind=VoteKind.REPLY)
    signed = iter(certificate.replies)
    for member in range(len(committee)):
        if signers >> member & 1:
            signature = next(signed, None)
            if signature is None:
                raise errors.SignatureCountError
            _require_vote(state, committee[member], reply, signature)
    if next(signed, None) is not None:
        raise errors.SignatureCountError
    return committee[place]


def _require_vote(state: LedgerState, member: ClientId, vote: Vote, signature: bytes) -> None:
    registered = state.registry[member]
    if registered.banned:
        raise errors.MemberBannedError
    _require_canonical(signature)
    if not is_signed_by(registered.address, state.domain, vote, signature):
        if vote.kind is VoteKind.REQUEST:
            raise errors.RequestNotSignedError
        raise errors.ReplyNotSignedError


def _require_canonical(signature: bytes) -> None:
    if int.from_bytes(signature[32:64]) > GROUP_ORDER // 2:
        raise errors.SignatureNotCanonicalError


def _beacon(state: LedgerState, block: BlockContext) -> Digest:
    return block.parent_hash if state.deployment.beacon is Beacon.BLOCK else NO_DIGEST


def _next_round(
    state: LedgerState,
    block: BlockContext,
    seed: Digest,
    committee: tuple[ClientId, ...],
    head: Digest,
) -> LedgerState:
    """Return the state with the next round open, or finished after the last."""
    last = state.round == state.deployment.rounds
    return replace(
        state,
        stage=Stage.FINISHED if last else Stage.OPEN,
        round=state.round if last else state.round + 1,
        opened_block=block.number,
        seed=seed,
        committee=committee,
        head=head,
        committed=frozenset(),
        commitments=NO_DIGEST,
    )
