"""The executable specification of the contract: its five transitions.

Every function takes the state and a transaction's arguments and returns the next state and the
events, or raises the `ProtocolRefusal` that the contract reverts with. Guards are in the contract's
order. `contracts/committee_ledger.vy` is the twin of this file; a Hypothesis state machine drives
both side by side. A transition checks its arguments and makes its events, which are in
`ledger_state.py`; `fold.py` gives the state that follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ledger.protocol import encoding
from ledger.protocol.errors import ProtocolRefusal, RefusalCode
from ledger.protocol.fold import HeadEvent, LedgerState
from ledger.protocol.inputs import drawn_committee, primary_seat
from ledger.protocol.judgement import sets_of
from ledger.protocol.ledger_state import (
    BlockContext,
    ClientBanned,
    ClientsRegistered,
    Deployment,
    EquivocationReport,
    Event,
    LedgerOpened,
    LedgerStage,
    RoundAbandoned,
    RoundDecided,
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

Step = tuple[LedgerState, tuple[Event, ...]]


def deployed(deployment: Deployment, domain: Domain) -> LedgerState:
    """Return the state after the constructor."""
    start = LedgerStage.REGISTERING, 0, 0, NO_DIGEST, ()
    return LedgerState(
        deployment,
        *start,
        deployment.model,
        deployment.config,
        domain=domain,
        registry_rest=deployment.registry,
    )


def register_clients(
    state: LedgerState, words: Sequence[int], rest: Digest, block: BlockContext
) -> Step:
    """Register the next batch of clients; the last batch opens round 1.

    Anyone may send it, since the deployment fixed the clients by digest. `rest` is the digest of
    the batches after this one.
    """
    deployment = state.deployment
    _require_account(block)
    if state.stage is not LedgerStage.REGISTERING:
        raise ProtocolRefusal(RefusalCode.NOT_REGISTERING)
    if encoding.registry_digest(words, rest) != state.registry_rest:
        raise ProtocolRefusal(RefusalCode.REGISTRY_MISMATCH)
    count = len(state.registry) + len(words)
    if count > deployment.clients or (rest == NO_DIGEST) != (count == deployment.clients):
        raise ProtocolRefusal(RefusalCode.REGISTRY_END)
    previous = int.from_bytes(state.registry[-1].address) if state.registry else 0
    for word in words:
        if word >> 224 or not word & 0xFFFF_FFFF_FFFF_FFFF:
            raise ProtocolRefusal(RefusalCode.MALFORMED_CLIENT)
        if word >> 64 <= previous:
            raise ProtocolRefusal(RefusalCode.CLIENTS_NOT_ASCENDING)
        previous = word >> 64
    registered = ClientsRegistered(ClientId(len(state.registry)), tuple(words))
    state = replace(state, registry_rest=rest).after(registered, block.number)
    if count < deployment.clients:
        return state, (registered,)
    seed = encoding.first_seed(deployment.config, _beacon(state, block))
    committee = drawn_committee(seed, deployment.clients, deployment.members, ())
    opened = LedgerOpened(deployment.config, seed, committee, deployment.model)
    return state.after(opened, block.number), (registered, opened)


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
        raise ProtocolRefusal(RefusalCode.COMMITMENTS_CLOSED)
    if not signed:
        raise ProtocolRefusal(RefusalCode.NO_COMMITMENTS)
    committed = set(state.committed)
    accepted: list[tuple[ClientId, Digest]] = []
    for entry in signed:
        client = entry.commitment.client
        if client >= state.deployment.clients:
            raise ProtocolRefusal(RefusalCode.UNKNOWN_CLIENT)
        registered = state.registry[client]
        if registered.is_banned_in(round_number):
            raise ProtocolRefusal(RefusalCode.CLIENT_BANNED)
        if client in committed:
            continue
        _require_canonical(entry.signature)
        commitment = replace(entry.commitment, round=round_number)
        if not is_signed_by(registered.address, state.domain, commitment, entry.signature):
            raise ProtocolRefusal(RefusalCode.COMMITMENT_NOT_SIGNED)
        committed.add(client)
        accepted.append((client, commitment.commitment))
    if not accepted:
        raise ProtocolRefusal(RefusalCode.NOTHING_TAKEN)
    clients, commitments = zip(*accepted, strict=True)
    event = UpdatesCommitted(round_number, clients, commitments)
    return state.after(event, block.number), (event,)


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
        raise ProtocolRefusal(RefusalCode.WRONG_COMMITTEE)
    _require_ranking(state, ranking, block)
    derived = sets_of(state.deployment, ranking)
    result = encoding.aggregation_result(decision.opening())
    sets = (encoding.set_digest(derived.accepted), encoding.set_digest(derived.candidates))
    inputs = (decision.base, result)
    if certificates[0].set_digest != sets[0]:
        raise ProtocolRefusal(RefusalCode.WRONG_AGGREGATION_SET)
    first = _require_certificate(state, Phase.AGGREGATION, certificates[0], *inputs)
    if certificates[1].set_digest != sets[1]:
        raise ProtocolRefusal(RefusalCode.WRONG_CANDIDATES)
    second = _require_certificate(state, Phase.ELECTION, certificates[1], *inputs)
    views = (certificates[0].view, certificates[1].view)
    signers = (certificates[0].signers, certificates[1].signers)
    seed = encoding.next_seed(state.seed, decision.reveal, _beacon(state, block))
    next_committee = derived.elected(state.deployment.members, seed)
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
        head=NO_DIGEST,
    )
    return _with_head(state, event, block)


def abandon_round(state: LedgerState, round_number: int, block: BlockContext) -> Step:
    """End an undecided round after its deadline; the model stays, a committee is drawn."""
    _require_account(block)
    _require_open(state, round_number)
    if block.number < state.opened_block + state.deployment.deadline_blocks:
        raise ProtocolRefusal(RefusalCode.DEADLINE_NOT_REACHED)
    seed = encoding.seed_after_abandoned(state.seed, _beacon(state, block))
    banned = {ClientId(i) for i, client in enumerate(state.registry) if client.banned_in}
    deployment = state.deployment
    committee = drawn_committee(seed, deployment.clients, deployment.members, banned)
    return _with_head(state, RoundAbandoned(round_number, committee, seed, NO_DIGEST), block)


def report_equivocation(
    state: LedgerState, report: EquivocationReport, block: BlockContext
) -> Step:
    """Ban a client that signed two different statements for one place, from the next round on.

    Membership is not asked: an honest client that is no member signs no vote and no vector. After
    the last round a proof is still taken: the head is then all that it moves.
    """
    _require_account(block)
    if state.stage is LedgerStage.REGISTERING:
        raise ProtocolRefusal(RefusalCode.NOT_OPENED)
    client = report.client
    if client >= state.deployment.clients:
        raise ProtocolRefusal(RefusalCode.UNKNOWN_CLIENT)
    accused = state.registry[client]
    if accused.banned_in:
        raise ProtocolRefusal(RefusalCode.CLIENT_BANNED)
    first, second = report.first.statement, report.second.statement
    if first == second:
        raise ProtocolRefusal(RefusalCode.STATEMENTS_EQUAL)
    if isinstance(first, Scores) and isinstance(second, Scores) and first.clients != second.clients:
        raise ProtocolRefusal(RefusalCode.SCORES_DIFFER)
    for signed in (report.first, report.second):
        _require_canonical(signed.signature)
        if not is_signed_by(accused.address, state.domain, signed.statement, signed.signature):
            raise ProtocolRefusal(RefusalCode.STATEMENT_NOT_SIGNED)
    return _with_head(state, ClientBanned(state.round, client, NO_DIGEST), block)


def _with_head(state: LedgerState, event: HeadEvent, block: BlockContext) -> Step:
    """Return the state after an event, and the event with the head that follows."""
    event = replace(event, head=state.head_after(event))
    return state.after(event, block.number), (event,)


def _require_account(block: BlockContext) -> None:
    """Refuse a transaction from a contract or a delegated account: votes are in call data."""
    if not block.sent_by_account:
        raise ProtocolRefusal(RefusalCode.NOT_SENT_BY_ACCOUNT)
    if block.is_delegated:
        raise ProtocolRefusal(RefusalCode.DELEGATED_ACCOUNT)


def _require_open(state: LedgerState, round_number: int) -> None:
    if state.stage is not LedgerStage.OPEN:
        raise ProtocolRefusal(RefusalCode.NO_ROUND_OPEN)
    if round_number != state.round:
        raise ProtocolRefusal(RefusalCode.WRONG_ROUND)


def _require_ranking(state: LedgerState, ranking: Sequence[int], block: BlockContext) -> None:
    deployment = state.deployment
    if len(ranking) > deployment.trainers:
        raise ProtocolRefusal(RefusalCode.RANKING_TOO_LONG)
    if len(ranking) < deployment.members:
        raise ProtocolRefusal(RefusalCode.RANKING_TOO_SHORT)
    is_early = block.number <= state.opened_block + deployment.commit_blocks
    if is_early and len(ranking) < deployment.trainers:  # nobody is late while there is time
        raise ProtocolRefusal(RefusalCode.RANKING_TOO_EARLY)
    members, committed = set(state.committee), state.committed
    ranked, previous = set[int](), -1
    for word in ranking:
        if word <= previous:
            raise ProtocolRefusal(RefusalCode.RANKING_NOT_SORTED)
        client = encoding.word_client(word)
        if client >= deployment.clients:
            raise ProtocolRefusal(RefusalCode.UNKNOWN_CLIENT)
        if client in members:
            raise ProtocolRefusal(RefusalCode.MEMBER_RANKED)
        if client in ranked:
            raise ProtocolRefusal(RefusalCode.REPEATED_CLIENT)
        if client not in committed:
            raise ProtocolRefusal(RefusalCode.NO_COMMITMENT)
        ranked.add(client)
        previous = word
    # The words ascend, so the last distance bounds them all.
    if previous >> 32 >= encoding.INFINITY_BITS:
        raise ProtocolRefusal(RefusalCode.DISTANCE_NOT_FINITE)


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
        raise ProtocolRefusal(RefusalCode.SIGNERS_OUT_OF_RANGE)
    if signers >> place & 1:
        raise ProtocolRefusal(RefusalCode.PRIMARY_REPLIES)
    if len(certificate.replies) < state.deployment.replies:
        raise ProtocolRefusal(RefusalCode.QUORUM_NOT_REACHED)
    reply = replace(request, kind=VoteKind.REPLY)
    signed = iter(certificate.replies)
    for member in range(len(committee)):
        if signers >> member & 1:
            signature = next(signed, None)
            if signature is None:
                raise ProtocolRefusal(RefusalCode.SIGNATURE_COUNT)
            _require_vote(state, committee[member], reply, signature)
    if next(signed, None) is not None:
        raise ProtocolRefusal(RefusalCode.SIGNATURE_COUNT)
    return committee[place]


def _require_vote(state: LedgerState, member: ClientId, vote: Vote, signature: bytes) -> None:
    registered = state.registry[member]
    if registered.is_banned_in(state.round):
        raise ProtocolRefusal(RefusalCode.MEMBER_BANNED)
    _require_canonical(signature)
    if not is_signed_by(registered.address, state.domain, vote, signature):
        if vote.kind is VoteKind.REQUEST:
            raise ProtocolRefusal(RefusalCode.REQUEST_NOT_SIGNED)
        raise ProtocolRefusal(RefusalCode.REPLY_NOT_SIGNED)


def _require_canonical(signature: bytes) -> None:
    if int.from_bytes(signature[32:64]) > GROUP_ORDER // 2:
        raise ProtocolRefusal(RefusalCode.SIGNATURE_NOT_CANONICAL)


def _beacon(state: LedgerState, block: BlockContext) -> Digest:
    return block.parent_hash if state.deployment.beacon is Beacon.BLOCK else NO_DIGEST
