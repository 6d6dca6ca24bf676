"""The executable specification by itself: each transition's success, and its refusals by pencil."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from ledger.protocol import encoding, ledger_state, rounds
from ledger.protocol.errors import RefusalCode
from ledger.protocol.inputs import drawn_committee, primary_seat
from ledger.protocol.ledger_state import (
    AbandonmentLink,
    BanLink,
    BlockContext,
    DecisionLink,
    EquivocationReport,
    LedgerStage,
    LedgerState,
    MinedCommitment,
    SignedStatement,
    StatementKind,
    SubmittedCertificate,
    SubmittedDecision,
    submitted_certificate,
)
from ledger.protocol.parameters import Parameters
from ledger.protocol.rules.selection import rank
from ledger.protocol.types import NO_DIGEST, Beacon, ClientId, Digest, Phase, SignedCommitment
from tests.protocol.support import BASE, PENCIL, registry_of, signers
from tests.support.keys import DOMAIN, ids, mirrored
from tests.support.refusals import refused
from tests.support.rounds import OpenRound

CONFIG = encoding.sha256(b"configuration")
MODEL = encoding.sha256(b"w_1")
REGISTRY = registry_of(9)
WORDS = [encoding.registry_word(client) for client in REGISTRY]

# Registered in block 7; commitments are taken in blocks 8 to 11, a round is abandoned from 17 on.
OPENED = BlockContext(7, Digest(b"\xaa" * 32))
IN_TIME = BlockContext(11, Digest(b"\xbb" * 32))
LATE = BlockContext(12, Digest(b"\xcc" * 32))
DEADLINE = BlockContext(17, Digest(b"\xdd" * 32))

SEED_1 = encoding.first_seed(CONFIG, NO_DIGEST)
COMMITTEE = drawn_committee(SEED_1, 9, 3, ())
TRAINERS = tuple(ClientId(i) for i in range(9) if i not in COMMITTEE)

# The trainers at distances 1 to 6: the first three are accepted, the middle three are elected.
RANKING = rank((client, 1.0 + place) for place, client in enumerate(TRAINERS))
ACCEPTED, ELECTED = TRAINERS[:3], TRAINERS[1:4]
DECISION = SubmittedDecision(
    committee=COMMITTEE,
    ranking=RANKING,
    base=BASE,
    model=encoding.sha256(b"w_2"),
    updates_root=encoding.sha256(b"updates"),
    scores_root=encoding.sha256(b"scores"),
    reveal=encoding.sha256(b"reveal"),
    record=encoding.sha256(b"record"),
    incidents=encoding.sha256(b"incidents"),
)


def fresh(parameters: Parameters = PENCIL) -> LedgerState:
    deployment, _ = ledger_state.deployment_of(parameters, CONFIG, REGISTRY, MODEL)
    return rounds.deployed(deployment, DOMAIN)


def opened(parameters: Parameters = PENCIL) -> LedgerState:
    """Return the ledger in round 1, opened in block 7."""
    return rounds.register_clients(fresh(parameters), WORDS, NO_DIGEST, OPENED)[0]


def signed(client: int, key: int | None = None, round_number: int = 1) -> SignedCommitment:
    word = encoding.commitment_of(ClientId(client), encoding.sha256(b"update of %d" % client))
    return OpenRound(DOMAIN, signers(), round_number).commitment(client, word, key=key)


def committed(clients: Iterable[int] = TRAINERS, parameters: Parameters = PENCIL) -> LedgerState:
    """Return round 1 with these clients' commitments."""
    return rounds.commit_updates(opened(parameters), 1, [signed(c) for c in clients], IN_TIME)[0]


def banned(state: LedgerState, *clients: int, banned_in: int) -> LedgerState:
    registry = tuple(
        replace(client, banned_in=banned_in if i in clients else 0)
        for i, client in enumerate(state.registry)
    )
    return replace(state, registry=registry)


