"""Algorithms 1 to 3 played by members over real keys, against every fault of a member."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.protocol import algorithms, encoding, ledger_state
from ledger.protocol.algorithms import committee_consensus, training, voting
from ledger.protocol.consensus import Certificate, primary_place, quorum
from ledger.protocol.documents import Incident
from ledger.protocol.errors import ConsensusError
from ledger.protocol.parameters import Parameters
from ledger.protocol.types import NO_DIGEST, ClientId, Digest, Phase, SignedVote, Vote, VoteKind
from tests.protocol import actors
from tests.protocol.actors import Honest, Run, Silent, Table
from tests.protocol.support import SEED, Shelf, f32, ids, small_round

# The seed of zeros makes places 2, 4, 2, 3, 1, 3, 3, 2 of five primaries of the aggregation's
# views and 3, 3, 2, 4, 1, 3, 0, 2 of the election's (see test_consensus).
PARAMETERS = Parameters(
    clients=11,
    active_rate=1.0,
    committee_rate=0.45,
    aggregation_rate=0.5,
    rounds=3,
    dimension=1,
)


def table(parameters: Parameters = PARAMETERS) -> Table:
    """Return a round in which all members have scored: clients 0 to 4, and 5 to 10 train."""
    found = small_round(parameters, {i: float(i) for i in range(parameters.clients)})
    seen = Table(parameters, found.electorate, found.updates, f32(0.0))
    for member in seen.committee():
        member.broadcast_scores()
    return seen


def vote_on(
    seen: Table,
    faults: dict[int, type[Honest]],
    phase: Phase = Phase.AGGREGATION,
    seed: Digest = SEED,
) -> tuple[Certificate, tuple[Incident, ...]]:
    return voting(1, seed, seen.committee(faults), phase, seen.is_signed)


def sizes(members: int) -> Parameters:
    """Return parameters with this many members (3, 5 or 7) and one trainer more."""
    return replace(PARAMETERS, clients=2 * members + 1)


@pytest.mark.parametrize("phase", Phase)
def test_an_honest_committee_agrees_in_the_first_view(phase: Phase) -> None:
    seen = table()
    certificate, incidents = vote_on(seen, {}, phase)
    vote = certificate.vote
    assert (vote.kind, vote.round, vote.phase, vote.view) == (VoteKind.REQUEST, 1, phase, 0)
    assert (vote.set_digest, vote.result) == seen.decision.voted(phase)
    assert certificate.request.member == {Phase.AGGREGATION: 2, Phase.ELECTION: 3}[phase]
    assert incidents == ()


def test_a_certificate_holds_exactly_a_quorum_of_others_by_their_places() -> None:
    certificate, _ = vote_on(table(), {})
    assert [reply.member for reply in certificate.replies] == [0, 1, 3]
    reply = replace(certificate.vote, kind=VoteKind.REPLY)
    assert all(answer.vote == reply for answer in certificate.replies)


def test_a_silent_primary_is_replaced_in_view_one() -> None:
    certificate, incidents = vote_on(table(), {2: Silent})
    assert (certificate.vote.view, certificate.request.member) == (1, 4)
    assert incidents == (Incident(Phase.AGGREGATION, 0, ClientId(2), algorithms.SILENT, ()),)


def test_a_primary_may_come_again_in_a_later_view() -> None:
    # Places 2, 4 and again 2 fail; place 3 is primary of view 3 but one reply is missing then.
    with pytest.raises(ConsensusError):
        vote_on(table(), {2: Silent, 4: Silent})
    certificate, incidents = vote_on(table(), {2: actors.WrongProposer, 4: Silent})
    assert certificate.vote.view == 3
    assert [(i.view, i.member, i.kind) for i in incidents] == [
        (0, 2, algorithms.WRONG_PROPOSAL),
        (1, 4, algorithms.SILENT),
        (2, 2, algorithms.WRONG_PROPOSAL),
    ]


def test_a_primary_that_equivocates_is_replaced_and_its_two_votes_are_kept() -> None:
    seen = table()
    certificate, (incident, again) = vote_on(seen, {2: actors.Equivocator})
    assert certificate.vote.view == 1
    assert (again.view, again.member) == (1, 2), "it equivocates as a replica too"
    assert (incident.member, incident.kind) == (2, algorithms.EQUIVOCATION)
    first, second = incident.votes
    assert seen.is_signed(first)
    assert seen.is_signed(second)
    assert first.vote != second.vote
    assert replace(second.vote, set_digest=first.vote.set_digest) == first.vote


def test_a_member_that_equivocates_is_named_but_its_right_reply_counts() -> None:
    certificate, (incident,) = vote_on(table(), {0: actors.Equivocator})
    assert certificate.vote.view == 0
    assert [reply.member for reply in certificate.replies] == [0, 1, 3]
    assert (incident.member, incident.kind, incident.view) == (0, algorithms.EQUIVOCATION, 0)
    assert len({answer.vote for answer in incident.votes}) == 2


def test_a_member_that_equivocates_in_every_view_is_named_once_with_two_votes() -> None:
    class Scribbler(actors.Equivocator):
        """Signs many votes for everything."""

        def reply(self, request: SignedVote) -> tuple[SignedVote, ...]:
            vote = replace(request.vote, kind=VoteKind.REPLY)
            return tuple(self.signed(replace(vote, timestamp=t)) for t in range(5))

    with pytest.raises(ConsensusError) as failed:
        vote_on(table(), dict.fromkeys((0, 1, 2), Scribbler))
    as_replicas = [
        incident
        for incident in failed.value.incidents
        if incident.votes and incident.votes[0].vote.kind is VoteKind.REPLY
    ]
    assert sorted(incident.member for incident in as_replicas) == [0, 1, 2]
    assert all(len(incident.votes) == 2 for incident in as_replicas)


def test_a_wrong_proposal_is_named_once_the_right_one_is_known() -> None:
    certificate, (incident,) = vote_on(table(), {2: actors.WrongProposer})
    assert certificate.vote.view == 1
    assert (incident.member, incident.kind) == (2, algorithms.WRONG_PROPOSAL)
    assert incident.votes[0].vote.set_digest == encoding.set_digest(())


def test_a_right_proposal_without_a_quorum_is_not_called_wrong() -> None:
    seen = table()

    class Late(Honest):
        """Does not hear the first view."""

        def reply(self, request: SignedVote) -> tuple[SignedVote, ...]:
            return super().reply(request) if request.vote.view else ()

    certificate, (incident,) = vote_on(seen, {0: Late, 1: Late})
    assert certificate.vote.view == 1
    assert (incident.member, incident.kind) == (2, algorithms.NO_QUORUM)


@pytest.mark.parametrize("members", [3, 5, 7])
@pytest.mark.parametrize("fault", [Silent, actors.Forger, actors.Dissenter, actors.Copier])
def test_all_that_a_quorum_can_spare_are_survived_and_one_more_is_not(
    members: int, fault: type[Honest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(algorithms, "MAX_VIEWS", 24)
    seen = table(sizes(members))
    primary = primary_place(SEED, Phase.AGGREGATION, 0, members)
    others = [place for place in range(members) if place != primary]
    spared = members - 1 - quorum(members)
    certificate, incidents = vote_on(seen, dict.fromkeys(others[:spared], fault))
    assert len(certificate.replies) == quorum(members) == members // 2 + 1
    assert incidents == ()
    # One more: that honest primary gets no quorum, and the other views none either.
    with pytest.raises(ConsensusError, match="no quorum in 24 views") as caught:
        vote_on(seen, dict.fromkeys(others[: spared + 1], fault))
    assert len(caught.value.incidents) == 24


@pytest.mark.parametrize("fault", [actors.Forger, actors.Copier])
def test_a_request_by_another_than_the_primary_is_as_good_as_none(fault: type[Honest]) -> None:
    certificate, (incident,) = vote_on(table(), {2: fault})
    assert certificate.vote.view == 1
    assert (incident.member, incident.kind, incident.votes) == (2, algorithms.SILENT, ())


@pytest.mark.parametrize(
    "change",
    [{"view": 1}, {"phase": Phase.ELECTION}, {"round": 2}, {"kind": VoteKind.REPLY}],
    ids=["view", "phase", "round", "kind"],
)
def test_votes_for_another_slot_are_not_heard(change: dict[str, Any]) -> None:
    # Signed and by the right member, but a certificate over it would not hold.
    class Elsewhere(Honest):
        def signed(self, vote: Vote) -> SignedVote:
            return super().signed(replace(vote, **change))

    certificate, (incident,) = vote_on(table(), {2: Elsewhere})
    assert certificate.vote.view == 1
    assert incident.kind == algorithms.SILENT
    if "kind" not in change:
        certificate, incidents = vote_on(table(), {0: Elsewhere})
        assert [reply.member for reply in certificate.replies] == [1, 3, 4]
        assert incidents == ()


def test_the_same_vote_twice_is_no_equivocation() -> None:
    certificate, incidents = vote_on(table(), dict.fromkeys(range(5), actors.Stutterer))
    assert incidents == ()
    assert len({reply.member for reply in certificate.replies}) == len(certificate.replies) == 3


def test_no_view_without_end() -> None:
    with pytest.raises(ConsensusError, match="no quorum in 256 views of phase election") as caught:
        vote_on(table(), dict.fromkeys(range(5), Silent), Phase.ELECTION)
    assert len(caught.value.incidents) == algorithms.MAX_VIEWS == 256


FAULTS: list[type[Honest]] = [
    Silent,
    actors.WrongProposer,
    actors.Equivocator,
    actors.Forger,
    actors.Dissenter,
    actors.Copier,
    actors.Stutterer,
]
SEVEN = table(sizes(7))


@given(
    seed=st.binary(min_size=32, max_size=32).map(Digest),
    phase=st.sampled_from(Phase),
    faults=st.dictionaries(st.integers(0, 6), st.sampled_from(FAULTS), max_size=2),
)
def test_two_faulty_members_of_seven_neither_stop_nor_turn_a_vote(
    seed: Digest, phase: Phase, faults: dict[int, type[Honest]]
) -> None:
    certificate, incidents = vote_on(SEVEN, faults, phase, seed)
    vote = certificate.vote
    assert (vote.set_digest, vote.result) == SEVEN.decision.voted(phase)
    assert certificate.request.member == primary_place(seed, phase, vote.view, 7)
    signing = {certificate.request.member, *(reply.member for reply in certificate.replies)}
    assert len(signing) == 1 + len(certificate.replies) == 1 + quorum(7)
    assert all(SEVEN.is_signed(v) for v in (certificate.request, *certificate.replies))
    # Nobody honest is accused, and every failed view has its incident.
    assert {incident.member for incident in incidents} <= set(faults)
    failed = {i.view for i in incidents if i.member == primary_place(seed, phase, i.view, 7)}
    assert failed == set(range(vote.view))


def unscored() -> Table:
    """Return the round before anybody has scored."""
    seen = table()
    return replace(seen, published=[], shelf=Shelf())


def test_a_round_ends_with_one_decision_and_two_certificates() -> None:
    seen = unscored()
    decision, certificates, incidents = committee_consensus(
        1, SEED, seen.committee(), seen.is_signed
    )
    assert len(seen.published) == 5
    # Members are at 0 .. 4, so the trainers at 5 .. 10 are ranked in this order.
    assert decision.accepted == ids(5, 6, 7)
    assert decision.next_committee == ids(5, 6, 7, 8, 9)
    assert [c.vote.phase for c in certificates] == [Phase.AGGREGATION, Phase.ELECTION]
    assert incidents == ()


def test_incidents_of_both_phases_are_kept() -> None:
    seen = unscored()
    _, certificates, incidents = committee_consensus(
        1, SEED, seen.committee({3: actors.WrongProposer, 2: actors.Equivocator}), seen.is_signed
    )
    found = [(i.phase, i.view, i.member, i.kind) for i in incidents]
    assert (Phase.AGGREGATION, 0, 2, algorithms.EQUIVOCATION) in found
    assert (Phase.ELECTION, 0, 3, algorithms.WRONG_PROPOSAL) in found
    assert all(c.vote.view > 0 for c in certificates)


def test_without_scores_no_round_is_decided() -> None:
    class Mute(Honest):
        def broadcast_scores(self) -> None:
            return

    seen = unscored()
    with pytest.raises(ConsensusError, match="0 score vectors count, and 3 are needed"):
        committee_consensus(1, SEED, seen.committee(dict.fromkeys(range(5), Mute)), seen.is_signed)


def test_evidence_of_the_first_phase_survives_the_failure_of_the_second() -> None:
    class SilentInElection(actors.Equivocator):
        def request(self, phase: Phase, view: int) -> tuple[SignedVote, ...]:
            return () if phase is Phase.ELECTION else super().request(phase, view)

        def reply(self, request: SignedVote) -> tuple[SignedVote, ...]:
            return () if request.vote.phase is Phase.ELECTION else super().reply(request)

    seen = unscored()
    committee = seen.committee({0: SilentInElection, 1: SilentInElection})
    with pytest.raises(ConsensusError, match="of phase election") as caught:
        committee_consensus(1, SEED, committee, seen.is_signed)
    kinds = [(i.phase, i.member, i.kind) for i in caught.value.incidents]
    assert kinds[:2] == [
        (Phase.AGGREGATION, 0, algorithms.EQUIVOCATION),
        (Phase.AGGREGATION, 1, algorithms.EQUIVOCATION),
    ]


def test_a_majority_that_certifies_what_nobody_can_show_ends_the_round() -> None:
    class Colluder(Honest):
        """Votes for an empty set, whatever it has computed."""

        def vote(self, kind: VoteKind, phase: Phase, view: int) -> Vote:
            right = super().vote(kind, phase, view)
            return replace(right, set_digest=encoding.set_digest(()), result=NO_DIGEST)

        def reply(self, request: SignedVote) -> tuple[SignedVote, ...]:
            vote = request.vote
            return (self.signed(self.vote(VoteKind.REPLY, vote.phase, vote.view)),)

    seen = unscored()
    with pytest.raises(ConsensusError, match="nobody who replied has the decision"):
        committee_consensus(
            1, SEED, seen.committee(dict.fromkeys(range(5), Colluder)), seen.is_signed
        )


def test_a_run_ends_after_its_last_round() -> None:
    run = Run(PARAMETERS, {})
    training(run, run, run.is_signed)
    decided = [event for event in run.events if isinstance(event, ledger_state.RoundDecided)]
    assert [event.round for event in decided] == [1, 2, 3]
    assert run.incidents == [(), (), ()]
    assert run.state.model == encoding.sha256(encoding.vector_bytes(run.model))
    assert decided[0].next_committee != decided[1].next_committee


def test_equal_runs_end_in_equal_heads() -> None:
    one, other = Run(PARAMETERS, {}), Run(PARAMETERS, {})
    for run in (one, other):
        training(run, run, run.is_signed)
    assert one.state == other.state
    changed = Run(replace(PARAMETERS, server_rate=0.5), {})
    training(changed, changed, changed.is_signed)
    assert changed.state.head != one.state.head


def test_faulty_clients_leave_a_run_as_it_would_be_without_them() -> None:
    honest = Run(PARAMETERS, {})
    training(honest, honest, honest.is_signed)
    faulty = Run(PARAMETERS, {honest.state.deployment.committee[0]: actors.WrongProposer})
    training(faulty, faulty, faulty.is_signed)
    assert faulty.state.model == honest.state.model


def test_a_round_without_agreement_is_abandoned_and_the_next_one_goes_on() -> None:
    first = Run(PARAMETERS, {}).committee
    run = Run(PARAMETERS, dict.fromkeys(first[:2], Silent))
    while run.round == 1:
        algorithms.training_round(run, run, run.is_signed)
    opened, committed, abandoned = run.events[-3:]
    assert isinstance(opened, ledger_state.LedgerOpened)
    assert isinstance(committed, ledger_state.UpdatesCommitted)
    assert isinstance(abandoned, ledger_state.RoundAbandoned)
    assert run.committee == abandoned.next_committee != first
    assert run.model.tolist() == [0.0], "the model is left as it was"
    assert len(run.incidents[0]) == algorithms.MAX_VIEWS
