"""Where an open round stands: by blocks, by genuine envelopes, and by the time alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from api.open_round import FirstSeen, round_after_closing, round_before_closing
from api.schemas import ActiveClient, OpenRound
from ledger.actors.steps import Action, PostEnvelope
from ledger.actors.view import RoundView
from ledger.protocol.documents.envelope import Envelope, Proposal, Reply
from ledger.protocol.encoding import set_digest, to_hex
from ledger.protocol.inputs import Evidence, sending_order
from ledger.protocol.types import NO_DIGEST, ClientId, Phase, Vote, VoteKind
from tests.actors.support import (
    PARAMETERS,
    Network,
    acts_of,
    answered,
    elected,
    replied,
    requested,
    scored,
    seen,
    signed_vote,
)
from tests.support.keys import DOMAIN

AGGREGATION, ELECTION = Phase.AGGREGATION, Phase.ELECTION
SECONDS = float(PARAMETERS.view_seconds)
NEVER = FirstSeen()


def block_time(_: int) -> int:
    """Return one time for all blocks: what is late does not depend on it."""
    return 1_000


def at(network: Network, view: RoundView, after: float, first_seen: FirstSeen = NEVER) -> OpenRound:
    """Return where a round stands so many seconds after it was closed."""
    now = view.closed_at + after
    seen_first = first_seen.after_poll(view, now)
    return round_after_closing(network.open_chain(), view, seen_first, now, block_time)


def of(standing: OpenRound, client: int) -> ActiveClient:
    return next(one for one in standing["clients"] if one["client"] == client)


def late(standing: OpenRound) -> dict[int, float | None]:
    return {client: of(standing, client)["late_since"] for client in standing["late"]}


def primary_of(standing: OpenRound) -> int:
    assert standing["view"] is not None
    return standing["view"]["primary"]


def with_vote(view: RoundView, member: ClientId, vote: Vote) -> RoundView:
    body = Reply(signed_vote(member, vote))
    return view.with_envelopes([Envelope(DOMAIN, view.inputs.round, member, body)])


def proposal_of(actions: list[Action]) -> Proposal:
    envelopes = [one.envelope for one in actions if isinstance(one, PostEnvelope)]
    return next(one.body for one in envelopes if isinstance(one.body, Proposal))


# While commitments are taken.


def test_a_round_that_has_opened_waits_for_everybodys_commitment() -> None:
    network = Network()
    chain = network.open_chain()
    standing = round_before_closing(chain, block_time)
    assert standing["stage"] == "committing"
    assert (standing["window_block"], standing["deadline_block"]) == (
        chain.opened_block + 4,
        chain.opened_block + 60,
    )
    assert [one["client"] for one in standing["clients"]] == list(chain.participants().active)
    awaited = [{"act": "commitment", "due": None}]
    assert all(one["awaited"] == awaited for one in standing["clients"])
    assert standing["late"] == []


# Once it is closed.


def test_who_never_committed_is_late_from_the_closing_block_on() -> None:
    network = Network()
    absent = network.open_chain().participants().trainers[0]
    network.close(absent)
    view = seen(network, ())
    standing = at(network, view, 1.0)
    assert late(standing) == {absent: view.closed_at}
    assert of(standing, absent)["awaited"] == [{"act": "commitment", "due": view.closed_at}]
    assert of(standing, absent)["counts"] is False


def test_a_payload_is_late_once_members_score_without_it() -> None:
    network = Network()
    active = network.open_chain().participants().active
    network.commit(*active)
    network.chain.mine(network.now)
    network.publish(*active[1:])
    view = seen(network, ())
    due = view.closed_at + SECONDS / 2
    assert late(at(network, view, SECONDS / 2)) == {}
    assert late(at(network, view, SECONDS / 2 + 0.1)) == {active[0]: due}
    network.publish(active[0])
    view = seen(network, ())
    standing = at(network, view, SECONDS / 2 + 0.1)
    assert late(standing) == {}
    assert of(standing, active[0])["payload"] == to_hex(view.announced[active[0]])


def test_a_members_scores_are_late_once_view_0_has_begun() -> None:
    network = Network()
    network.close()
    members = seen(network, ()).inputs.participants.members
    view = scored(network, *members[1:])
    standing = at(network, view, SECONDS + 0.1)
    assert standing["stage"] == "aggregating"
    assert of(standing, members[0])["late_since"] == view.closed_at + SECONDS
    one = of(standing, members[1])
    assert one["scored"] == [{"clients": to_hex(set_digest(view.usable)), "size": 12}]
    assert one["late_since"] is None


def test_a_primary_is_late_from_half_of_its_view_on() -> None:
    network = Network()
    view = scored(network)
    primary = view.primary(AGGREGATION, 0)
    before, after = at(network, view, 1.5 * SECONDS), at(network, view, 1.5 * SECONDS + 0.1)
    assert primary_of(before) == primary_of(after) == primary
    assert late(before) == {}
    assert late(after) == {primary: view.closed_at + 1.5 * SECONDS}
    assert of(after, primary)["awaited"] == [
        {"act": "request", "due": view.closed_at + 1.5 * SECONDS}
    ]


def test_a_silent_primary_brings_view_1_and_is_recorded() -> None:
    network = Network()
    view = scored(network)
    standing = at(network, view, 2 * SECONDS)
    assert standing["view"] == {
        "phase": "aggregation",
        "number": 1,
        "primary": view.primary(AGGREGATION, 1),
        "begins": view.closed_at + 2 * SECONDS,
        "ends": view.closed_at + 4 * SECONDS,
    }
    silent = of(standing, view.primary(AGGREGATION, 0))
    assert silent["passed"] == [{"phase": "aggregation", "view": 0}]


def test_a_reply_is_late_from_three_quarters_of_a_view() -> None:
    network = Network()
    view = requested(network)
    primary, *_ = others = [
        view.primary(AGGREGATION, 0),
        *(m for m in view.inputs.participants.members if m != view.primary(AGGREGATION, 0)),
    ]
    view = answered(network, 0, others[1:3])
    due = view.closed_at + 1.75 * SECONDS
    assert late(at(network, view, 1.75 * SECONDS)) == {}
    assert late(at(network, view, 1.75 * SECONDS + 0.1)) == dict.fromkeys(sorted(others[3:]), due)
    assert of(at(network, view, SECONDS), primary)["votes"] == [
        {"kind": "request", "phase": "aggregation", "view": 0, "different": 1}
    ]


def test_the_first_certificate_starts_phase_2_and_ends_phase_1() -> None:
    network = Network()
    view = replied(network)
    standing = at(network, view, 1.2 * SECONDS)
    assert standing["stage"] == "electing"
    assert standing["certified"] == {"aggregation": 0, "election": None}
    assert standing["view"] is not None
    assert standing["view"]["begins"] == view.closed_at + 1.2 * SECONDS
    primary = view.primary(ELECTION, 0)
    assert primary_of(standing) == primary
    assert [one["client"] for one in standing["clients"] if one["awaited"]] == [primary]


def test_a_late_observer_takes_phase_2_views_from_the_votes() -> None:
    network = Network()
    view = replied(network)
    primary = view.primary(ELECTION, 1)
    (certificate, *_) = view.certificates(AGGREGATION)
    view = seen(network, acts_of(primary).propose_election(view, 1, certificate))
    other = next(m for m in view.inputs.participants.members if m != primary)
    vote = replace(view.requests(ELECTION, 1)[0].vote, kind=VoteKind.REPLY)
    view = with_vote(view, other, vote)
    standing = at(network, view, 10 * SECONDS)
    assert standing["view"] is not None
    assert standing["view"]["number"] == 1
    assert primary_of(standing) == primary


def test_votes_in_future_views_make_nobody_late_in_earlier_ones() -> None:
    network = Network()
    view = replied(network)
    honest = at(network, view, 1.2 * SECONDS)
    liar = view.inputs.participants.members[0]
    base = view.requests(AGGREGATION, 0)[0].vote
    for number in (1, 7, 31):
        vote = replace(base, kind=VoteKind.REPLY, phase=ELECTION, view=number)
        view = with_vote(view, liar, vote)
    standing = at(network, view, 1.2 * SECONDS)
    assert standing["view"] == honest["view"]
    assert standing["late"] == []
    assert all(one["passed"] == [] for one in standing["clients"])


def test_a_decision_is_expected_from_one_member_after_another() -> None:
    network = Network()
    view = elected(network)
    settled = view.closed_at + 2 * SECONDS
    first_seen = FirstSeen().after_poll(view, settled)
    standing = at(network, view, 2 * SECONDS, first_seen)
    assert (standing["stage"], standing["certified"]) == (
        "deciding",
        {"aggregation": 0, "election": 0},
    )
    turns = sending_order(view.inputs.seed, view.inputs.participants.members)
    due = {member: settled + (turn + 1) * SECONDS / 4 for turn, member in enumerate(turns)}
    awaited = {one["client"]: one["awaited"] for one in standing["clients"] if one["awaited"]}
    assert {client: acts[0]["due"] for client, acts in awaited.items()} == due
    # Just over two turns later the first two are late.
    assert list(late(at(network, view, 2.5 * SECONDS + 0.1, first_seen))) == list(turns[:2])


def test_two_votes_in_slot_are_reported_and_need_no_answer() -> None:
    network = Network()
    view = requested(network)
    primary = view.primary(AGGREGATION, 0)
    other = replace(view.requests(AGGREGATION, 0)[0].vote, result=NO_DIGEST)
    proposal = view.proposals[AGGREGATION, 0][0]
    body = replace(proposal, request=signed_vote(primary, other))
    view = view.with_envelopes([Envelope(DOMAIN, view.inputs.round, primary, body)])
    standing = at(network, view, 1.9 * SECONDS)
    assert [one["client"] for one in standing["clients"] if one["equivocated"]] == [primary]
    assert [vote["different"] for vote in of(standing, primary)["votes"]] == [2]
    assert standing["late"] == []


@pytest.mark.parametrize(
    "without",
    [lambda one: replace(one, record=None), lambda one: replace(one, opening=None)],
    ids=["record", "opening"],
)
def test_a_request_without_its_evidence_makes_only_its_primary_late(
    without: Callable[[Proposal], Proposal],
) -> None:
    network = Network()
    view = scored(network)
    primary = view.primary(AGGREGATION, 0)
    proposal = proposal_of(acts_of(primary).propose(view, 0, view.usable))
    body = without(proposal)
    view = view.with_envelopes([Envelope(DOMAIN, view.inputs.round, primary, body)])
    assert len(view.requests(AGGREGATION, 0)) == 1
    assert list(late(at(network, view, 1.9 * SECONDS))) == [primary]


def test_member_that_rightly_refuses_a_proposal_still_counts_as_late() -> None:
    network = Network()
    view = scored(network)
    primary = view.primary(AGGREGATION, 0)
    proposal = proposal_of(acts_of(primary).propose(view, 0, view.usable))
    wrong = replace(proposal.request.vote, set_digest=NO_DIGEST)
    body = replace(proposal, request=signed_vote(primary, wrong))
    view = view.with_envelopes([Envelope(DOMAIN, view.inputs.round, primary, body)])
    others = set(view.inputs.participants.members) - {primary}
    assert set(late(at(network, view, 1.9 * SECONDS))) == others


def test_a_forged_signature_says_nothing_about_the_member() -> None:
    network = Network()
    view = requested(network)
    primary = view.primary(AGGREGATION, 0)
    victim, liar = [m for m in view.inputs.participants.members if m != primary][:2]
    vote = replace(view.requests(AGGREGATION, 0)[0].vote, kind=VoteKind.REPLY)
    forged = Reply(signed_vote(victim, vote, key=liar))
    view = view.with_envelopes([Envelope(DOMAIN, view.inputs.round, victim, forged)])
    assert of(at(network, view, SECONDS), victim)["votes"] == []
    genuine = Reply(signed_vote(victim, vote))
    view = view.with_envelopes([Envelope(DOMAIN, view.inputs.round, liar, genuine)])
    assert len(of(at(network, view, SECONDS), victim)["votes"]) == 1


def test_an_unreadable_mailbox_makes_nobody_late() -> None:
    network = Network()
    network.close()
    view = network.closed_view()
    now = view.closed_at + 1.9 * SECONDS
    chain = network.open_chain()
    assert len(round_after_closing(chain, view, NEVER, now, block_time)["late"]) == 12
    unread = round_after_closing(chain, view, NEVER, now, block_time, mailbox_is_readable=False)
    assert unread["late"] == []


@pytest.mark.parametrize("after", [0.5, 1.2, 1.9, 2.5])
def test_who_holds_no_payload_sees_the_same(after: float) -> None:
    network = Network()
    view = requested(network)
    blank = RoundView(
        view.inputs, view.closed_at, Evidence(None, {}, {}, PARAMETERS.dimension), {}, {}, {}, {}
    )
    after_poll = blank.with_envelopes(network.board)
    assert after_poll.evidence.payloads == {}
    assert at(network, after_poll, after * SECONDS) == at(network, view, after * SECONDS)
