"""The executable specification by itself: each transition's success, and its refusals by pencil.

That the contract does the same is tested beside the contract.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ledger.protocol import encoding, errors, ledger_state, rounds
from ledger.protocol.consensus import primary_place
from ledger.protocol.ledger_state import BlockContext, Stage
from ledger.protocol.parameters import Parameters
from ledger.protocol.selection import rank
from ledger.protocol.signing import sign
from ledger.protocol.types import (
    NO_DIGEST,
    Beacon,
    ClientId,
    Commitment,
    Digest,
    Phase,
    Strategy,
    Vote,
    VoteKind,
)
from tests.protocol.support import DOMAIN, ids, malleated, registry_of, signers

if TYPE_CHECKING:
    from collections.abc import Iterable

# Members are clients 0, 1 and 2 by these places; clients 3 to 8 train. A quorum is two replies.
PARAMETERS = Parameters(
    clients=9,
    active_rate=1.0,
    committee_rate=0.33,
    aggregation_rate=0.5,
    rounds=2,
    dimension=1,
    deadline_blocks=10,
)
CONFIG = encoding.sha256(b"configuration")
MODEL = encoding.sha256(b"w_1")
BLOCK = BlockContext(7, Digest(b"\xaa" * 32))
REGISTRY = registry_of(9)


def fresh(parameters: Parameters = PARAMETERS) -> ledger_state.LedgerState:
    """Return the ledger after its constructor."""
    deployment, _ = ledger_state.deployment_of(parameters, CONFIG, REGISTRY, ids(0, 1, 2), MODEL)
    return rounds.deployed(deployment, DOMAIN)


def opened(parameters: Parameters = PARAMETERS) -> ledger_state.LedgerState:
    """Return the ledger in round 1, opened in block 7."""
    words = [encoding.registry_word(client) for client in REGISTRY]
    return rounds.register_clients(fresh(parameters), words, NO_DIGEST, BLOCK)[0]


def signed(
    client: int, key: int | None = None, round_number: int = 1
) -> tuple[ClientId, Digest, bytes]:
    """Return a client's signed commitment."""
    payload = encoding.sha256(b"update of %d" % client)
    commitment = Commitment(round_number, ClientId(client), payload)
    signature = sign(signers()[client if key is None else key], DOMAIN, commitment)
    return ClientId(client), payload, signature


def committed(
    clients: Iterable[int] = range(3, 9), parameters: Parameters = PARAMETERS
) -> ledger_state.LedgerState:
    """Return round 1 with these clients' commitments."""
    return rounds.commit_updates(opened(parameters), 1, [signed(c) for c in clients])[0]


# Trainers 3 to 8 at distances 1 to 6: half are accepted, 3, 4, 5; the middle three are 4, 5, 6.
RANKING = rank((ClientId(3 + place), 1.0 + place) for place in range(6))
DECISION = ledger_state.SubmittedDecision(
    committee=ids(0, 1, 2),
    ranking=RANKING,
    model=encoding.sha256(b"w_2"),
    updates_root=encoding.sha256(b"updates"),
    scores_root=encoding.sha256(b"scores"),
    threshold_bits=0,
    record=encoding.sha256(b"record"),
)


def result_of(decision: ledger_state.SubmittedDecision) -> Digest:
    return encoding.aggregation_result(
        decision.model,
        decision.updates_root,
        decision.scores_root,
        encoding.ranking_digest(decision.ranking),
        decision.threshold_bits,
    )


def certificate(
    state: ledger_state.LedgerState, phase: Phase, set_digest: Digest, result: Digest, view: int = 0
) -> ledger_state.SubmittedCertificate:
    """Return the certificate that all three members sign."""
    place = primary_place(state.seed, phase, view, 3)
    vote = Vote(VoteKind.REQUEST, state.round, phase, view, 1_700_000_000, set_digest, result)
    others = [other for other in range(3) if other != place]
    reply = replace(vote, kind=VoteKind.REPLY)
    keys = [signers()[member] for member in state.committee]
    return ledger_state.SubmittedCertificate(
        view,
        vote.timestamp,
        set_digest,
        sign(keys[place], DOMAIN, vote),
        sum(1 << other for other in others),
        tuple(sign(keys[other], DOMAIN, reply) for other in others),
    )


Pair = tuple[ledger_state.SubmittedCertificate, ledger_state.SubmittedCertificate]


