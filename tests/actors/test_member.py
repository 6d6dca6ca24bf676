"""When an honest member says what: by what it sees, and by its own time-outs alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledger.actors.participants import Member
from ledger.actors.steps import JudgementCache, SendDecision, SendReport, StoreBlobs
from ledger.actors.view import RoundView
from ledger.protocol.documents.envelope import (
    Envelope,
    EnvelopeKind,
    Proposal,
    PublishedScores,
    Reply,
)
from ledger.protocol.documents.record import decode_incidents, decode_record
from ledger.protocol.encoding import sha256
from ledger.protocol.inputs import sending_order
from ledger.protocol.parameters import MAX_VIEWS
from ledger.protocol.types import NO_DIGEST, ClientId, DropoutReason, IncidentKind, Phase
from tests.actors.support import (
    PARAMETERS,
    Network,
    PowerCutJournal,
    RunningMember,
    acts_of,
    blobs_in,
    committee_of,
    elected,
    envelopes_in,
    play,
    published,
    requested,
    scored,
    seen,
    signed_vote,
    signers,
    with_empty_seat,
)
from tests.support.keys import DOMAIN

AGGREGATION, ELECTION = Phase.AGGREGATION, Phase.ELECTION
SECONDS = float(PARAMETERS.view_seconds)


def member(client: int, journal: PowerCutJournal | None = None) -> Member:
    return Member(
        ClientId(client), signers()[client], journal or PowerCutJournal(), JudgementCache()
    )


def said(network: Network, client: ClientId, kind: EnvelopeKind) -> list[Envelope]:
    return [e for e in network.board if (e.client, e.kind) == (client, kind)]


def begin_of(view: RoundView, number: int = 0) -> float:
    """Return when a view of phase 1 begins."""
    return view.closed_at + SECONDS * (1 << number)


def places_of(view: RoundView, number: int = 0) -> tuple[ClientId, list[ClientId]]:
    """Return the primary of a view of phase 1, and the others."""
    primary = view.primary(AGGREGATION, number)
    return primary, [m for m in view.inputs.participants.members if m != primary]


def views_of_two(view: RoundView) -> tuple[int, int]:
    """Return the first view, and the first after it that has another primary."""
    first = view.primary(AGGREGATION, 0)
    later = next(v for v in range(1, 20) if view.primary(AGGREGATION, v) != first)
    return 0, later


# Whose turn it never is.


def test_the_view_of_a_vacant_slot_is_skipped_at_once() -> None:
    network = with_empty_seat()
    view = scored(network)
    banned, _ = places_of(view)
    led = next(v for v in range(1, 20) if view.primary(AGGREGATION, v) != banned)
    primary, _ = places_of(view, led)
    actions = member(primary).step(view, view.closed_at + SECONDS)
    (proposal,) = [e.body for e in envelopes_in(actions) if isinstance(e.body, Proposal)]
    assert proposal.request.vote.view == led
    play(network, committee_of(network).values())
    assert network.chain.decided(2) is not None


def test_a_banned_member_does_nothing() -> None:
    view = requested(Network())
    me = places_of(view)[1][0]
    assert member(me).step(view, begin_of(view)) != []
    seats = replace(view.inputs.participants, banned=frozenset({me}))
    banned = replace(view, inputs=replace(view.inputs, participants=seats))
    assert member(me).step(banned, begin_of(view)) == []


# Before view 0.


def test_scores_when_all_payloads_are_present_or_at_half_time() -> None:
    network = Network()
    view = network.close()
    me = view.inputs.participants.members[0]
    full = seen(network, ())
    assert len(envelopes_in(member(me).step(full, view.closed_at))) == 1
    missing = network.grown(view, network.board[1:])
    assert member(me).step(missing, view.closed_at) == []
    assert member(me).step(missing, view.closed_at + SECONDS / 2 - 0.1) == []
    assert len(envelopes_in(member(me).step(missing, view.closed_at + SECONDS / 2))) == 1


def test_next_times_are_those_with_something_to_do() -> None:
    network = Network()
    view = network.close()
    someone, start = member(view.inputs.participants.members[0]), view.closed_at
    times, now = [], start
    for _ in range(7):
        later = someone.next_time(view, now)
        assert later is not None
        times.append((later - start) / SECONDS)
        now = later
    assert times == [0.5, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0]
    assert someone.next_time(view, start + SECONDS * 2**MAX_VIEWS) is None


# The primary.


def test_a_primary_that_misses_nothing_makes_its_record_at_once() -> None:
    view = scored(Network())
    primary, others = places_of(view)
    assert member(primary).step(view, begin_of(view) - 0.1) == []
    stored, posted = member(primary).step(view, begin_of(view))
    assert isinstance(stored, StoreBlobs)
    assert [e.kind for e in envelopes_in([posted])] == [EnvelopeKind.REQUEST]
    assert member(others[0]).step(view, begin_of(view)) == []


def test_waiting_primary_scores_at_a_quarter_and_proposes_at_half() -> None:
    network = Network()
    members = network.chain.state.committee
    view = network.close()
    primary, others = places_of(view)
    view = scored(network, *others[:3])
    leader, begin = member(primary), begin_of(view)
    assert leader.step(view, begin + SECONDS / 4 - 0.1) == []
    envelopes = envelopes_in(leader.step(view, begin + SECONDS / 4))
    payloads = [e.client for e in envelopes if e.kind is EnvelopeKind.PAYLOAD]
    assert payloads == list(view.usable)
    assert [e.kind for e in envelopes[len(payloads) :]] == [EnvelopeKind.SCORES]
    for envelope in envelopes:
        network.post(envelope)
    view = seen(network, ())
    assert leader.step(view, begin + SECONDS / 2 - 0.1) == []
    view = seen(network, leader.step(view, begin + SECONDS / 2))
    (proposal,) = view.proposals[AGGREGATION, 0]
    assert len(decode_record(proposal.record or b"").scores) == 4
    assert len(members) == 5
    assert leader.step(view, begin + SECONDS * 0.75) == []


# Who follows.


def partly_scored(network: Network) -> tuple[RoundView, tuple[ClientId, ...]]:
    """Return a round in which the primary has scored fewer than all are there, and the fewer."""
    network.close()
    view = seen(network, ())
    fewer = tuple(c for c in view.usable if c != view.inputs.participants.trainers[0])
    return seen(network, acts_of(places_of(view)[0]).publish_scores(view, fewer)), fewer


def test_signs_for_the_primarys_set_once_in_its_view() -> None:
    network = Network()
    view, fewer = partly_scored(network)
    primary, (me, *_) = places_of(view)
    follower = member(me)
    assert envelopes_in(follower.step(view, view.closed_at + SECONDS / 2)) != []
    (envelope,) = envelopes_in(follower.step(view, begin_of(view)))
    assert isinstance(envelope.body, PublishedScores)
    view = seen(network, acts_of(me).publish_scores(view, fewer))
    view = seen(network, acts_of(primary).publish_scores(view, view.usable))
    assert follower.step(view, begin_of(view) + 1) == []


def test_follows_the_primarys_largest_set_in_any_order_of_arrival() -> None:
    # A primary that has scored all before, and then followed another's smaller set, says nothing
    # new: its vector for all must not be hidden by the younger one.
    network = Network()
    network.close()
    view = seen(network, ())
    primary, others = places_of(view)
    view = seen(network, acts_of(primary).publish_scores(view, view.usable))
    fewer = view.usable[1:]
    for one in (primary, *others):
        view = seen(network, acts_of(one).publish_scores(view, fewer))
    (envelope,) = envelopes_in(member(others[0]).step(view, begin_of(view)))
    assert isinstance(envelope.body, PublishedScores)
    claim = envelope.body.signed.scores
    assert [signed.scores.member for signed in view.claims_for(claim.clients)] == [primary]
    for one in others:
        view = seen(network, acts_of(one).publish_scores(view, view.usable))
    view = seen(network, member(primary).step(view, begin_of(view)))
    (proposal,) = view.proposals[AGGREGATION, 0]
    assert decode_record(proposal.record or b"").dropouts == ()


def test_a_repeated_old_vector_hides_no_newer_one() -> None:
    network = Network()
    view, fewer = partly_scored(network)
    primary, (me, *_) = places_of(view)
    (old,) = [e.body for e in said(network, primary, EnvelopeKind.SCORES)]
    assert isinstance(old, PublishedScores)
    view = seen(network, acts_of(primary).publish_scores(view, view.usable))
    forged = replace(old, signed=replace(old.signed, signature=bytes(65)))
    view = view.with_envelopes([Envelope(DOMAIN, 1, primary, forged)])
    (envelope,) = envelopes_in(member(me).step(view, begin_of(view)))
    assert isinstance(envelope.body, PublishedScores)
    assert envelope.body.signed.scores.clients != old.signed.scores.clients
    assert fewer != view.usable


def test_a_primary_returns_to_an_older_set_with_enough_signatures() -> None:
    # All have signed for the set that it held when the view began; then one more payload came to
    # it, and in this view nobody signs a second time.
    network = Network()
    view, fewer = partly_scored(network)
    primary, others = places_of(view)
    for one in others:
        view = seen(network, acts_of(one).publish_scores(view, fewer))
    leader, begin = member(primary), begin_of(view)
    view = seen(network, leader.step(view, begin + SECONDS / 4))
    view = seen(network, leader.step(view, begin + SECONDS / 2))
    (proposal,) = view.proposals[AGGREGATION, 0]
    record = decode_record(proposal.record or b"")
    assert record.clients == fewer
    assert [d.reason for d in record.dropouts] == [DropoutReason.PAYLOAD_MISSING]


def test_a_member_signing_one_vector_for_many_sets_blocks_nobody() -> None:
    network = Network()
    view = scored(network)
    primary, (me, *_) = places_of(view)
    (envelope,) = said(network, primary, EnvelopeKind.SCORES)
    true = envelope.body
    assert isinstance(true, PublishedScores)
    for number in range(5):
        other = replace(true.signed.scores, clients=sha256(b"%d" % number))
        body = published(primary, other, true.vector)
        view = view.with_envelopes([Envelope(DOMAIN, 1, primary, body)])
        body = published(primary, replace(other, digest=sha256(b"no vector")), b"no vector")
        view = view.with_envelopes([Envelope(DOMAIN, 1, primary, body)])
    assert member(me).step(view, begin_of(view)) == []
    assert member(primary).step(view, begin_of(view)) != []


# Replies, and time-outs.


def test_answers_a_request_in_its_own_view_only() -> None:
    network = Network()
    view = scored(network)
    first, later = views_of_two(view)
    primary, others = places_of(view, later)
    me = next(m for m in others if m != view.primary(AGGREGATION, first))
    view = seen(network, acts_of(primary).propose(view, later, view.usable))
    early = member(me)
    for moment in (view.closed_at, begin_of(view), begin_of(view, later) - 0.1):
        assert EnvelopeKind.REPLY not in kinds(early.step(view, moment))
    assert EnvelopeKind.REPLY in kinds(early.step(view, begin_of(view, later)))
    too_late = member(me).step(view, begin_of(view, later + 1))
    assert EnvelopeKind.REPLY not in kinds(too_late)


def kinds(actions: object) -> set[EnvelopeKind]:
    assert isinstance(actions, list)
    return {envelope.kind for envelope in envelopes_in(actions)}


def test_two_requests_in_one_view_get_no_reply() -> None:
    network = Network()
    view = requested(network)
    primary, (me, *_) = places_of(view)
    (proposal,) = view.proposals[AGGREGATION, 0]
    wrong = signed_vote(primary, replace(proposal.request.vote, set_digest=NO_DIGEST))
    for body in (replace(proposal, request=wrong), Proposal(wrong)):  # with and without a record
        both = view.with_envelopes([Envelope(DOMAIN, 1, primary, body)])
        assert kinds(member(me).step(both, begin_of(view))) == set()


def test_a_record_may_not_omit_what_was_held_in_time() -> None:
    network = Network()
    seats = network.chain.state.committee
    view = scored(network, *seats[:4])
    primary, others = places_of(view)
    late = seats[4]
    me = next(m for m in others if m != late)
    follower, restarted = member(me), member(me)
    complete = scored(network, late)
    follower.step(complete, begin_of(view) - 1)  # it has the last vector in time
    proposal = acts_of(primary).propose(view, 0, view.usable)
    complete = seen(network, proposal)
    actions = follower.step(complete, begin_of(view))
    assert [e.client for e in envelopes_in(actions)] == [late]
    assert kinds(actions) == {EnvelopeKind.SCORES}
    # Who was not there before the view began holds nothing against it.
    assert EnvelopeKind.REPLY in kinds(restarted.step(complete, begin_of(view)))


# Phase 2 and the end.


def test_phase_2_begins_when_the_first_certificate_is_seen() -> None:
    network = Network()
    view = elected(network)
    primary = view.primary(ELECTION, 0)
    me = next(m for m in view.inputs.participants.members if m != primary)
    lone = [e for e in network.board if not is_reply_of_phase_2(e)]
    opened = network.closed_view()
    partial = network.grown(opened, lone)
    someone = member(me)
    assert EnvelopeKind.REPLY in kinds(someone.step(partial, 1000.0))
    assert EnvelopeKind.REPLY in kinds(someone.step(partial, 1000.0 + SECONDS - 0.1))
    assert EnvelopeKind.REPLY not in kinds(someone.step(partial, 1000.0 + SECONDS))


def is_reply_of_phase_2(envelope: Envelope) -> bool:
    body = envelope.body
    return isinstance(body, Reply) and body.reply.vote.phase is ELECTION


def first_sender(view: RoundView) -> ClientId:
    return sending_order(view.inputs.seed, view.inputs.participants.members)[0]


def test_members_send_the_decision_in_turns_of_one_block() -> None:
    view = replace(elected(Network()), newest_block=70)
    order = sending_order(view.inputs.seed, view.inputs.participants.members)
    for turn, client in enumerate(order):
        someone = member(client)
        assert sends_decision(someone.step(view, 40.0)) == (turn == 0)
        if turn:
            assert not sends_decision(someone.step(replace(view, newest_block=69 + turn), 40.1))
            assert sends_decision(someone.step(replace(view, newest_block=70 + turn), 40.1))


def test_where_no_block_comes_a_turn_is_a_quarter_of_view_0() -> None:
    view = elected(Network())
    order = sending_order(view.inputs.seed, view.inputs.participants.members)
    for turn, client in enumerate(order[1:], 1):
        someone = member(client)
        begin = 40.0
        due = begin + turn * SECONDS / 4
        assert not sends_decision(someone.step(view, begin))
        assert someone.next_time(view, due - 0.1) is not None
        assert not sends_decision(someone.step(view, due - 0.1))
        assert sends_decision(someone.step(view, due))


def sends_decision(actions: object) -> bool:
    assert isinstance(actions, list)
    return any(isinstance(action, SendDecision) for action in actions)


def test_the_model_is_stored_before_the_decision_is_sent() -> None:
    view = elected(Network())
    actions = member(first_sender(view)).step(view, 0.0)
    stored, decision = actions[-2:]
    assert isinstance(stored, StoreBlobs)
    assert isinstance(decision, SendDecision)
    assert decision.decision.model in blobs_in(stored)


def test_whoever_settles_reports_who_is_not_banned_yet() -> None:
    network = Network()
    view = elected(network)
    guilty = view.inputs.participants.members[1]
    (own,) = [
        e.body.reply.vote for e in said(network, guilty, EnvelopeKind.REPLY)[:1]
        if isinstance(e.body, Reply)
    ]  # fmt: skip
    other = signed_vote(guilty, replace(own, result=NO_DIGEST))
    view = view.with_envelopes([Envelope(DOMAIN, 1, guilty, Reply(other))])
    primary = first_sender(view)
    actions = member(primary).step(view, 0.0)
    reports = [action for action in actions if isinstance(action, SendReport)]
    assert [action.report.client for action in reports] == [guilty]
    assert actions.index(reports[0]) < len(actions) - 1  # before the decision
    registry = list(view.inputs.registry)
    registry[guilty] = replace(registry[guilty], banned_in=1)
    banned = replace(view, inputs=replace(view.inputs, registry=tuple(registry)))
    assert not [a for a in member(primary).step(banned, 0.0) if isinstance(a, SendReport)]


def test_the_record_of_an_accused_is_stored_with_the_accusation() -> None:
    network = Network()
    view = scored(network)
    primary = view.primary(AGGREGATION, 0)
    _, posted = acts_of(primary).propose(view, 0, view.usable)  # and nothing is stored
    (envelope,) = envelopes_in([posted])
    proposal = envelope.body
    assert isinstance(proposal, Proposal)
    wrong = signed_vote(primary, replace(proposal.request.vote, set_digest=NO_DIGEST))
    network.post(Envelope(DOMAIN, 1, primary, replace(proposal, request=wrong)))
    others = [RunningMember(network, m) for m in places_of(view)[1]]
    play(network, others)
    decided = network.chain.decided(1)
    assert decided is not None
    (incident,) = decode_incidents(network.blobs[decided.incidents]).incidents
    assert (incident.kind, incident.member) == (IncidentKind.WRONG_PROPOSAL, primary)
    assert incident.opening is not None
    assert network.blobs[incident.opening.record] == proposal.record


# A member over time.


def test_a_restart_recalls_what_the_journal_does_not_know() -> None:
    network = Network()
    view = requested(network)
    me = places_of(view)[1][0]
    process = RunningMember(network, me)
    backup = process.journal.backup()
    network.now = begin_of(view)
    process.deliver()
    process.step()
    (reply,) = said(network, me, EnvelopeKind.REPLY)
    process.restore(backup, mailbox_is_readable=True)
    process.look()
    assert isinstance(reply.body, Reply)
    other = replace(reply.body.reply.vote, result=NO_DIGEST)
    assert process.honest.steps._signer.vote(DOMAIN, other) is None


def test_who_cannot_read_the_mailbox_sits_the_round_out() -> None:
    network = Network()
    view = requested(network)
    process = RunningMember(network, places_of(view)[1][0])
    process.restore({}, mailbox_is_readable=False)
    network.now = begin_of(view)
    process.deliver()
    assert not process.step()
    assert process.next_time() is None


@pytest.mark.parametrize("lost", [EnvelopeKind.PAYLOAD, EnvelopeKind.SCORES])
def test_mail_that_reaches_one_member_only_blocks_no_round(lost: EnvelopeKind) -> None:
    network = Network()
    network.close()
    members = list(committee_of(network).values())
    chosen = network.closed_view()
    trainer = chosen.inputs.participants.trainers[0]
    source = trainer if lost is EnvelopeKind.PAYLOAD else members[0].client
    for _ in range(60):
        for place, process in enumerate(members):
            missing = [
                index
                for index in process.missing()
                if place == 0
                or (network.board[index].kind, network.board[index].client) != (lost, source)
            ]
            process.deliver(missing)
        came = [process.step() for process in members]
        if network.chain.pool:
            network.chain.mine(network.now)
        if network.chain.decided(1) is not None:
            break
        if not any(came):
            network.now = min(t for one in members if (t := one.next_time()) is not None)
    if network.chain.decided(1) is None:
        network.chain.mine_to(1 + PARAMETERS.commit_blocks, network.now)
        play(network, members)
    assert network.chain.decided(1) is not None


def test_does_not_sign_for_a_set_it_does_not_hold() -> None:
    network = Network()
    view, fewer = partly_scored(network)
    me = places_of(view)[1][0]
    opened = network.closed_view()
    lacking = network.grown(opened, [e for e in network.board if e.client != fewer[0]])
    assert envelopes_in(member(me).step(lacking, begin_of(view))) == []