def certificate(
    state: LedgerState, phase: Phase, set_digest: Digest, decision: SubmittedDecision, view: int = 0
) -> SubmittedCertificate:
    """Return the certificate that all members sign."""
    open_round = OpenRound.of(state, signers())
    result = encoding.aggregation_result(decision.opening())
    request = open_round.request(phase, view, decision.base, set_digest, result)
    others = [m for m in state.committee if m != open_round.primary(phase, view)]
    return submitted_certificate(open_round.certificate(request, others), state.committee)


Pair = tuple[SubmittedCertificate, SubmittedCertificate]


def certificates(
    state: LedgerState,
    decision: SubmittedDecision = DECISION,
    accepted: tuple[ClientId, ...] = ACCEPTED,
    elected: tuple[ClientId, ...] = ELECTED,
) -> Pair:
    sets = [encoding.set_digest(clients) for clients in (accepted, elected)]
    return (
        certificate(state, Phase.AGGREGATION, sets[0], decision),
        certificate(state, Phase.ELECTION, sets[1], decision),
    )


def decided(
    state: LedgerState,
    decision: SubmittedDecision = DECISION,
    pair: Pair | None = None,
    block: BlockContext = IN_TIME,
) -> rounds.Step:
    pair = pair or certificates(state, decision)
    return rounds.decide(state, state.round, decision, pair, block)


def mined(clients: Iterable[ClientId]) -> tuple[MinedCommitment, ...]:
    return tuple(MinedCommitment(IN_TIME.number, client, BASE) for client in clients)


def test_the_last_batch_opens_round_one_with_a_drawn_committee() -> None:
    rest = encoding.registry_digest(WORDS[4:], NO_DIGEST)
    state = replace(fresh(), registry_rest=encoding.registry_digest(WORDS[:4], rest))
    state, events = rounds.register_clients(state, WORDS[:4], rest, OPENED)
    assert events == (ledger_state.ClientsRegistered(ClientId(0), tuple(WORDS[:4])),)
    assert (state.stage, state.round) == (LedgerStage.REGISTERING, 0)
    state, events = rounds.register_clients(state, WORDS[4:], NO_DIGEST, OPENED)
    assert events == (
        ledger_state.ClientsRegistered(ClientId(4), tuple(WORDS[4:])),
        ledger_state.LedgerOpened(CONFIG, SEED_1, COMMITTEE, MODEL),
    )
    assert (state.stage, state.round, state.opened_block) == (LedgerStage.OPEN, 1, 7)
    assert (state.registry, state.committee) == (REGISTRY, COMMITTEE)
    assert (state.seed, state.head, state.model) == (SEED_1, CONFIG, MODEL)
    with refused(RefusalCode.NOT_REGISTERING):
        rounds.register_clients(state, WORDS, NO_DIGEST, OPENED)


def test_a_first_committee_that_cannot_be_drawn_finishes_the_ledger() -> None:
    # Three of nine are always found; a deployment of one client and three members shows the end.
    words = WORDS[:1]
    start = fresh()
    lone = replace(start.deployment, clients=1, registry=encoding.registry_digest(words, NO_DIGEST))
    state, (_, event) = rounds.register_clients(
        replace(start, deployment=lone, registry_rest=lone.registry), words, NO_DIGEST, OPENED
    )
    assert isinstance(event, ledger_state.LedgerOpened)
    assert event.committee == ids(0)
    assert (state.stage, state.round) == (LedgerStage.FINISHED, 1)
    with refused(RefusalCode.NO_ROUND_OPEN):
        rounds.commit_updates(state, 1, [signed(0)], IN_TIME)


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (WORDS[:8], RefusalCode.REGISTRY_END),
        ([*WORDS, WORDS[8] + (1 << 64)], RefusalCode.REGISTRY_END),
        ([*WORDS[:8], WORDS[8] >> 64 << 64], RefusalCode.MALFORMED_CLIENT),
        ([*WORDS[:8], WORDS[8] | 1 << 224], RefusalCode.MALFORMED_CLIENT),
        ([*WORDS[:8], WORDS[8] | 1 << 255], RefusalCode.MALFORMED_CLIENT),
        ([*WORDS[:7], WORDS[8], WORDS[7]], RefusalCode.CLIENTS_NOT_ASCENDING),
        ([*WORDS[:8], WORDS[7]], RefusalCode.CLIENTS_NOT_ASCENDING),
        ([1, *WORDS[1:]], RefusalCode.CLIENTS_NOT_ASCENDING),  # address zero
    ],
)
def test_a_registry_that_is_none_is_refused(words: list[int], refusal: RefusalCode) -> None:
    state = replace(fresh(), registry_rest=encoding.registry_digest(words, NO_DIGEST))
    with refused(refusal):
        rounds.register_clients(state, words, NO_DIGEST, OPENED)


