"""What is genuine is seen, whoever sends it; everything else is passed over, one kind a test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from ledger.actors import view as view_module
from ledger.actors.view import MAX_SETS_PER_MEMBER, Holdings, RoundView, ViewSpan, view_at
from ledger.protocol.documents.envelope import (
    Envelope,
    EnvelopeKind,
    PhaseCertificate,
    Proposal,
    PublishedPayload,
    PublishedScores,
    Reply,
    decode_envelope,
    encode_envelope,
)
from ledger.protocol.documents.record import MAX_VECTOR_BYTES, encode_vector
from ledger.protocol.encoding import aggregation_result, set_digest, sha256
from ledger.protocol.inputs import Inputs, primary_seat
from ledger.protocol.ledger_state import StatementKind
from ledger.protocol.parameters import MAX_MEMBERS, MAX_VIEWS
from ledger.protocol.payloads import Payload
from ledger.protocol.signing import is_signed_by
from ledger.protocol.types import (
    NO_DIGEST,
    Address,
    ClientId,
    Digest,
    Domain,
    Phase,
    Scores,
    SignedVote,
    Vote,
    VoteKind,
)
from ledger.protocol.validation import parse_vector
from tests.actors.support import (
    PARAMETERS,
    Network,
    RunningMember,
    answered,
    elected,
    published,
    replied,
    requested,
    seen,
    signed_vote,
)
from tests.support.keys import DOMAIN

AGGREGATION, ELECTION = Phase.AGGREGATION, Phase.ELECTION
OTHER_DOMAIN = replace(DOMAIN, chain_id=1)


@pytest.fixture(scope="module")
def network() -> Network:
    network = Network()
    elected(network)
    return network


@pytest.fixture(scope="module")
def full(network: Network) -> RoundView:
    return seen(network, ())


@pytest.fixture
def empty(network: Network) -> RoundView:
    return network.closed_view()


def of_kind(network: Network, kind: EnvelopeKind, phase: Phase | None = None) -> Envelope:
    """Return the first envelope of a kind that honest clients have sent."""
    for envelope in network.board:
        body = envelope.body
        vote = body.request.vote if isinstance(body, Proposal) else None
        vote = body.reply.vote if isinstance(body, Reply) else vote
        if envelope.kind is kind and (phase is None or (vote is not None and vote.phase is phase)):
            return envelope
    raise AssertionError


# The chain.


def test_inputs_are_open_until_the_closing_block_is_final() -> None:
    network = Network(depth=2)
    chain = network.open_chain()
    network.commit(*chain.participants().expected)
    network.chain.mine(5.0)
    for _ in range(2):
        chain = network.open_chain()
        assert chain.inputs() is None
        assert network.opened() is None
        network.chain.mine(6.0)
    view = network.closed_view()
    assert view.closed_at == 5.0
    assert set(view.inputs.closing.commitments) == view.inputs.participants.expected


# Payloads.


def test_a_payload_is_announced_by_anyone_who_holds_it(network: Network, empty: RoundView) -> None:
    envelope = of_kind(network, EnvelopeKind.PAYLOAD)
    view = empty.with_envelopes([envelope])
    assert list(view.announced) == [envelope.client]
    assert view.usable == ()
    payload = Payload.of(network.blobs[view.announced[envelope.client]])
    assert view.with_payloads({envelope.client: payload}).usable == (envelope.client,)


def test_payload_without_commitment_is_passed_over(network: Network, empty: RoundView) -> None:
    one, other = empty.inputs.participants.trainers[:2]
    digest = sha256(network.payload(1, one))
    for client in (other, ClientId(99)):  # another's; nobody's
        copied = Envelope(DOMAIN, 1, client, PublishedPayload(digest))
        assert empty.with_envelopes([copied]).announced == {}
        assert empty.with_payloads({client: Payload.of(network.payload(1, one))}) is empty
    assert empty.with_payloads({one: Payload.of(network.payload(1, other))}) is empty


# Envelopes of elsewhere.


@pytest.mark.parametrize("kind", [EnvelopeKind.PAYLOAD, EnvelopeKind.SCORES, EnvelopeKind.REQUEST])
@pytest.mark.parametrize(("domain", "number"), [(OTHER_DOMAIN, 1), (DOMAIN, 2)])
def test_an_envelope_of_another_contract_or_round_is_passed_over(
    network: Network, empty: RoundView, kind: EnvelopeKind, domain: Domain, number: int
) -> None:
    envelope = of_kind(network, kind)
    assert added(empty.with_envelopes([envelope])) != added(empty)
    foreign = replace(envelope, domain=domain, round=number)
    assert_nothing(empty.with_envelopes([foreign]))


def added(view: RoundView) -> tuple[object, ...]:
    """Return what envelopes add to a view; a model's array has no equality of its own."""
    evidence = view.evidence
    counts = len(evidence.payloads), len(evidence.vectors)
    return (*counts, view.announced, view.claims, view.proposals, view.votes)