def certificates(
    state: ledger_state.LedgerState,
    decision: ledger_state.SubmittedDecision = DECISION,
    accepted: tuple[int, ...] = (3, 4, 5),
    next_committee: tuple[int, ...] = (4, 5, 6),
) -> Pair:
    sets = [encoding.set_digest(ids(*clients)) for clients in (accepted, next_committee)]
    return (
        certificate(state, Phase.AGGREGATION, sets[0], result_of(decision)),
        certificate(state, Phase.ELECTION, sets[1], NO_DIGEST),
    )


def decided(
    state: ledger_state.LedgerState,
    decision: ledger_state.SubmittedDecision = DECISION,
    pair: Pair | None = None,
) -> ledger_state.Step:
    return rounds.decide(state, 1, decision, pair or certificates(state, decision), BLOCK)


def test_a_deployment_fixes_its_clients_by_digest() -> None:
    deployment, batches = ledger_state.deployment_of(
        PARAMETERS, CONFIG, REGISTRY, ids(0, 1, 2), MODEL
    )
    (batch,) = batches
    words = tuple(encoding.registry_word(client) for client in REGISTRY)
    assert batch == (words, NO_DIGEST)
    assert deployment.registry == encoding.registry_digest(words, NO_DIGEST)
    assert (deployment.clients, deployment.trainers, deployment.members) == (9, 6, 3)
    assert deployment.aggregation_ppm == 500_000


def test_many_clients_are_registered_in_batches_of_256() -> None:
    many = replace(PARAMETERS, clients=600, active_rate=0.02)
    registry = [replace(REGISTRY[0], samples=1 + i) for i in range(600)]
    deployment, batches = ledger_state.deployment_of(many, CONFIG, registry, ids(0, 1, 2), MODEL)
    assert [len(words) for words, _ in batches] == [256, 256, 88]
    assert deployment.registry == encoding.registry_digest(*batches[0])
    assert batches[0][1] == encoding.registry_digest(*batches[1])
    assert batches[2][1] == NO_DIGEST


def test_the_last_batch_opens_round_one() -> None:
    words = [encoding.registry_word(client) for client in REGISTRY]
    rest = encoding.registry_digest(words[4:], NO_DIGEST)
    start = fresh()
    state = replace(start, registry_rest=encoding.registry_digest(words[:4], rest))
    state, events = rounds.register_clients(state, words[:4], rest, BLOCK)
    assert events == (ledger_state.ClientsRegistered(ClientId(0), tuple(words[:4])),)
    assert (state.stage, state.round) == (Stage.REGISTERING, 0)
    state, events = rounds.register_clients(state, words[4:], NO_DIGEST, BLOCK)
    seed = encoding.first_seed(CONFIG, NO_DIGEST)
    assert events == (
        ledger_state.ClientsRegistered(ClientId(4), tuple(words[4:])),
        ledger_state.LedgerOpened(CONFIG, seed, ids(0, 1, 2), MODEL),
    )
    assert (state.stage, state.round, state.opened_block) == (Stage.OPEN, 1, 7)
    assert state.registry == REGISTRY
    assert (state.seed, state.head, state.model) == (seed, CONFIG, MODEL)
    with pytest.raises(errors.NotRegisteringError):
        rounds.register_clients(state, words, NO_DIGEST, BLOCK)


def test_a_beacon_of_the_block_flows_into_every_seed() -> None:
    state = opened(replace(PARAMETERS, beacon=Beacon.BLOCK))
    assert state.seed == encoding.first_seed(CONFIG, BLOCK.parent_hash)
    late = BlockContext(17, Digest(b"\xbb" * 32))
    _, (event,) = rounds.abandon_round(state, 1, late)
    assert isinstance(event, ledger_state.RoundAbandoned)
    assert event.next_seed == encoding.seed_after_abandoned(state.seed, late.parent_hash)