def test_other_clients_than_those_fixed_are_refused() -> None:
    with refused(RefusalCode.REGISTRY_MISMATCH):
        rounds.register_clients(fresh(), [*WORDS[:8], WORDS[8] + 1], NO_DIGEST, OPENED)
    with refused(RefusalCode.REGISTRY_MISMATCH):
        rounds.register_clients(fresh(), WORDS, Digest(b"\1" * 32), OPENED)


def test_commitments_are_taken_up_to_the_windows_last_block() -> None:
    rounds.commit_updates(opened(), 1, [signed(3)], IN_TIME)
    with refused(RefusalCode.COMMITMENTS_CLOSED):
        rounds.commit_updates(opened(), 1, [signed(3)], LATE)


def test_one_that_is_taken_already_does_not_spoil_a_batch() -> None:
    once = committed([3])
    # Its signature is not even looked at: anybody could have sent it ahead, or spoiled it.
    again = replace(signed(3), signature=bytes(65))
    state, (event,) = rounds.commit_updates(once, 1, [again, signed(4), signed(4)], IN_TIME)
    assert isinstance(event, ledger_state.UpdatesCommitted)
    assert event.clients == ids(4)
    assert state.commitments == encoding.commitments_digest(
        once.commitments, ClientId(4), signed(4).commitment.commitment
    )
    with refused(RefusalCode.NOTHING_TAKEN):
        rounds.commit_updates(once, 1, [again, signed(3)], IN_TIME)


def test_only_clients_banned_before_the_round_cannot_commit() -> None:
    second = replace(opened(), round=2)
    entry = signed(3, round_number=2)
    rounds.commit_updates(banned(second, 3, banned_in=2), 2, [entry], IN_TIME)
    with refused(RefusalCode.CLIENT_BANNED):
        rounds.commit_updates(banned(second, 3, banned_in=1), 2, [entry], IN_TIME)
    taken = replace(second, mined=mined(ids(3)))
    with refused(RefusalCode.CLIENT_BANNED):  # also where it would be passed over
        rounds.commit_updates(banned(taken, 3, banned_in=1), 2, [entry], IN_TIME)


def test_a_batch_with_an_invalid_commitment_is_refused_whole() -> None:
    good = signed(4)
    three, four = signed(3).commitment, signed(4).commitment
    signature, unknown = signed(3).signature, replace(three, client=ClientId(9))
    cases: list[tuple[RefusalCode, SignedCommitment]] = [
        (RefusalCode.UNKNOWN_CLIENT, SignedCommitment(unknown, signature)),
        (RefusalCode.SIGNATURE_NOT_CANONICAL, SignedCommitment(three, mirrored(signature))),
        (RefusalCode.COMMITMENT_NOT_SIGNED, signed(3, key=4)),
        (RefusalCode.COMMITMENT_NOT_SIGNED, signed(3, round_number=2)),
        (
            RefusalCode.COMMITMENT_NOT_SIGNED,
            SignedCommitment(replace(three, commitment=four.commitment), signature),
        ),
        (RefusalCode.COMMITMENT_NOT_SIGNED, SignedCommitment(three, signature[:64] + b"\0")),
    ]
    rounds.commit_updates(opened(), 1, [good, signed(3)], IN_TIME)
    for refusal, bad in cases:
        with refused(refusal):
            rounds.commit_updates(opened(), 1, [good, bad], IN_TIME)