def assert_nothing(view: RoundView) -> None:
    assert not view.announced
    assert not view.claims
    assert not view.proposals
    assert not view.votes
    assert not view.evidence.vectors


# Score vectors.


def scores_of(network: Network) -> PublishedScores:
    body = of_kind(network, EnvelopeKind.SCORES).body
    assert isinstance(body, PublishedScores)
    return body


def test_scores_are_kept_with_their_vector(network: Network, empty: RoundView) -> None:
    envelope = of_kind(network, EnvelopeKind.SCORES)
    view = empty.with_envelopes([envelope, envelope])
    scores = scores_of(network).signed.scores
    assert view.claims_for(scores.clients) == [scores_of(network).signed]
    assert view.claims_for(NO_DIGEST) == []
    assert view.evidence.vectors == {scores.digest: scores_of(network).vector}


@pytest.mark.parametrize(
    "forged",
    [
        lambda one, key: published(key, replace(one, round=2), b""),
        lambda one, key: published(key, replace(one, base=NO_DIGEST), b""),
        lambda one, key: published(key, replace(one, member=ClientId(99)), b""),
        lambda one, key: published((key + 1) % 14, replace(one, digest=sha256(b"")), b""),
        lambda one, key: published(key, one, b"other bytes"),
    ],
    ids=["another round", "another base", "no member", "another's key", "another vector"],
)
def test_scores_that_are_not_what_they_claim_are_passed_over(
    network: Network, empty: RoundView, forged: Callable[..., PublishedScores]
) -> None:
    scores = scores_of(network).signed.scores
    body = forged(scores, int(scores.member))
    assert_nothing(empty.with_envelopes([Envelope(DOMAIN, 1, scores.member, body)]))


def two_vectors(network: Network, count: int = 2) -> list[Envelope]:
    """Return one member's signed vectors for one set: the true one and as many others."""
    true = scores_of(network)
    vector, scores = parse_vector(true.vector), true.signed.scores
    assert vector is not None
    envelopes = [of_kind(network, EnvelopeKind.SCORES)]
    for factor in range(2, count + 1):
        data = encode_vector(replace(vector, distances=factor * vector.distances))
        body = published(scores.member, replace(scores, digest=sha256(data)), data)
        envelopes.append(Envelope(DOMAIN, 1, scores.member, body))
    return envelopes


def test_of_many_vectors_for_set_two_smallest_remain(network: Network, empty: RoundView) -> None:
    envelopes = two_vectors(network, 5)
    clients = scores_of(network).signed.scores.clients
    digests = [
        e.body.signed.scores.digest for e in envelopes if isinstance(e.body, PublishedScores)
    ]
    for order in (envelopes, envelopes[::-1], envelopes[2:] + envelopes[:2]):
        view = empty
        for envelope in order:
            view = view.with_envelopes([envelope])
        kept = [signed.scores.digest for signed in view.claims_for(clients)]
        assert kept == sorted(digests)[:2]
        assert set(view.evidence.vectors) == set(kept)


def test_a_vector_over_the_limit_is_passed_over(network: Network, empty: RoundView) -> None:
    scores = scores_of(network).signed.scores
    for size, is_taken in ((MAX_VECTOR_BYTES, True), (MAX_VECTOR_BYTES + 1, False)):
        data = bytes(size)
        body = published(scores.member, replace(scores, digest=sha256(data)), data)
        view = empty.with_envelopes([Envelope(DOMAIN, 1, scores.member, body)])
        assert bool(view.claims) == bool(view.evidence.vectors) == is_taken


