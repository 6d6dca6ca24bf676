"""The executable specification of the contract: its five transitions.

Every function takes the state and a transaction's arguments and returns the next state and the
events, or raises the `ProtocolRefusal` that the contract reverts with. Guards are in the contract's
order. `contracts/committee_ledger.vy` is the twin of this file; a Hypothesis state machine drives
both side by side. The state itself, the arguments and the events are in `ledger_state.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ledger.protocol import encoding, errors
from ledger.protocol.consensus import primary_seat
from ledger.protocol.inputs import drawn_committee
from ledger.protocol.judgement import sets_of
from ledger.protocol.ledger_state import (
    BlockContext,
    ClientBanned,
    ClientsRegistered,
    Deployment,
    EquivocationReport,
    LedgerOpened,
    LedgerStage,
    LedgerState,
    RoundAbandoned,
    RoundDecided,
    Step,
    SubmittedCertificate,
    SubmittedDecision,
    UpdatesCommitted,
)
from ledger.protocol.signing import GROUP_ORDER, is_signed_by
from ledger.protocol.types import (
    NO_DIGEST,
    Beacon,
    ClientId,
    Digest,
    Domain,
    Phase,
    Scores,
    SignedCommitment,
    Vote,
    VoteKind,
)


def deployed(deployment: Deployment, domain: Domain) -> LedgerState:
    """Return the state after the constructor."""
    return LedgerState(
        deployment=deployment,
        domain=domain,
        stage=LedgerStage.REGISTERING,
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
        words: registry word of each client, addresses ascending.
        rest: digest of the batches after this one.
    """
    deployment = state.deployment
    _require_account(block)
    if state.stage is not LedgerStage.REGISTERING:
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
    committee = drawn_committee(seed, deployment.clients, deployment.members, ())
    stage = LedgerStage.OPEN if len(committee) == deployment.members else LedgerStage.FINISHED
    state = replace(
        state,
        stage=stage,
        round=1,
        opened_block=block.number,
        seed=seed,
        committee=committee,
    )
    opened = LedgerOpened(deployment.config, seed, committee, deployment.model)
    return state, (registered, opened)


def commit_updates(
    state: LedgerState, round_number: int, signed: Sequence[SignedCommitment], block: BlockContext
) -> Step:
    """Accept signed commitments to updates; anyone may submit them.

    An entry whose client has committed already is skipped, so that no one can spoil a batch by
    sending one of its commitments ahead.
    """
    _require_account(block)
    _require_open(state, round_number)
    if block.number > state.opened_block + state.deployment.commit_blocks:
        raise errors.CommitmentsClosedError
    if not signed:
        raise errors.NoCommitmentsError
    committed, digest = set(state.committed), state.commitments
    accepted: list[tuple[ClientId, Digest]] = []
    for entry in signed:
        client = entry.commitment.client
        if client >= state.deployment.clients:
            raise errors.UnknownClientError
        registered = state.registry[client]
        if registered.is_banned_in(round_number):
            raise errors.ClientBannedError
        if client in committed:
            continue
        _require_canonical(entry.signature)
        commitment = replace(entry.commitment, round=round_number)
        if not is_signed_by(registered.address, state.domain, commitment, entry.signature):
            raise errors.CommitmentNotSignedError
        committed.add(client)
        accepted.append((client, commitment.commitment))
        digest = encoding.commitments_digest(digest, client, commitment.commitment)
    if not accepted:
        raise errors.NothingTakenError
    clients, commitments = zip(*accepted, strict=True)
    event = UpdatesCommitted(round_number, clients, commitments)
    return replace(state, committed=frozenset(committed), commitments=digest), (event,)


def decide(
    state: LedgerState,
    round_number: int,
    decision: SubmittedDecision,
    certificates: tuple[SubmittedCertificate, SubmittedCertificate],
    block: BlockContext,
) -> Step:
    """Record a round: derive S_a and the candidates, check both certificates, elect, move on."""
    ranking = decision.ranking
    _require_account(block)
    _require_open(state, round_number)
    if decision.committee != state.committee:
        raise errors.WrongCommitteeError
    _require_ranking(state, ranking, block)
    derived = sets_of(state.deployment, ranking)
    result = encoding.aggregation_result(decision.opening())
    sets = (encoding.set_digest(derived.accepted), encoding.set_digest(derived.candidates))
    inputs = (decision.base, result)
    if certificates[0].set_digest != sets[0]:
        raise errors.WrongAggregationSetError
    first = _require_certificate(state, Phase.AGGREGATION, certificates[0], *inputs)
    if certificates[1].set_digest != sets[1]:
        raise errors.WrongCandidatesError
    second = _require_certificate(state, Phase.ELECTION, certificates[1], *inputs)
    views = (certificates[0].view, certificates[1].view)
    signers = (certificates[0].signers, certificates[1].signers)
    votes = encoding.votes_digest(views, signers, decision.incidents)
    seed = encoding.next_seed(state.seed, decision.reveal, _beacon(state, block))
    next_committee = derived.elected(state.deployment.members, seed)
    chosen = encoding.set_digest(next_committee)
    head = encoding.head_after_decision(_before(state), sets[0], chosen, result, votes)
    event = RoundDecided(
        round=round_number,
        ranking=ranking,
        accepted=derived.accepted,
        next_committee=next_committee,
        base=decision.base,
        model=decision.model,
        updates_root=decision.updates_root,
        scores_root=decision.scores_root,
        reveal=decision.reveal,
        record=decision.record,
        incidents=decision.incidents,
        views=views,
        primaries=(first, second),
        signers=signers,
        next_seed=seed,
        head=head,
    )
    state = replace(state, model=decision.model)
    return _next_round(state, block, seed, next_committee, head), (event,)