def test_commitments_are_for_the_open_round_and_not_none() -> None:
    with refused(RefusalCode.NO_COMMITMENTS):
        rounds.commit_updates(opened(), 1, [], IN_TIME)
    with refused(RefusalCode.WRONG_ROUND):
        rounds.commit_updates(opened(), 2, [signed(3)], IN_TIME)
    with refused(RefusalCode.NO_ROUND_OPEN):
        rounds.commit_updates(fresh(), 1, [signed(3)], IN_TIME)


def test_a_decision_is_recorded_and_the_elected_committee_takes_over() -> None:
    before = committed()
    pair = certificates(before)
    state, (event,) = decided(before)
    sets = (pair[0].set_digest, pair[1].set_digest)
    signatures = (pair[0].signers, pair[1].signers)
    votes = encoding.votes_digest((0, 0), signatures, DECISION.incidents)
    result = encoding.aggregation_result(DECISION.opening())
    link = DecisionLink(1, SEED_1, before.commitments, *sets, result, votes)
    head = link.head_after(CONFIG)
    seed = encoding.next_seed(SEED_1, DECISION.reveal, NO_DIGEST)
    places = [primary_seat(SEED_1, phase, 0, 3) for phase in Phase]
    assert event == ledger_state.RoundDecided(
        round=1,
        ranking=RANKING,
        accepted=ACCEPTED,
        next_committee=ELECTED,
        base=BASE,
        model=DECISION.model,
        updates_root=DECISION.updates_root,
        scores_root=DECISION.scores_root,
        reveal=DECISION.reveal,
        record=DECISION.record,
        incidents=DECISION.incidents,
        views=(0, 0),
        primaries=(COMMITTEE[places[0]], COMMITTEE[places[1]]),
        signers=(0b111 ^ 1 << places[0], 0b111 ^ 1 << places[1]),
        next_seed=seed,
        head=head,
    )
    assert event.result() == encoding.aggregation_result(DECISION.opening())
    assert (state.round, state.stage, state.committee) == (2, LedgerStage.OPEN, ELECTED)
    assert (state.opened_block, state.seed, state.head) == (11, seed, head)
    assert (state.model, state.committed, state.commitments) == (
        DECISION.model,
        frozenset(),
        NO_DIGEST,
    )


def test_the_seed_depends_on_the_reveal_and_the_beacon_alone() -> None:
    state = committed()
    bent = replace(DECISION, model=BASE, scores_root=BASE, record=BASE, incidents=NO_DIGEST)
    seeds = {decided(state, decision)[0].seed for decision in (DECISION, bent)}
    assert len(seeds) == 1
    assert decided(state, replace(DECISION, reveal=BASE))[0].seed not in seeds
    beacon = committed(parameters=replace(PENCIL, beacon=Beacon.BLOCK))
    committee = beacon.committee
    trainers = tuple(ClientId(i) for i in range(9) if i not in committee)
    beacon = replace(beacon, mined=mined(trainers))
    ranking = rank((client, 1.0 + place) for place, client in enumerate(trainers))
    decision = replace(DECISION, committee=committee, ranking=ranking)
    pair = certificates(beacon, decision, trainers[:3], trainers[1:4])
    after, _ = decided(beacon, decision, pair)
    assert after.seed == encoding.next_seed(beacon.seed, DECISION.reveal, IN_TIME.parent_hash)


def test_after_the_last_round_nothing_is_taken_but_proofs() -> None:
    state, _ = decided(committed(parameters=replace(PENCIL, rounds=1)))
    assert (state.stage, state.round) == (LedgerStage.FINISHED, 1)
    with refused(RefusalCode.NO_ROUND_OPEN):
        rounds.commit_updates(state, 1, [signed(3)], IN_TIME)
    with refused(RefusalCode.NO_ROUND_OPEN):
        rounds.abandon_round(state, 1, BlockContext(99, NO_DIGEST))
    with refused(RefusalCode.NO_ROUND_OPEN):
        decided(state)
    after, (event,) = rounds.report_equivocation(state, report(3), DEADLINE)
    assert event == ledger_state.ClientBanned(1, ClientId(3), after.head)
    assert after.head == BanLink(1, ClientId(3)).head_after(state.head)