WORDS = [encoding.registry_word(client) for client in REGISTRY]


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (WORDS[:8], errors.RegistryEndError),
        ([*WORDS, WORDS[8] + (1 << 64)], errors.RegistryEndError),
        ([*WORDS[:8], WORDS[8] >> 64 << 64], errors.MalformedClientError),
        ([*WORDS[:8], WORDS[8] | 1 << 224], errors.MalformedClientError),
        ([*WORDS[:8], WORDS[8] | 1 << 255], errors.MalformedClientError),
        ([*WORDS[:7], WORDS[8], WORDS[7]], errors.ClientsNotAscendingError),
        ([*WORDS[:8], WORDS[7]], errors.ClientsNotAscendingError),
        ([1, *WORDS[1:]], errors.ClientsNotAscendingError),  # address zero
    ],
)
def test_a_registry_that_is_none_is_refused(
    words: list[int], refusal: type[errors.Refusal]
) -> None:
    state = replace(fresh(), registry_rest=encoding.registry_digest(words, NO_DIGEST))
    with pytest.raises(refusal):
        rounds.register_clients(state, words, NO_DIGEST, BLOCK)


def test_other_clients_than_those_fixed_are_refused() -> None:
    with pytest.raises(errors.RegistryMismatchError):
        rounds.register_clients(fresh(), [*WORDS[:8], WORDS[8] + 1], NO_DIGEST, BLOCK)
    with pytest.raises(errors.RegistryMismatchError):
        rounds.register_clients(fresh(), WORDS, Digest(b"\1" * 32), BLOCK)


def test_commitments_are_taken_in_order() -> None:
    entries = [signed(5), signed(3)]
    state, events = rounds.commit_updates(opened(), 1, entries)
    payloads = tuple(payload for _, payload, _ in entries)
    assert events == (ledger_state.UpdatesCommitted(1, ids(5, 3), payloads),)
    assert state.committed == {5, 3}
    assert state.commitments == encoding.commitments_chain(zip(ids(5, 3), payloads, strict=True))
    more, _ = rounds.commit_updates(state, 1, [signed(4)])
    assert more.committed == {3, 4, 5}


def test_a_commitment_that_does_not_hold_is_refused() -> None:
    client, payload, signature = signed(3)
    banned = list(REGISTRY)
    banned[3] = replace(REGISTRY[3], banned=True)
    cases: list[tuple[type[errors.Refusal], ledger_state.LedgerState, list[object]]] = [
        (errors.NoCommitmentsError, opened(), []),
        (errors.UnknownClientError, opened(), [(ClientId(9), payload, signature)]),
        (errors.ClientBannedError, replace(opened(), registry=tuple(banned)), [signed(3)]),
        (errors.RepeatedCommitmentError, opened(), [signed(3), signed(3)]),
        (errors.RepeatedCommitmentError, committed([3]), [signed(3)]),
        (errors.SignatureNotCanonicalError, opened(), [(client, payload, malleated(signature))]),
        (errors.CommitmentNotSignedError, opened(), [signed(3, key=4)]),
        (errors.CommitmentNotSignedError, opened(), [signed(3, round_number=2)]),
        (errors.CommitmentNotSignedError, opened(), [(client, NO_DIGEST, signature)]),
        (errors.CommitmentNotSignedError, opened(), [(client, payload, signature[:64] + b"\0")]),
        (errors.NoRoundOpenError, fresh(), [signed(3)]),
    ]
    for refusal, state, entries in cases:
        with pytest.raises(refusal):
            rounds.commit_updates(state, 1, entries)  # type: ignore[arg-type]
    with pytest.raises(errors.WrongRoundError):
        rounds.commit_updates(opened(), 2, [signed(3)])


def test_a_decision_is_recorded_and_the_elected_committee_takes_over() -> None:
    before = committed()
    pair = certificates(before)
    state, (event,) = decided(before)
    sets = (pair[0].set_digest, pair[1].set_digest)
    result = result_of(DECISION)
    seed = encoding.next_seed(before.seed, sets[0], result, sets[1], NO_DIGEST)
    head = encoding.head_after_decision(CONFIG, 1, before.seed, before.commitments, (*sets, result))
    places = [primary_place(before.seed, phase, 0, 3) for phase in Phase]
    assert event == ledger_state.RoundDecided(
        round=1,
        ranking=RANKING,
        accepted=ids(3, 4, 5),
        next_committee=ids(4, 5, 6),
        model=DECISION.model,
        updates_root=DECISION.updates_root,
        scores_root=DECISION.scores_root,
        threshold_bits=0,
        record=DECISION.record,
        views=(0, 0),
        primaries=(ClientId(places[0]), ClientId(places[1])),
        signers=(0b111 ^ 1 << places[0], 0b111 ^ 1 << places[1]),
        next_seed=seed,
        head=head,
    )
    assert (state.round, state.stage, state.committee) == (2, Stage.OPEN, ids(4, 5, 6))
    assert (state.seed, state.head, state.model) == (seed, head, DECISION.model)
    assert (state.committed, state.commitments) == (frozenset(), NO_DIGEST)