def test_vector_for_two_sets_stays_while_either_counts(network: Network, empty: RoundView) -> None:
    envelopes = two_vectors(network, 6)
    bodies = [e.body for e in envelopes if isinstance(e.body, PublishedScores)]
    *smaller, largest = sorted(bodies, key=lambda body: body.signed.scores.digest)
    member = largest.signed.scores.member
    again = published(
        member, replace(largest.signed.scores, clients=Digest(b"2" * 32)), largest.vector
    )
    others = [
        published(member, replace(body.signed.scores, clients=Digest(b"2" * 32)), body.vector)
        for body in smaller[2:4]
    ]
    view = empty.with_envelopes(
        Envelope(DOMAIN, 1, member, body) for body in (largest, again, *smaller[:2])
    )
    assert largest.signed.scores.digest in view.evidence.vectors
    view = view.with_envelopes(Envelope(DOMAIN, 1, member, body) for body in others)
    held = {signed.scores.digest for pair in view.claims.values() for signed in pair}
    assert set(view.evidence.vectors) == held


def test_a_member_cannot_fill_the_memory_with_sets(network: Network, empty: RoundView) -> None:
    true = scores_of(network)
    member = true.signed.scores.member
    view = empty
    for number in range(MAX_SETS_PER_MEMBER + 3):
        scores = replace(true.signed.scores, clients=Digest(number.to_bytes(32)))
        body = published(member, scores, true.vector)
        view = view.with_envelopes([Envelope(DOMAIN, 1, member, body)])
    assert len(view.claims) == MAX_SETS_PER_MEMBER


# Requests.


def request_of(network: Network, phase: Phase = AGGREGATION) -> Proposal:
    body = of_kind(network, EnvelopeKind.REQUEST, phase).body
    assert isinstance(body, Proposal)
    return body


def test_a_request_is_seen_with_what_it_rests_on(network: Network, empty: RoundView) -> None:
    for phase in Phase:
        envelope = of_kind(network, EnvelopeKind.REQUEST, phase)
        view = empty.with_envelopes([envelope, envelope])
        assert view.proposals[phase, 0] == (request_of(network, phase),)
        assert view.requests(phase, 0) == (request_of(network, phase).request,)
        assert view.requests(phase, 1) == ()


def test_request_of_another_than_primary_is_passed_over(network: Network, empty: RoundView) -> None:
    proposal = request_of(network)
    primary = proposal.request.member
    other = next(m for m in empty.inputs.participants.members if m != primary)
    forgeries = [
        signed_vote(other, proposal.request.vote),
        signed_vote(primary, proposal.request.vote, key=other),
        signed_vote(primary, proposal.request.vote, domain=OTHER_DOMAIN),
        signed_vote(primary, replace(proposal.request.vote, view=MAX_VIEWS)),
        signed_vote(primary, replace(proposal.request.vote, round=2)),
        signed_vote(primary, replace(proposal.request.vote, base=NO_DIGEST)),
        signed_vote(primary, replace(proposal.request.vote, kind=VoteKind.REPLY)),
    ]
    for forged in forgeries:
        body = replace(proposal, request=forged)
        assert_nothing(empty.with_envelopes([Envelope(DOMAIN, 1, forged.member, body)]))


def test_request_with_another_record_is_no_proposal(network: Network, empty: RoundView) -> None:
    proposal = request_of(network)
    opening = proposal.opening
    assert opening is not None
    resigned = aggregation_result(replace(opening, record=NO_DIGEST))
    vote = replace(proposal.request.vote, result=resigned)
    member = proposal.request.member
    broken = [
        replace(proposal, opening=replace(opening, model=NO_DIGEST)),
        replace(proposal, record=b"another record"),
        replace(
            proposal, request=signed_vote(member, vote), opening=replace(opening, record=NO_DIGEST)
        ),
        replace(proposal, opening=None),
        replace(proposal, record=None),
    ]
    for body in broken:
        view = empty.with_envelopes([Envelope(DOMAIN, 1, member, body)])
        assert not view.proposals
        assert len(view.requests(AGGREGATION, 0)) == 1
        # The whole one is seen as soon as it comes.
        view = view.with_envelopes([of_kind(network, EnvelopeKind.REQUEST, AGGREGATION)])
        assert len(view.proposals[AGGREGATION, 0]) == 1


def test_two_requests_of_a_view_are_retained_as_proof(network: Network, empty: RoundView) -> None:
    proposal = request_of(network)
    member = proposal.request.member
    view = empty
    for number in range(4):
        wrong = replace(proposal.request.vote, set_digest=Digest(bytes([number]) * 32))
        body = replace(proposal, request=signed_vote(member, wrong))
        view = view.with_envelopes([Envelope(DOMAIN, 1, member, body)])
    assert len(view.proposals[AGGREGATION, 0]) == 2
    assert len(view.requests(AGGREGATION, 0)) == 2
    (report,) = view.equivocations()
    assert (report.client, report.kind) == (member, StatementKind.REQUEST)