def word(client: int, distance: float) -> int:
    return encoding.ranking_word(distance, ClientId(client))


INFINITE = encoding.INFINITY_BITS << 32


@pytest.mark.parametrize(
    ("ranking", "refusal"),
    [
        ((*RANKING, word(COMMITTEE[0], 7.0)), RefusalCode.RANKING_TOO_LONG),
        (RANKING[:2], RefusalCode.RANKING_TOO_SHORT),
        ((RANKING[1], RANKING[0], *RANKING[2:]), RefusalCode.RANKING_NOT_SORTED),
        ((RANKING[0], *RANKING[:4]), RefusalCode.RANKING_NOT_SORTED),
        (
            (word(TRAINERS[1], 1.0), word(TRAINERS[0], 1.0), RANKING[2]),
            RefusalCode.RANKING_NOT_SORTED,
        ),
        ((*RANKING[:3], word(9, 9.0)), RefusalCode.UNKNOWN_CLIENT),
        ((*RANKING[:3], word(COMMITTEE[2], 9.0)), RefusalCode.MEMBER_RANKED),
        ((*RANKING[:3], word(TRAINERS[0], 9.0)), RefusalCode.REPEATED_CLIENT),
        ((*RANKING[:3], INFINITE | TRAINERS[5]), RefusalCode.DISTANCE_NOT_FINITE),
        ((*RANKING[:3], word(TRAINERS[5], 9.0) | 1 << 96), RefusalCode.DISTANCE_NOT_FINITE),
    ],
)
def test_a_ranking_that_is_none_is_refused(ranking: tuple[int, ...], refusal: RefusalCode) -> None:
    with refused(refusal):
        decided(committed(), replace(DECISION, ranking=ranking), block=LATE)


def test_a_member_that_has_committed_is_still_not_ranked() -> None:
    state = committed(range(9))
    decided(state)
    with refused(RefusalCode.MEMBER_RANKED):
        decided(state, replace(DECISION, ranking=(*RANKING[:5], word(COMMITTEE[0], 9.0))))


def test_a_trainer_without_a_commitment_is_not_ranked() -> None:
    state = committed(TRAINERS[:5])
    with refused(RefusalCode.NO_COMMITMENT):
        decided(state)
    fewer = replace(DECISION, ranking=RANKING[:5])
    decided(state, fewer, block=LATE)


def test_while_there_is_time_nobody_is_late() -> None:
    state = committed()
    decided(state, block=IN_TIME)
    fewer = replace(DECISION, ranking=RANKING[:5])
    with refused(RefusalCode.RANKING_TOO_EARLY):
        decided(state, fewer, block=IN_TIME)
    decided(state, fewer, block=LATE)


def test_sets_not_following_from_the_ranking_are_refused() -> None:
    state = committed()
    with refused(RefusalCode.WRONG_COMMITTEE):
        decided(state, replace(DECISION, committee=COMMITTEE[::-1]))
    with refused(RefusalCode.WRONG_AGGREGATION_SET):
        decided(state, pair=certificates(state, accepted=TRAINERS[1:4]))
    with refused(RefusalCode.WRONG_AGGREGATION_SET):
        decided(state, pair=certificates(state, accepted=ACCEPTED[::-1]))
    with refused(RefusalCode.WRONG_CANDIDATES):
        decided(state, pair=certificates(state, elected=TRAINERS[:3]))


def test_a_decision_is_of_the_open_round() -> None:
    state = committed()
    with refused(RefusalCode.WRONG_ROUND):
        rounds.decide(state, 2, DECISION, certificates(state), IN_TIME)
    with refused(RefusalCode.NO_ROUND_OPEN):
        rounds.decide(fresh(), 0, DECISION, certificates(state), IN_TIME)


