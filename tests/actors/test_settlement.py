"""A round's end: both certificates, what the contract is sent, and the incidents of each kind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ledger.actors.steps import (
    JudgementCache,
    decision_of,
    incidents_of,
    is_certain,
    settlement_of,
)
from ledger.actors.view import RoundView
from ledger.protocol.documents.envelope import (
    Envelope,
    EnvelopeKind,
    PhaseCertificate,
    Proposal,
    Reply,
)
from ledger.protocol.documents.record import Incident, decode_incidents
from ledger.protocol.encoding import sha256, vector_bytes
from ledger.protocol.rules.distance import plain_server_step
from ledger.protocol.types import NO_DIGEST, ClientId, IncidentKind, Phase, VoteKind
from ledger.protocol.validation import Violation, ViolationCode
from tests.actors.support import (
    Network,
    acts_of,
    answered,
    elected,
    envelopes_in,
    replied,
    requested,
    scored,
    seen,
    signed_vote,
    update_of,
    with_empty_seat,
)
from tests.support.keys import DOMAIN

AGGREGATION, ELECTION = Phase.AGGREGATION, Phase.ELECTION


def incidents_in(view: RoundView) -> tuple[Incident, ...]:
    settlement = settlement_of(view, JudgementCache())
    assert settlement is not None
    digest, data = incidents_of(view, JudgementCache(), settlement)
    if data is None:
        assert digest == NO_DIGEST
        return ()
    assert digest == sha256(data)
    return decode_incidents(data).incidents


def later_view(view: RoundView, phase: Phase) -> int:
    """Return the first view of a phase whose primary has not led one before."""
    return next(v for v in range(1, 20) if view.primary(phase, v) != view.primary(phase, 0))


def decided_in(network: Network, view: RoundView, first: int, second: int = 0) -> RoundView:
    """Return the round with certificates of these views, whatever was said in others."""
    primary = view.primary(AGGREGATION, first)
    view = seen(network, acts_of(primary).propose(view, first, view.usable))
    answered(network, first)
    return elected(network, second)


def honest_request(view: RoundView, number: int) -> Proposal:
    primary = view.primary(AGGREGATION, number)
    (envelope,) = envelopes_in(acts_of(primary).propose(view, number, view.usable))
    assert isinstance(envelope.body, Proposal)
    return envelope.body


def post(network: Network, member: ClientId, body: Proposal | Reply) -> RoundView:
    network.post(Envelope(DOMAIN, 1, member, body))
    return seen(network, ())


# The settlement.


def test_a_round_is_settled_by_two_certificates_of_one_record() -> None:
    network = Network()
    view = elected(network)
    settlement = settlement_of(view, JudgementCache())
    assert settlement is not None
    first, second = settlement.certificates
    assert first.vote.result == second.vote.result == settlement.judgement.result
    decision, certificates = decision_of(view, settlement, NO_DIGEST)
    assert decision.opening() == settlement.judgement.opening
    assert decision.base == view.inputs.closing.base
    for certificate, submitted in zip(settlement.certificates, certificates, strict=True):
        places = [view.inputs.participants.committee.index(r.member) for r in certificate.replies]
        assert submitted.signers == sum(1 << place for place in places)
        assert len(submitted.replies) == len(places)


def test_a_round_is_not_settled_by_who_cannot_judge_it() -> None:
    network = Network()
    elected(network)
    opened = network.closed_view()
    assert settlement_of(opened.with_envelopes(network.board), JudgementCache()) is None


def test_a_certificate_for_another_set_settles_nothing() -> None:
    # No honest member replies to such a request, so it takes as many liars as there are replies.
    network = Network()
    view = replied(network)
    (certificate,) = view.certificates(AGGREGATION)
    vote = replace(certificate.vote, phase=ELECTION, set_digest=NO_DIGEST)
    primary = view.primary(ELECTION, 0)
    certificate_of_nothing = PhaseCertificate(0, NO_DIGEST, bytes(65), ())
    asked = Proposal(signed_vote(primary, vote), certificate=certificate_of_nothing)
    view = post(network, primary, asked)
    for member in view.inputs.participants.members:
        if member != primary:
            reply = signed_vote(member, replace(vote, kind=VoteKind.REPLY))
            view = post(network, member, Reply(reply))
    assert len(view.certificates(ELECTION)) == 1
    assert settlement_of(view, JudgementCache()) is None


def test_of_two_settled_views_the_lowest_is_taken() -> None:
    network = Network()
    view = elected(network)
    later = later_view(view, AGGREGATION)
    view = decided_in(network, view, later, later_view(view, ELECTION))
    settlement = settlement_of(view, JudgementCache())
    assert settlement is not None
    assert [c.vote.view for c in settlement.certificates] == [0, 0]


def test_certificates_of_two_records_settle_nothing_together() -> None:
    # Two records of one base, with other vectors and the same sets: the trainers lie far apart.
    network = Network()
    chain, members = network.chain.view(), network.chain.state.committee
    assert chain is not None
    for place, trainer in enumerate(chain.participants().trainers):
        network.payloads[1, trainer] = vector_bytes((10 + place) * update_of(1, 0))
    view = scored(network, *members[:4])
    seen(network, acts_of(view.primary(AGGREGATION, 0)).propose(view, 0, view.usable))
    answered(network, 0)
    view = scored(network, members[4])
    later = later_view(view, AGGREGATION)
    view = decided_in(network, view, later)  # the election rests on the later one
    first, second = (found.vote for found in view.certificates(AGGREGATION))
    assert first.set_digest == second.set_digest
    assert first.result != second.result
    settlement = settlement_of(view, JudgementCache())
    assert settlement is not None
    assert [c.vote.view for c in settlement.certificates] == [later, 0]
    assert {c.vote.result for c in settlement.certificates} == {second.result}


# Incidents.


def test_the_primaries_of_views_without_a_request_were_silent() -> None:
    network = Network()
    view = scored(network)
    first, second = later_view(view, AGGREGATION), later_view(view, ELECTION)
    view = decided_in(network, view, first, second)
    expected = [
        Incident(phase, number, view.primary(phase, number), IncidentKind.SILENT)
        for phase, last in ((AGGREGATION, first), (ELECTION, second))
        for number in range(last)
    ]
    assert list(incidents_in(view)) == expected


def test_no_incident_is_told_of_an_empty_seat() -> None:
    network = with_empty_seat()
    view = scored(network)
    assert view.primary(AGGREGATION, 0) in view.inputs.participants.banned
    view = decided_in(network, view, later_view(view, AGGREGATION), later_view(view, ELECTION))
    assert {incident.phase for incident in incidents_in(view)} <= {ELECTION}


@pytest.mark.parametrize("phase", list(Phase))
def test_a_right_request_that_was_not_decided_had_no_quorum(phase: Phase) -> None:
    network = Network()
    view = scored(network)
    if phase is AGGREGATION:
        view = post(network, view.primary(phase, 0), honest_request(view, 0))
        view = decided_in(network, view, later_view(view, phase))
    else:
        view = replied(network)
        (certificate,) = view.certificates(AGGREGATION)
        primary = view.primary(phase, 0)
        view = seen(network, acts_of(primary).propose_election(view, 0, certificate))
        view = elected(network, later_view(view, phase))
    incident = incidents_in(view)[0]
    assert incident == Incident(phase, 0, view.primary(phase, 0), IncidentKind.NO_QUORUM)


def test_a_request_for_a_wrong_set_is_a_wrong_proposal() -> None:
    network = Network()
    view = scored(network)
    right, primary = honest_request(view, 0), view.primary(AGGREGATION, 0)
    wrong = signed_vote(primary, replace(right.request.vote, set_digest=NO_DIGEST))
    view = post(network, primary, replace(right, request=wrong))
    view = decided_in(network, view, later_view(view, AGGREGATION))
    incident = incidents_in(view)[0]
    kind = IncidentKind.WRONG_PROPOSAL
    assert incident == Incident(AGGREGATION, 0, primary, kind, (wrong,), right.opening)


def test_a_request_for_another_committee_is_a_wrong_proposal() -> None:
    network = Network()
    view = replied(network)
    (certificate,) = view.certificates(AGGREGATION)
    primary = view.primary(ELECTION, 0)
    (envelope,) = envelopes_in(acts_of(primary).propose_election(view, 0, certificate))
    assert isinstance(envelope.body, Proposal)
    wrong = signed_vote(primary, replace(envelope.body.request.vote, set_digest=NO_DIGEST))
    view = post(network, primary, replace(envelope.body, request=wrong))
    view = elected(network, later_view(view, ELECTION))
    incident = incidents_in(view)[0]
    settlement = settlement_of(view, JudgementCache())
    assert settlement is not None
    kind, opening = IncidentKind.WRONG_PROPOSAL, settlement.judgement.opening
    assert incident == Incident(ELECTION, 0, primary, kind, (wrong,), opening)


def test_nobody_is_accused_without_the_evidence_of_the_request() -> None:
    # The primary of view 0 had one payload more than the settling member ever gets.
    network = Network()
    view = scored(network)
    first, missing = view.primary(AGGREGATION, 0), view.inputs.participants.trainers[0]
    view = post(network, first, honest_request(view, 0))
    fewer = tuple(client for client in view.usable if client != missing)
    for member in view.inputs.participants.members:
        view = seen(network, acts_of(member).publish_scores(view, fewer))
    later = later_view(view, AGGREGATION)
    second = view.primary(AGGREGATION, later)
    seen(network, acts_of(second).propose(view, later, fewer))
    answered(network, later)
    view = elected(network)
    opened = network.closed_view()
    announced = (EnvelopeKind.PAYLOAD, missing)
    lacking = [e for e in network.board if (e.kind, e.client) != announced]
    for settling in (view, network.grown(opened, lacking)):
        incident = incidents_in(settling)[0]
        assert incident == Incident(AGGREGATION, 0, first, IncidentKind.NO_QUORUM)


def test_two_votes_in_one_slot_are_one_incident_with_proof() -> None:
    network = Network()
    view = elected(network)
    guilty = view.inputs.participants.members[0]
    for (member, slot), (vote, *_) in list(view.votes.items()):
        if member == guilty:
            other = signed_vote(guilty, replace(vote.vote, result=NO_DIGEST))
            if slot.kind is VoteKind.REPLY:
                view = post(network, guilty, Reply(other))
    found = incidents_in(view)
    assert found
    assert {incident.kind for incident in found} == {IncidentKind.EQUIVOCATION}
    assert {incident.member for incident in found} == {guilty}
    for incident in found:
        first, second = incident.votes
        assert first.vote.result <= second.vote.result
        assert first.vote.slot == second.vote.slot


# What follows from a record is computed once, and again where more is held or all has changed.


@pytest.fixture
def network() -> Network:
    network = Network()
    requested(network)
    return network


@pytest.fixture
def view(network: Network) -> RoundView:
    return seen(network, ())


def record_in(view: RoundView) -> bytes:
    (proposal,) = view.proposals[Phase.AGGREGATION, 0]
    assert proposal.record is not None
    return proposal.record


def test_bytes_that_are_no_record_are_one_doubt(view: RoundView) -> None:
    judge = JudgementCache()
    assert judge.judge(view, b"no record") == (
        None,
        (Violation(ViolationCode.OTHER_ROUND_OR_BASE),),
    )
    assert judge.judge(view, b"no record")[0] is None
    assert judge.judge(view, record_in(view))[0] is not None


def test_the_given_server_step_makes_the_model(view: RoundView) -> None:
    def doubled(*asked: Any) -> NDArray[np.float32]:
        return 2 * plain_server_step(*asked)

    plain, _ = JudgementCache().judge(view, record_in(view))
    other, _ = JudgementCache(step=doubled).judge(view, record_in(view))
    assert plain is not None
    assert other is not None
    assert other.model.tolist() == (2 * plain.model).tolist()


def test_record_is_judged_again_with_its_payload(network: Network, view: RoundView) -> None:
    judge, opened = JudgementCache(), network.closed_view()
    partial = opened.with_envelopes(network.board)
    judgement, violations = judge.judge(partial, record_in(view))
    assert judgement is None
    assert {doubt.code for doubt in violations} == {ViolationCode.UPDATE_MISSING}
    assert not is_certain(violations)
    assert judge.judge(view, record_in(view))[0] is not None


def test_nothing_is_cached_of_a_reorganised_round(view: RoundView) -> None:
    # A reorganisation can leave the base as it was and change who takes part, or the model.
    judge, inputs = JudgementCache(), view.inputs
    assert judge.judge(view, record_in(view))[0] is not None
    seats = inputs.participants
    fewer = replace(seats, trainers=seats.trainers[1:])
    elsewhere = replace(view, inputs=replace(inputs, participants=fewer))
    judgement, violations = judge.judge(elsewhere, record_in(view))
    assert judgement is None
    assert violations[0].code is ViolationCode.NOT_THE_ACTIVE_CLIENTS

    model = view.evidence.model
    assert model is not None
    moved = replace(view, evidence=replace(view.evidence, model=model + 1))
    here, there = judge.judge(view, record_in(view))[0], judge.judge(moved, record_in(view))[0]
    assert here is not None
    assert there is not None
    assert here.result != there.result
