"""The executable specification of the contract: its five transitions.

Every function takes the state and a transaction's arguments and returns the next state and the
events, or raises the `ProtocolRefusal` that the contract reverts with. Guards are in the contract's
order. `contracts/committee_ledger.vy` is the twin of this file; a Hypothesis state machine drives
both side by side. `ledger_state.py` has the events and gives the state that follows them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace

from ledger.protocol import encoding
from ledger.protocol.errors import ProtocolRefusal, RefusalCode
from ledger.protocol.inputs import drawn_committee, primary_seat, window_end
from ledger.protocol.judgement import sets_of
from ledger.protocol.ledger_state import (
    BlockContext,
    ClientBanned,
    ClientsRegistered,
    Deployment,
    EquivocationReport,
    Event,
    HeadEvent,
    LedgerOpened,
    LedgerStage,
    LedgerState,
    RoundAbandoned,
    RoundDecided,
    SubmittedCertificate,
    SubmittedDecision,
    UpdatesCommitted,
)
from ledger.protocol.signing import GROUP_ORDER, Message, is_signed_by
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
    return LedgerState.at_deployment(deployment, domain=domain, registry_rest=deployment.registry)


def register_clients(
    state: LedgerState, words: Sequence[int], rest: Digest, block: BlockContext
) -> Step:
    """Register the next batch of the clients that the deployment fixed; the last opens round 1."""
    deployment = state.deployment
    _require_account(block)
    _require(state.stage is LedgerStage.REGISTERING, RefusalCode.NOT_REGISTERING)
    digest, count = encoding.registry_digest(words, rest), len(state.registry) + len(words)
    _require(digest == state.registry_rest, RefusalCode.REGISTRY_MISMATCH)
    is_end = (rest == NO_DIGEST) == (count == deployment.clients)
    _require(count <= deployment.clients and is_end, RefusalCode.REGISTRY_END)
    previous = int.from_bytes(state.registry[-1].address) if state.registry else 0
    for word in words:
        has_samples = word & 0xFFFF_FFFF_FFFF_FFFF > 0
        _require(word >> 224 == 0 and has_samples, RefusalCode.MALFORMED_CLIENT)
        _require(word >> 64 > previous, RefusalCode.CLIENTS_NOT_ASCENDING)
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
    """Accept signed commitments; a client's second one is skipped, and spoils no batch."""
    _require_account(block)
    _require_open(state, round_number)
    last = window_end(state.deployment, state.opened_block)
    _require(block.number <= last, RefusalCode.COMMITMENTS_CLOSED)
    _require(len(signed) > 0, RefusalCode.NO_COMMITMENTS)
    committed = set(state.committed)
    named = [entry.commitment.client for entry in signed]
    banned = _banned(state, [c for c in named if c < state.deployment.clients])
    accepted: list[tuple[ClientId, Digest]] = []
    for client, entry in zip(named, signed, strict=True):
        _require(client < state.deployment.clients, RefusalCode.UNKNOWN_CLIENT)
        _require(client not in banned, RefusalCode.CLIENT_BANNED)
        if client in committed:
            continue
        commitment = replace(entry.commitment, round=round_number)
        code = RefusalCode.COMMITMENT_NOT_SIGNED
        _require_signed(state, state.registry[client], commitment, entry.signature, code)
        committed.add(client)
        accepted.append((client, commitment.commitment))
    _require(len(accepted) > 0, RefusalCode.NOTHING_TAKEN)
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
    _require(decision.committee == state.committee, RefusalCode.WRONG_COMMITTEE)
    _require_ranking(state, ranking, block)
    derived = sets_of(state.deployment, ranking)
    result = encoding.aggregation_result(decision.opening())
    sets = (encoding.set_digest(derived.accepted), encoding.set_digest(derived.candidates))
    inputs = (decision.base, result)
    _require(certificates[0].set_digest == sets[0], RefusalCode.WRONG_AGGREGATION_SET)
    first = _require_certificate(state, Phase.AGGREGATION, certificates[0], *inputs)
    _require(certificates[1].set_digest == sets[1], RefusalCode.WRONG_CANDIDATES)
    second = _require_certificate(state, Phase.ELECTION, certificates[1], *inputs)
    seed = encoding.next_seed(state.seed, decision.reveal, _beacon(state, block))
    shared = {field.name: getattr(decision, field.name) for field in fields(decision)}
    del shared["committee"]
    event = RoundDecided(
        round=round_number,
        accepted=derived.accepted,
        next_committee=derived.elected(state.deployment.members, seed),
        views=(certificates[0].view, certificates[1].view),
        primaries=(first, second),
        signers=(certificates[0].signers, certificates[1].signers),
        next_seed=seed,
        head=NO_DIGEST,
        **shared,
    )
    return _with_head(state, event, block)


def abandon_round(state: LedgerState, round_number: int, block: BlockContext) -> Step:
    """End an undecided round after its deadline; the model stays, a committee is drawn."""
    _require_account(block)
    _require_open(state, round_number)
    deadline = state.opened_block + state.deployment.deadline_blocks
    _require(block.number >= deadline, RefusalCode.DEADLINE_NOT_REACHED)
    seed = encoding.seed_after_abandoned(state.seed, _beacon(state, block))
    banned = {ClientId(i) for i, client in enumerate(state.registry) if client.banned_in}
    deployment = state.deployment
    committee = drawn_committee(seed, deployment.clients, deployment.members, banned)
    return _with_head(state, RoundAbandoned(round_number, committee, seed, NO_DIGEST), block)