def test_a_certificate_that_does_not_hold_is_refused() -> None:
    state = committed()
    good, election = certificates(state)
    place = primary_seat(SEED_1, Phase.AGGREGATION, 0, 3)
    view = next(v for v in range(9) if primary_seat(SEED_1, Phase.AGGREGATION, v, 3) != place)
    swapped = good.replies[::-1]
    cases: list[tuple[RefusalCode, SubmittedCertificate]] = [
        (RefusalCode.REQUEST_NOT_SIGNED, replace(good, view=view)),
        (RefusalCode.REQUEST_NOT_SIGNED, replace(good, request=good.replies[0])),
        (RefusalCode.SIGNATURE_NOT_CANONICAL, replace(good, request=mirrored(good.request))),
        (RefusalCode.SIGNERS_OUT_OF_RANGE, replace(good, signers=good.signers | 0b1000)),
        (RefusalCode.PRIMARY_REPLIES, replace(good, signers=0b111)),
        (RefusalCode.QUORUM_NOT_REACHED, replace(good, replies=good.replies[:1])),
        (RefusalCode.REPLY_NOT_SIGNED, replace(good, replies=swapped)),
        (RefusalCode.REPLY_NOT_SIGNED, replace(good, replies=(good.request, good.replies[1]))),
        (RefusalCode.SIGNATURE_NOT_CANONICAL, replace(good, replies=(mirrored(swapped[0]),) * 2)),
        (RefusalCode.SIGNATURE_COUNT, replace(good, replies=(*good.replies, good.replies[0]))),
    ]
    for refusal, bad in cases:
        with refused(refusal):
            decided(state, pair=(bad, election))
    with refused(RefusalCode.WRONG_CANDIDATES):
        decided(state, pair=(good, good))


def test_both_certificates_are_for_one_base_and_one_result() -> None:
    state = committed()
    good, election = certificates(state)
    other_base = replace(DECISION, base=NO_DIGEST)
    other_record = replace(DECISION, record=NO_DIGEST)
    for other in (other_base, other_record):
        first, second = certificates(state, other)
        decided(state, other, (first, second))
        with refused(RefusalCode.REQUEST_NOT_SIGNED):
            decided(state, pair=(first, election))
        with refused(RefusalCode.REQUEST_NOT_SIGNED):
            decided(state, pair=(good, second))


def test_fewer_signers_than_signatures_do_not_pass_for_a_quorum() -> None:
    five = replace(PENCIL, clients=11, committee_ppm=450_000)
    deployment, ((words, rest),) = ledger_state.deployment_of(five, CONFIG, registry_of(11), MODEL)
    state, _ = rounds.register_clients(rounds.deployed(deployment, DOMAIN), words, rest, OPENED)
    trainers = [client for client in range(11) if client not in state.committee]
    state, _ = rounds.commit_updates(state, 1, [signed(client) for client in trainers], IN_TIME)
    ranking = rank((ClientId(client), 1.0 + place) for place, client in enumerate(trainers))
    decision = replace(DECISION, committee=state.committee, ranking=ranking)
    good = certificate(state, Phase.AGGREGATION, encoding.set_digest(ids(*trainers[:3])), decision)
    places = [place for place in range(5) if good.signers >> place & 1]
    for count in range(5):
        signing = sum(1 << place for place in places[:count])
        bad = replace(good, signers=signing, replies=good.replies[:3])
        refusal = RefusalCode.WRONG_CANDIDATES if count == 3 else RefusalCode.SIGNATURE_COUNT
        with refused(refusal):
            rounds.decide(state, 1, decision, (bad, bad), IN_TIME)


def test_a_banned_members_vote_is_invalid_from_the_next_round() -> None:
    state = committed()
    for member in COMMITTEE:
        decided(banned(state, member, banned_in=1))
        # The same committee a round later: the same votes would be of a banned member.
        with refused(RefusalCode.MEMBER_BANNED):
            decided(banned(replace(state, round=2), member, banned_in=1))