def abandon_round(state: LedgerState, round_number: int, block: BlockContext) -> Step:
    """End an undecided round after its deadline; the model stays, a committee is drawn.

    Returns:
        The next state and its event; finished if no committee can be drawn any more.
    """
    _require_account(block)
    _require_open(state, round_number)
    if block.number < state.opened_block + state.deployment.deadline_blocks:
        raise errors.DeadlineNotReachedError
    seed = encoding.seed_after_abandoned(state.seed, _beacon(state, block))
    banned = {ClientId(i) for i, client in enumerate(state.registry) if client.banned_in}
    deployment = state.deployment
    committee = drawn_committee(seed, deployment.clients, deployment.members, banned)
    head = encoding.head_after_abandoned(_before(state), encoding.set_digest(committee))
    event = RoundAbandoned(round_number, committee, seed, head)
    state = _next_round(state, block, seed, committee, head)
    if len(committee) < deployment.members:
        state = replace(state, stage=LedgerStage.FINISHED)
    return state, (event,)


def report_equivocation(
    state: LedgerState, report: EquivocationReport, block: BlockContext
) -> Step:
    """Ban a client that signed two different statements for one place, from the next round on.

    Membership is not asked: an honest client that is no member signs no vote and no vector. After
    the last round a proof is still taken: the head is then all that it moves.
    """
    _require_account(block)
    if state.stage is LedgerStage.REGISTERING:
        raise errors.NotOpenedError
    client = report.client
    if client >= state.deployment.clients:
        raise errors.UnknownClientError
    accused = state.registry[client]
    if accused.banned_in:
        raise errors.ClientBannedError
    first, second = report.first.statement, report.second.statement
    if first == second:
        raise errors.StatementsEqualError
    if isinstance(first, Scores) and isinstance(second, Scores) and first.clients != second.clients:
        raise errors.ScoresDifferError
    for signed in (report.first, report.second):
        _require_canonical(signed.signature)
        if not is_signed_by(accused.address, state.domain, signed.statement, signed.signature):
            raise errors.StatementNotSignedError
    head = encoding.head_after_ban(state.head, state.round, client)
    registry = list(state.registry)
    registry[client] = replace(accused, banned_in=state.round)
    state = replace(state, registry=tuple(registry), head=head)
    return state, (ClientBanned(state.round, client, head),)


def _require_account(block: BlockContext) -> None:
    """Refuse a transaction from a contract or a delegated account: votes are in call data."""
    if not block.sent_by_account:
        raise errors.NotSentByAccountError
    if block.is_delegated:
        raise errors.DelegatedAccountError


def _require_open(state: LedgerState, round_number: int) -> None:
    if state.stage is not LedgerStage.OPEN:
        raise errors.NoRoundOpenError
    if round_number != state.round:
        raise errors.WrongRoundError


def _require_ranking(state: LedgerState, ranking: Sequence[int], block: BlockContext) -> None:
    deployment = state.deployment
    if len(ranking) > deployment.trainers:
        raise errors.RankingTooLongError
    if len(ranking) < deployment.members:
        raise errors.RankingTooShortError
    is_early = block.number <= state.opened_block + deployment.commit_blocks
    if is_early and len(ranking) < deployment.trainers:  # nobody is late while there is time
        raise errors.RankingTooEarlyError
    members, ranked, previous = set(state.committee), set[int](), -1
    for word in ranking:
        if word <= previous:
            raise errors.RankingNotSortedError
        client = encoding.word_client(word)
        if client >= deployment.clients:
            raise errors.UnknownClientError
        if client in members:
            raise errors.MemberRankedError
        if client in ranked:
            raise errors.RepeatedClientError
        if client not in state.committed:
            raise errors.NoCommitmentError
        ranked.add(client)
        previous = word
    # The words ascend, so the last distance bounds them all.
    if previous >> 32 >= encoding.INFINITY_BITS:
        raise errors.DistanceNotFiniteError


def _require_certificate(
    state: LedgerState,
    phase: Phase,
    certificate: SubmittedCertificate,
    base: Digest,
    result: Digest,
) -> ClientId:
    """Return the primary if its request and enough other members' replies are signed."""
    committee, signers = state.committee, certificate.signers
    place = primary_seat(state.seed, phase, certificate.view, len(committee))
    request = Vote(
        VoteKind.REQUEST,
        state.round,
        phase,
        certificate.view,
        base,
        certificate.set_digest,
        result,
    )
    _require_vote(state, committee[place], request, certificate.request)
    if signers >> len(committee):
        raise errors.SignersOutOfRangeError
    if signers >> place & 1:
        raise errors.PrimaryRepliesError
    if len(certificate.replies) < state.deployment.replies:
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
    if registered.is_banned_in(state.round):
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


def _before(state: LedgerState) -> encoding.HeadContext:
    return encoding.HeadContext(state.head, state.round, state.seed, state.commitments)


def _next_round(
    state: LedgerState,
    block: BlockContext,
    seed: Digest,
    committee: tuple[ClientId, ...],
    head: Digest,
) -> LedgerState:
    last = state.round == state.deployment.rounds
    return replace(
        state,
        stage=LedgerStage.FINISHED if last else LedgerStage.OPEN,
        round=state.round if last else state.round + 1,
        opened_block=block.number,
        seed=seed,
        committee=committee,
        head=head,
        committed=frozenset(),
        commitments=NO_DIGEST,
    )