# Replies and certificates.


def test_a_reply_of_another_kind_or_signer_is_passed_over(
    network: Network, empty: RoundView
) -> None:
    envelope = of_kind(network, EnvelopeKind.REPLY)
    assert isinstance(envelope.body, Reply)
    reply = envelope.body.reply
    assert list(empty.with_envelopes([envelope]).votes) == [(reply.member, reply.vote.slot)]
    forgeries = [
        signed_vote(reply.member, replace(reply.vote, kind=VoteKind.REQUEST)),
        signed_vote(reply.member, replace(reply.vote, round=2)),
        signed_vote(reply.member, replace(reply.vote, base=NO_DIGEST)),
        signed_vote(reply.member, replace(reply.vote, view=MAX_VIEWS)),
        signed_vote(reply.member, reply.vote, domain=OTHER_DOMAIN),
        signed_vote(reply.member, reply.vote, key=(reply.member + 1) % 14),
        signed_vote(empty.inputs.participants.trainers[0], reply.vote),
        SignedVote(reply.member, reply.vote, bytes(65)),
    ]
    for forged in forgeries:
        assert_nothing(empty.with_envelopes([Envelope(DOMAIN, 1, forged.member, Reply(forged))]))


def test_certificate_is_a_request_with_a_quorum_of_equal_replies(full: RoundView) -> None:
    for phase in Phase:
        (certificate,) = full.certificates(phase)
        assert certificate.request.member == full.primary(phase, 0)
        assert len(certificate.replies) == PARAMETERS.replies == 3
        assert certificate.request.member not in {r.member for r in certificate.replies}


def test_too_few_replies_are_no_certificate() -> None:
    network = Network()
    view = requested(network)
    primary = view.primary(AGGREGATION, 0)
    others = [m for m in view.inputs.participants.members if m != primary]
    assert answered(network, 0, others[:2]).certificates(AGGREGATION) == []
    assert answered(network, 0, others[2:3]).certificates(AGGREGATION) != []


def test_replies_of_primary_or_to_other_requests_do_not_count() -> None:
    network = Network()
    view = requested(network)
    primary = view.primary(AGGREGATION, 0)
    others = [m for m in view.inputs.participants.members if m != primary]
    view = answered(network, 0, others[:2])
    (request,) = view.requests(AGGREGATION, 0)
    reply = replace(request.vote, kind=VoteKind.REPLY)
    own = Reply(signed_vote(primary, reply))
    wrong = Reply(signed_vote(others[2], replace(reply, result=NO_DIGEST)))
    view = view.with_envelopes(
        [Envelope(DOMAIN, 1, primary, own), Envelope(DOMAIN, 1, others[2], wrong)]
    )
    assert view.certificates(AGGREGATION) == []


def test_forged_certificate_brings_genuine_votes(network: Network, empty: RoundView) -> None:
    proposal = request_of(network, ELECTION)
    assert proposal.certificate is not None
    replies = proposal.certificate.replies
    swapped = tuple((member, replies[0][1]) for member, _ in replies)
    forged = [
        replace(proposal.certificate, replies=swapped),
        replace(proposal.certificate, request=bytes(65)),
        replace(proposal.certificate, set_digest=NO_DIGEST),
        replace(proposal.certificate, view=1),
        PhaseCertificate(2**32 - 1, NO_DIGEST, bytes(65), ()),
    ]
    for certificate in forged:
        body = replace(proposal, certificate=certificate)
        view = empty.with_envelopes([Envelope(DOMAIN, 1, proposal.request.member, body)])
        assert view.certificates(AGGREGATION) == []
        # Who passes the request on with a forged certificate keeps nobody from the true one.
        view = view.with_envelopes([of_kind(network, EnvelopeKind.REQUEST, ELECTION)])
        assert len(view.certificates(AGGREGATION)) == 1