def test_a_round_is_abandoned_at_its_deadline_and_not_before() -> None:
    state = committed()
    with refused(RefusalCode.DEADLINE_NOT_REACHED):
        rounds.abandon_round(state, 1, BlockContext(16, NO_DIGEST))
    with refused(RefusalCode.WRONG_ROUND):
        rounds.abandon_round(state, 2, DEADLINE)
    after, (event,) = rounds.abandon_round(state, 1, DEADLINE)
    assert isinstance(event, ledger_state.RoundAbandoned)
    seed = encoding.seed_after_abandoned(SEED_1, NO_DIGEST)
    assert event.next_committee == after.committee == drawn_committee(seed, 9, 3, ())
    assert event.next_seed == after.seed == seed
    digest = encoding.set_digest(event.next_committee)
    link = AbandonmentLink(1, SEED_1, state.commitments, digest)
    assert event.head == after.head == link.head_after(CONFIG)
    assert (after.round, after.model, after.committed) == (2, MODEL, frozenset())
    assert after.opened_block == 17


def test_without_enough_clients_left_the_ledger_ends() -> None:
    state = banned(opened(), *range(2, 9), banned_in=1)
    after, (event,) = rounds.abandon_round(state, 1, DEADLINE)
    assert isinstance(event, ledger_state.RoundAbandoned)
    assert set(event.next_committee) == {0, 1}
    assert after.stage is LedgerStage.FINISHED


def votes(client: int, kind: StatementKind = StatementKind.REPLY) -> list[SignedStatement]:
    """Return two different signed votes for one slot."""
    open_round = OpenRound(DOMAIN, signers())
    proof = open_round.equivocation(client, kind, phase=Phase.ELECTION, view=3, base=BASE)
    return [proof.first, proof.second]


def vectors(
    client: int, clients: tuple[bytes, bytes] = (b"same", b"same")
) -> list[SignedStatement]:
    """Return two different signed score claims."""
    open_round = OpenRound(DOMAIN, signers())
    claims = [
        open_round.scores(client, BASE, encoding.sha256(about), encoding.sha256(text))
        for about, text in zip(clients, (b"one", b"other"), strict=True)
    ]
    return [SignedStatement(signed.scores, signed.signature) for signed in claims]


def report(client: int) -> EquivocationReport:
    return EquivocationReport(ClientId(client), *votes(client))


@pytest.mark.parametrize("kind", StatementKind)
def test_two_different_statements_ban_their_signer(kind: StatementKind) -> None:
    statements = vectors(3) if kind is StatementKind.SCORES else votes(3, kind)
    accusation = EquivocationReport(ClientId(3), *statements)
    before = committed()
    state, (event,) = rounds.report_equivocation(before, accusation, IN_TIME)
    head = BanLink(1, ClientId(3)).head_after(CONFIG)
    assert event == ledger_state.ClientBanned(1, ClientId(3), head)
    assert state.head == head
    assert [client.banned_in for client in state.registry] == [int(i == 3) for i in range(9)]
    with refused(RefusalCode.CLIENT_BANNED):
        rounds.report_equivocation(state, accusation, IN_TIME)