def test_after_the_last_round_nothing_is_taken() -> None:
    state, _ = decided(committed(parameters=replace(PARAMETERS, rounds=1)))
    assert (state.stage, state.round) == (Stage.FINISHED, 1)
    with pytest.raises(errors.NoRoundOpenError):
        rounds.commit_updates(state, 1, [signed(3)])
    with pytest.raises(errors.NoRoundOpenError):
        rounds.abandon_round(state, 1, BlockContext(99, NO_DIGEST))


@pytest.mark.parametrize(
    ("strategy", "threshold", "accepted"),
    [
        (Strategy.FARTHEST, 0.0, (6, 7, 8)),
        (Strategy.WITHIN_SPREAD, 4.0, (3, 4, 5, 6)),
        (Strategy.WITHIN_SPREAD, 0.5, (3, 4, 5)),
    ],
)
def test_the_accepted_set_is_derived_by_strategy(
    strategy: Strategy, threshold: float, accepted: tuple[int, ...]
) -> None:
    state = committed(parameters=replace(PARAMETERS, strategy=strategy))
    decision = replace(DECISION, threshold_bits=encoding.float_bits(threshold))
    _, (event,) = decided(state, decision, certificates(state, decision, accepted))
    assert isinstance(event, ledger_state.RoundDecided)
    assert event.accepted == ids(*accepted)


def word(client: int, distance: float) -> int:
    return encoding.ranking_word(distance, ClientId(client))


INFINITE = encoding.INFINITY_BITS << 32


@pytest.mark.parametrize(
    ("ranking", "refusal"),
    [
        ((*RANKING, word(0, 7.0)), errors.RankingTooLongError),
        (RANKING[:2], errors.RankingTooShortError),
        ((RANKING[1], RANKING[0], *RANKING[2:]), errors.RankingNotSortedError),
        ((RANKING[0], *RANKING[:4]), errors.RankingNotSortedError),
        ((word(4, 1.0), word(3, 1.0), RANKING[2]), errors.RankingNotSortedError),
        ((*RANKING[:3], word(9, 9.0)), errors.UnknownClientError),
        ((*RANKING[:3], word(2, 9.0)), errors.MemberRankedError),
        ((*RANKING[:3], word(3, 9.0)), errors.RepeatedClientError),
        ((*RANKING[:3], INFINITE | 8), errors.DistanceNotFiniteError),
        ((*RANKING[:3], word(8, 9.0) | 1 << 96), errors.DistanceNotFiniteError),
    ],
)
def test_a_ranking_that_is_none_is_refused(
    ranking: tuple[int, ...], refusal: type[errors.Refusal]
) -> None:
    with pytest.raises(refusal):
        decided(committed(), replace(DECISION, ranking=ranking))


def test_a_trainer_without_a_commitment_is_not_ranked() -> None:
    with pytest.raises(errors.NoCommitmentError):
        decided(committed(range(3, 8)))
    fewer = replace(DECISION, ranking=RANKING[:5])
    state = committed(range(3, 8))
    decided(state, fewer, certificates(state, fewer, (3, 4, 5), (4, 5, 6)))


def test_a_threshold_is_given_where_the_strategy_uses_one_and_only_there() -> None:
    with pytest.raises(errors.ThresholdUnusedError):
        decided(committed(), replace(DECISION, threshold_bits=1))
    spread = committed(parameters=replace(PARAMETERS, strategy=Strategy.WITHIN_SPREAD))
    infinite = replace(DECISION, threshold_bits=encoding.INFINITY_BITS)
    with pytest.raises(errors.ThresholdNotFiniteError):
        decided(spread, infinite)
    largest = replace(DECISION, threshold_bits=encoding.INFINITY_BITS - 1)
    decided(spread, largest, certificates(spread, largest, (3, 4, 5, 6, 7, 8)))


def test_what_does_not_follow_from_the_ranking_is_refused_however_well_signed() -> None:
    state = committed()
    with pytest.raises(errors.WrongCommitteeError):
        decided(state, replace(DECISION, committee=ids(1, 0, 2)))
    with pytest.raises(errors.WrongAggregationSetError):
        decided(state, pair=certificates(state, accepted=(3, 4, 6)))
    with pytest.raises(errors.WrongAggregationSetError):
        decided(state, pair=certificates(state, accepted=(4, 3, 5)))
    with pytest.raises(errors.WrongNextCommitteeError):
        decided(state, pair=certificates(state, next_committee=(3, 4, 5)))