def test_forged_replies_in_a_certificate_cost_no_extra_verification(
    network: Network, empty: RoundView, monkeypatch: pytest.MonkeyPatch
) -> None:
    proposal, members = request_of(network, ELECTION), empty.inputs.participants.members
    assert proposal.certificate is not None
    checked: list[bytes] = []

    def counted(address: Address, domain: Domain, message: Vote | Scores, signature: bytes) -> bool:
        checked.append(signature)
        return is_signed_by(address, domain, message, signature)

    monkeypatch.setattr(view_module, "is_signed_by", counted)
    forged = [
        (members[i % len(members)], i.to_bytes(64) + b"\x1b") for i in range(1, MAX_MEMBERS + 1)
    ]
    for request in (proposal.certificate.request, bytes(65)):
        certificate = replace(proposal.certificate, request=request, replies=tuple(forged))
        body = replace(proposal, certificate=certificate)
        envelope = Envelope(DOMAIN, 1, proposal.request.member, body)
        assert decode_envelope(encode_envelope(envelope), DOMAIN) == envelope, "anybody may send it"
        checked.clear()
        view = empty.with_envelopes([envelope])
        # Its own signature, the one of phase 1, and one reply of each member.
        assert len(checked) <= 2 + len(members)
        assert view.certificates(AGGREGATION) == []


def test_a_banned_member_has_no_voice(network: Network, empty: RoundView) -> None:
    envelope = of_kind(network, EnvelopeKind.REPLY)
    inputs = empty.inputs
    banned = frozenset({envelope.client})
    inputs = replace(inputs, participants=replace(inputs.participants, banned=banned))
    assert_nothing(replace(empty, inputs=inputs).with_envelopes([envelope]))


# Views in time: each twice as long as the one before, and none for an empty seat.


SECONDS = float(PARAMETERS.view_seconds)
BEGIN = 100.0


@pytest.fixture(scope="module")
def inputs() -> Inputs:
    return Network().close().inputs


def test_each_view_lasts_twice_as_long_as_the_previous_one(inputs: Inputs) -> None:
    begin, seconds = BEGIN, SECONDS
    for number in range(5):
        span = ViewSpan(number, begin, seconds)
        assert view_at(inputs, Phase.ELECTION, BEGIN, begin) == span
        assert view_at(inputs, Phase.ELECTION, BEGIN, span.end - 0.01) == span
        begin, seconds = span.end, 2 * seconds


def test_the_view_of_an_empty_seat_takes_no_time(inputs: Inputs) -> None:
    committee = inputs.participants.committee
    places = [primary_seat(inputs.seed, Phase.AGGREGATION, v, len(committee)) for v in range(8)]
    banned = committee[places[0]]
    empty = replace(inputs, participants=replace(inputs.participants, banned=frozenset({banned})))
    taken = [number for number in range(8) if places[number] != places[0]]
    found = view_at(empty, Phase.AGGREGATION, BEGIN, BEGIN)
    assert found == ViewSpan(taken[0], BEGIN, SECONDS * 2 ** taken[0])
    after = view_at(empty, Phase.AGGREGATION, BEGIN, found.end)
    assert after == ViewSpan(taken[1], found.end, SECONDS * 2 ** taken[1])


def test_restarted_member_is_in_the_same_view_of_both_phases() -> None:
    network = Network()
    view = network.close()
    member = RunningMember(network, view.inputs.participants.members[0])
    network.now = view.closed_at + 1.5 * SECONDS
    assert_same_view_after_restart(member)
    elected(network)
    network.now = 30.0
    member.deliver()
    member.step()
    network.now = 30.0 + 2.6 * SECONDS  # the first certificate was seen at 30
    assert_same_view_after_restart(member)
    assert member.next_time() == 30.0 + 3 * SECONDS


def assert_same_view_after_restart(member: RunningMember) -> None:
    before = member.next_time()
    assert before is not None
    member.restart()
    member.deliver()
    assert member.next_time() == before


def test_answers_of_a_view_are_those_of_a_scan() -> None:
    network = Network()
    view = replied(network)
    inputs, committed = view.inputs, view.inputs.closing.commitments
    for phase in Phase:
        for number in range(2):
            scanned = [
                signed
                for (member, slot), votes in view.votes.items()
                if member == view.primary(phase, number)
                and (slot.kind, slot.phase, slot.view) == (VoteKind.REQUEST, phase, number)
                for signed in votes
            ]
            assert list(view.requests(phase, number)) == scanned
    claims = [claim for pair in view.claims.values() for claim in pair]
    assert view.held == Holdings(frozenset(view.evidence.payloads), tuple(claims))
    ascending = sorted(claims, key=lambda claim: claim.scores.member)
    assert view.claims_for(set_digest(view.usable)) == ascending
    fewer = replace(view, evidence=view.evidence.without(view.usable[:1]))
    for each in (view, fewer):
        active = set(inputs.participants.active) & committed.keys()
        assert each.has_all_payloads == (active <= each.evidence.payloads.keys())
    chain = network.open_chain()
    assert chain.committed == {mined.client for mined in chain.commitments}