def test_an_accusation_without_proof_is_refused() -> None:
    one, other = votes(0)
    state = opened()
    malleable = replace(other, signature=mirrored(other.signature))
    early = replace(one, signature=mirrored(one.signature))
    cases: list[tuple[RefusalCode, LedgerState, int, list[SignedStatement]]] = [
        (RefusalCode.NOT_OPENED, fresh(), 0, [one, other]),
        (RefusalCode.UNKNOWN_CLIENT, state, 9, [one, other]),
        (RefusalCode.STATEMENTS_EQUAL, state, 0, [one, one]),
        (RefusalCode.STATEMENT_NOT_SIGNED, state, 1, [one, other]),
        (RefusalCode.STATEMENT_NOT_SIGNED, state, 0, [one, votes(1)[1]]),
        (RefusalCode.STATEMENT_NOT_SIGNED, state, 0, [votes(1)[0], other]),
        (RefusalCode.SIGNATURE_NOT_CANONICAL, state, 0, [one, malleable]),
        (RefusalCode.SIGNATURE_NOT_CANONICAL, state, 0, [early, other]),
    ]
    rounds.report_equivocation(state, EquivocationReport(ClientId(0), one, other), IN_TIME)
    for refusal, before, client, statements in cases:
        with refused(refusal):
            rounds.report_equivocation(
                before, EquivocationReport(ClientId(client), *statements), IN_TIME
            )


def test_vectors_for_two_sets_are_no_equivocation() -> None:
    accusation = EquivocationReport(ClientId(0), *vectors(0, (b"some", b"others")))
    with refused(RefusalCode.SCORES_DIFFER):
        rounds.report_equivocation(opened(), accusation, IN_TIME)


@pytest.mark.parametrize(
    ("sent", "refusal"),
    [
        ({"sent_by_account": False}, RefusalCode.NOT_SENT_BY_ACCOUNT),
        ({"is_delegated": True}, RefusalCode.DELEGATED_ACCOUNT),
    ],
)
def test_no_transaction_is_taken_from_a_contract_or_a_delegated_account(
    sent: dict[str, Any], refusal: RefusalCode
) -> None:
    relayed = replace(IN_TIME, **sent)
    with refused(refusal):
        rounds.register_clients(fresh(), WORDS, NO_DIGEST, relayed)
    with refused(refusal):
        rounds.commit_updates(opened(), 1, [signed(3)], relayed)
    with refused(refusal):
        decided(committed(), block=relayed)
    with refused(refusal):
        rounds.abandon_round(opened(), 1, replace(DEADLINE, **sent))
    with refused(refusal):
        rounds.report_equivocation(opened(), report(0), relayed)


def test_a_beacon_of_the_block_flows_into_every_seed() -> None:
    state = opened(replace(PENCIL, beacon=Beacon.BLOCK))
    assert state.seed == encoding.first_seed(CONFIG, OPENED.parent_hash)
    _, (event,) = rounds.abandon_round(state, 1, DEADLINE)
    assert isinstance(event, ledger_state.RoundAbandoned)
    assert event.next_seed == encoding.seed_after_abandoned(state.seed, DEADLINE.parent_hash)


def test_an_address_cannot_be_registered_again_in_a_later_batch() -> None:
    second = [WORDS[4], *WORDS[5:], WORDS[8] + (1 << 64)]
    for first, refusal in ((WORDS[:4], None), (WORDS[:5], RefusalCode.CLIENTS_NOT_ASCENDING)):
        words = second[: 9 - len(first)]
        rest = encoding.registry_digest(words, NO_DIGEST)
        state = replace(fresh(), registry_rest=encoding.registry_digest(first, rest))
        state, _ = rounds.register_clients(state, first, rest, OPENED)
        if refusal is None:
            rounds.register_clients(state, words, NO_DIGEST, OPENED)
            continue
        with refused(refusal):
            rounds.register_clients(state, words, NO_DIGEST, OPENED)


def test_every_part_of_a_decision_is_in_the_head() -> None:
    state = committed()
    fields = ("base", "model", "updates_root", "scores_root", "reveal", "record", "incidents")
    others: list[Any] = [{field: NO_DIGEST} for field in fields]
    heads = [decided(state, replace(DECISION, **other))[0].head for other in ({}, *others)]
    # The base itself is not: the commitments digest of the transaction's own block stands for it.
    assert heads[1] == heads[0]
    assert len(set(heads)) == len(heads) - 1
    view = certificate(state, Phase.ELECTION, encoding.set_digest(ELECTED), DECISION, view=5)
    pair = (certificates(state)[0], view)
    assert decided(state, pair=pair)[0].head not in heads