def test_a_decision_is_of_the_open_round() -> None:
    state = committed()
    with pytest.raises(errors.WrongRoundError):
        rounds.decide(state, 2, DECISION, certificates(state), BLOCK)
    with pytest.raises(errors.NoRoundOpenError):
        rounds.decide(fresh(), 0, DECISION, certificates(state), BLOCK)


def test_a_certificate_that_does_not_hold_is_refused() -> None:
    state = committed()
    good, election = certificates(state)
    place = primary_place(state.seed, Phase.AGGREGATION, 0, 3)
    view = next(v for v in range(9) if primary_place(state.seed, Phase.AGGREGATION, v, 3) != place)
    swapped = good.replies[::-1]
    cases: list[tuple[type[errors.Refusal], ledger_state.SubmittedCertificate]] = [
        (errors.RequestNotSignedError, replace(good, timestamp=good.timestamp + 1)),
        (errors.RequestNotSignedError, replace(good, view=view)),
        (errors.RequestNotSignedError, replace(good, request=good.replies[0])),
        (errors.SignatureNotCanonicalError, replace(good, request=malleated(good.request))),
        (errors.SignersOutOfRangeError, replace(good, signers=good.signers | 0b1000)),
        (errors.PrimaryRepliesError, replace(good, signers=0b111)),
        (errors.QuorumNotReachedError, replace(good, replies=good.replies[:1])),
        (errors.ReplyNotSignedError, replace(good, replies=swapped)),
        (errors.ReplyNotSignedError, replace(good, replies=(good.request, good.replies[1]))),
        (errors.SignatureNotCanonicalError, replace(good, replies=(malleated(swapped[0]),) * 2)),
        (errors.SignatureCountError, replace(good, replies=(*good.replies, good.replies[0]))),
    ]
    for refusal, bad in cases:
        with pytest.raises(refusal):
            decided(state, pair=(bad, election))
    with pytest.raises(errors.WrongNextCommitteeError):
        decided(state, pair=(good, good))
    other = certificate(state, Phase.ELECTION, election.set_digest, MODEL)
    with pytest.raises(errors.RequestNotSignedError):
        decided(state, pair=(good, other))


def test_fewer_signers_than_signatures_do_not_pass_for_a_quorum() -> None:
    five = Parameters(11, 1.0, 0.45, 0.5, 1, 1)
    registry = registry_of(11)
    deployment, ((words, rest),) = ledger_state.deployment_of(
        five, CONFIG, registry, ids(0, 1, 2, 3, 4), MODEL
    )
    state, _ = rounds.register_clients(rounds.deployed(deployment, DOMAIN), words, rest, BLOCK)
    state, _ = rounds.commit_updates(state, 1, [signed(client) for client in range(5, 11)])
    ranking = rank((ClientId(5 + place), 1.0 + place) for place in range(6))
    decision = replace(DECISION, committee=ids(0, 1, 2, 3, 4), ranking=ranking)
    place = primary_place(state.seed, Phase.AGGREGATION, 0, 5)
    vote = Vote(
        VoteKind.REQUEST,
        1,
        Phase.AGGREGATION,
        0,
        5,
        encoding.set_digest(ids(5, 6, 7)),
        result_of(decision),
    )
    reply = replace(vote, kind=VoteKind.REPLY)
    others = [other for other in range(5) if other != place]
    replies = tuple(sign(signers()[other], DOMAIN, reply) for other in others)
    request = sign(signers()[place], DOMAIN, vote)
    for count in range(4):
        signing = sum(1 << other for other in others[:count])
        bad = ledger_state.SubmittedCertificate(
            0, 5, vote.set_digest, request, signing, replies[:3]
        )
        refusal = errors.WrongNextCommitteeError if count == 3 else errors.SignatureCountError
        with pytest.raises(refusal):
            rounds.decide(state, 1, decision, (bad, bad), BLOCK)
    four = sum(1 << other for other in others)
    short = ledger_state.SubmittedCertificate(0, 5, vote.set_digest, request, four, replies[:3])
    with pytest.raises(errors.SignatureCountError):
        rounds.decide(state, 1, decision, (short, short), BLOCK)