def report_equivocation(
    state: LedgerState, report: EquivocationReport, block: BlockContext
) -> Step:
    """Ban a client that signed two different statements for one place, from the next round on.

    Membership is not checked: an honest client signs a vote or a vector only as a member. A proof
    is still accepted after the last round, and then changes the head alone.
    """
    _require_account(block)
    _require(state.stage is not LedgerStage.REGISTERING, RefusalCode.NOT_OPENED)
    client = report.client
    _require(client < state.deployment.clients, RefusalCode.UNKNOWN_CLIENT)
    accused = state.registry[client]
    _require(not accused.banned_in, RefusalCode.CLIENT_BANNED)
    first, second = report.first.statement, report.second.statement
    _require(first != second, RefusalCode.STATEMENTS_EQUAL)
    if isinstance(first, Scores) and isinstance(second, Scores):
        _require(first.clients == second.clients, RefusalCode.SCORES_DIFFER)
    for each in (report.first, report.second):
        code = RefusalCode.STATEMENT_NOT_SIGNED
        _require_signed(state, accused, each.statement, each.signature, code)
    return _with_head(state, ClientBanned(state.round, client, NO_DIGEST), block)


def _with_head(state: LedgerState, event: HeadEvent, block: BlockContext) -> Step:
    event = replace(event, head=state.head_after(event))
    return state.after(event, block.number), (event,)


def _require(holds: bool, code: RefusalCode) -> None:
    if not holds:
        raise ProtocolRefusal(code)


def _require_account(block: BlockContext) -> None:
    """Refuse a transaction from a contract or a delegated account: votes are in call data."""
    _require(block.sent_by_account, RefusalCode.NOT_SENT_BY_ACCOUNT)
    _require(not block.is_delegated, RefusalCode.DELEGATED_ACCOUNT)


def _require_open(state: LedgerState, round_number: int) -> None:
    _require(state.stage is LedgerStage.OPEN, RefusalCode.NO_ROUND_OPEN)
    _require(round_number == state.round, RefusalCode.WRONG_ROUND)


def _require_ranking(state: LedgerState, ranking: Sequence[int], block: BlockContext) -> None:
    deployment = state.deployment
    _require(len(ranking) <= deployment.trainers, RefusalCode.RANKING_TOO_LONG)
    _require(len(ranking) >= deployment.members, RefusalCode.RANKING_TOO_SHORT)
    if block.number <= window_end(deployment, state.opened_block):  # no client is late yet
        _require(len(ranking) >= deployment.trainers, RefusalCode.RANKING_TOO_EARLY)
    members, committed = set(state.committee), state.committed
    ranked, previous = set[int](), -1
    clients = list(map(encoding.word_client, ranking))
    for word, client in zip(ranking, clients, strict=True):
        _require(word > previous, RefusalCode.RANKING_NOT_SORTED)
        _require(client < deployment.clients, RefusalCode.UNKNOWN_CLIENT)
        _require(client not in members, RefusalCode.MEMBER_RANKED)
        _require(client not in ranked, RefusalCode.REPEATED_CLIENT)
        _require(client in committed, RefusalCode.NO_COMMITMENT)
        ranked.add(client)
        previous = word
    # The words ascend, so the last distance bounds them all.
    _require(previous >> 32 < encoding.INFINITY_BITS, RefusalCode.DISTANCE_NOT_FINITE)


def _require_certificate(
    state: LedgerState,
    phase: Phase,
    certificate: SubmittedCertificate,
    base: Digest,
    result: Digest,
) -> ClientId:
    committee, signers = state.committee, certificate.signers
    banned = _banned(state, committee)
    place = primary_seat(state.seed, phase, certificate.view, len(committee))
    what = certificate.view, base, certificate.set_digest, result
    request = Vote(VoteKind.REQUEST, state.round, phase, *what)
    _require_vote(state, banned, committee[place], request, certificate.request)
    _require(signers >> len(committee) == 0, RefusalCode.SIGNERS_OUT_OF_RANGE)
    _require(signers >> place & 1 == 0, RefusalCode.PRIMARY_REPLIES)
    _require(len(certificate.replies) >= state.deployment.replies, RefusalCode.QUORUM_NOT_REACHED)
    reply = replace(request, kind=VoteKind.REPLY)
    signed = iter(certificate.replies)
    for member in range(len(committee)):
        if signers >> member & 1:
            signature = next(signed, None)
            if signature is None:
                raise ProtocolRefusal(RefusalCode.SIGNATURE_COUNT)
            _require_vote(state, banned, committee[member], reply, signature)
    _require(next(signed, None) is None, RefusalCode.SIGNATURE_COUNT)
    return committee[place]


def _banned(state: LedgerState, clients: Iterable[ClientId]) -> set[ClientId]:
    return {client for client in clients if state.registry[client].is_banned_in(state.round)}


def _require_vote(
    state: LedgerState, banned: set[ClientId], member: ClientId, vote: Vote, signature: bytes
) -> None:
    _require(member not in banned, RefusalCode.MEMBER_BANNED)
    is_request = vote.kind is VoteKind.REQUEST
    code = RefusalCode.REQUEST_NOT_SIGNED if is_request else RefusalCode.REPLY_NOT_SIGNED
    _require_signed(state, state.registry[member], vote, signature, code)


def _require_signed(
    state: LedgerState,
    client: encoding.RegisteredClient,
    message: Message,
    signature: bytes,
    code: RefusalCode,
) -> None:
    is_canonical = int.from_bytes(signature[32:64]) <= GROUP_ORDER // 2
    _require(is_canonical, RefusalCode.SIGNATURE_NOT_CANONICAL)
    _require(is_signed_by(client.address, state.domain, message, signature), code)


def _beacon(state: LedgerState, block: BlockContext) -> Digest:
    return block.parent_hash if state.deployment.beacon is Beacon.BLOCK else NO_DIGEST