def test_a_banned_members_vote_does_not_count() -> None:
    state = committed()
    for member in range(3):
        registry = list(state.registry)
        registry[member] = replace(registry[member], banned=True)
        with pytest.raises(errors.MemberBannedError):
            decided(replace(state, registry=tuple(registry)))


def test_a_round_is_abandoned_at_its_deadline_and_not_before() -> None:
    state = committed()
    with pytest.raises(errors.DeadlineNotReachedError):
        rounds.abandon_round(state, 1, BlockContext(16, NO_DIGEST))
    with pytest.raises(errors.WrongRoundError):
        rounds.abandon_round(state, 2, BlockContext(17, NO_DIGEST))
    after, (event,) = rounds.abandon_round(state, 1, BlockContext(17, NO_DIGEST))
    assert isinstance(event, ledger_state.RoundAbandoned)
    seed = encoding.seed_after_abandoned(state.seed, NO_DIGEST)
    digest = encoding.set_digest(event.next_committee)
    assert len(set(event.next_committee)) == 3
    assert event.next_seed == after.seed == seed
    assert event.head == encoding.head_after_abandoned(
        CONFIG, 1, state.seed, state.commitments, digest
    )
    assert (after.round, after.model, after.committed) == (2, MODEL, frozenset())
    assert after.opened_block == 17
    assert after.committee == event.next_committee


def test_without_three_clients_left_the_ledger_ends() -> None:
    banned = tuple(replace(client, banned=i > 1) for i, client in enumerate(REGISTRY))
    state = replace(opened(), registry=banned)
    after, (event,) = rounds.abandon_round(state, 1, BlockContext(17, NO_DIGEST))
    assert isinstance(event, ledger_state.RoundAbandoned)
    assert set(event.next_committee) == {0, 1}
    assert after.stage is Stage.FINISHED


def votes(client: int, kind: VoteKind = VoteKind.REPLY) -> list[tuple[Vote, bytes]]:
    """Return two different signed votes for one slot."""
    found = [
        Vote(kind, 1, Phase.ELECTION, 3, 5, encoding.sha256(text), NO_DIGEST)
        for text in (b"one", b"other")
    ]
    return [(vote, sign(signers()[client], DOMAIN, vote)) for vote in found]


@pytest.mark.parametrize("kind", VoteKind)
def test_two_different_votes_ban_their_signer(kind: VoteKind) -> None:
    state, (event,) = rounds.report_equivocation(committed(), ClientId(3), *votes(3, kind))
    head = encoding.head_after_ban(CONFIG, 1, ClientId(3))
    assert event == ledger_state.ClientBanned(1, ClientId(3), head)
    assert state.head == head
    assert [client.banned for client in state.registry] == [i == 3 for i in range(9)]
    assert 3 not in state.committed
    with pytest.raises(errors.ClientBannedError):
        rounds.report_equivocation(state, ClientId(3), *votes(3, kind))
    with pytest.raises(errors.NoCommitmentError):
        decided(state)


def test_an_accusation_without_proof_is_refused() -> None:
    first, second = votes(0)
    malleable = (second[0], malleated(second[1]))
    state = opened()
    cases: list[tuple[type[errors.Refusal], ledger_state.LedgerState, int, tuple[Vote, bytes]]] = [
        (errors.NoRoundOpenError, fresh(), 0, second),
        (errors.UnknownClientError, state, 9, second),
        (errors.VotesEqualError, state, 0, first),
        (errors.VoteNotSignedError, state, 1, second),
        (errors.VoteNotSignedError, state, 0, votes(1)[1]),
        (errors.SignatureNotCanonicalError, state, 0, malleable),
    ]
    for refusal, before, client, other in cases:
        with pytest.raises(refusal):
            rounds.report_equivocation(before, ClientId(client), first, other)


@pytest.mark.parametrize(
    "other", [{"view": 4}, {"round": 2}, {"phase": Phase.AGGREGATION}, {"kind": VoteKind.REQUEST}]
)
def test_votes_of_different_slots_are_no_equivocation(other: dict[str, object]) -> None:
    first, (vote, signature) = votes(0)
    moved = replace(vote, **other)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not of one kind, round, phase and view"):
        rounds.report_equivocation(opened(), ClientId(0), first, (moved, signature))
