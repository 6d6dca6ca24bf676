"""Each act of the algorithms: said where everything it needs is there, and not said otherwise."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledger.actors.journal import ProtectedSigner
from ledger.actors.participants import Trainer
from ledger.actors.steps import (
    Action,
    JudgementCache,
    PostEnvelope,
    ProtocolSteps,
    SendCommitment,
    StoreBlobs,
)
from ledger.actors.view import Holdings, RoundView
from ledger.protocol.documents.envelope import (
    Envelope,
    EnvelopeKind,
    Proposal,
    PublishedPayload,
    PublishedScores,
    Reply,
)
from ledger.protocol.documents.record import RoundRecord, decode_record
from ledger.protocol.encoding import commitment_of, set_digest, sha256
from ledger.protocol.payloads import Payload
from ledger.protocol.signing import is_signed_by
from ledger.protocol.types import NO_DIGEST, ClientId, DropoutReason, Phase, VoteKind
from ledger.protocol.validation import parse_vector
from tests.actors.support import (
    Network,
    PowerCutJournal,
    acts_of,
    blobs_in,
    elected,
    envelopes_in,
    replied,
    requested,
    rests_on,
    scored,
    seen,
    signed_vote,
    signers,
)
from tests.support.keys import DOMAIN

AGGREGATION, ELECTION = Phase.AGGREGATION, Phase.ELECTION


def others_of(view: RoundView, phase: Phase = AGGREGATION, number: int = 0) -> list[ClientId]:
    primary = view.primary(phase, number)
    return [member for member in view.inputs.participants.members if member != primary]


def proposal_in(view: RoundView, phase: Phase = AGGREGATION, number: int = 0) -> Proposal:
    (proposal,) = view.proposals[phase, number]
    return proposal


def proposal_record(view: RoundView) -> RoundRecord:
    return decode_record(proposal_in(view).record or b"")


def held_of(view: RoundView) -> Holdings:
    claims = tuple(claim for pair in view.claims.values() for claim in pair)
    return Holdings(frozenset(view.evidence.payloads), claims)


# Scores.


def test_scores_a_set_once() -> None:
    network = Network()
    view = scored(network, *network.chain.state.committee[:1])
    me, other = view.inputs.participants.members[:2]
    assert acts_of(me).publish_scores(view, view.usable) == []
    (envelope,) = envelopes_in(acts_of(other).publish_scores(view, view.usable))
    assert isinstance(envelope.body, PublishedScores)
    assert envelope.body.signed.scores.clients == set_digest(view.usable)
    vector = parse_vector(envelope.body.vector)
    assert vector is not None
    assert vector.clients == view.usable
    assert acts_of(me).publish_scores(view, view.usable[:-1]) != []


def test_does_not_sign_a_vector_other_than_the_journalled_one() -> None:
    network = Network()
    network.close()
    view, journal = seen(network, ()), PowerCutJournal()
    me = view.inputs.participants.members[0]
    (envelope,) = envelopes_in(acts_of(me, journal).publish_scores(view, view.usable))
    assert isinstance(envelope.body, PublishedScores)
    (place,) = journal._pending
    journal.restore({place: b"another digest"})
    assert acts_of(me, journal).publish_scores(view, view.usable) == []


def test_publishes_payloads_as_their_clients_have() -> None:
    network = Network()
    network.close()
    view = seen(network, ())
    one, other = view.usable[:2]
    actions = acts_of(view.inputs.participants.members[0]).publish_payloads(view, (one, other))
    assert [type(action) for action in actions] == [StoreBlobs, PostEnvelope] * 2
    for client, envelope in zip((one, other), envelopes_in(actions), strict=True):
        digest = sha256(network.payload(1, client))
        assert envelope == Envelope(DOMAIN, 1, client, PublishedPayload(digest))


# Phase 1.


def test_a_request_covers_a_full_record_stored_before_posting() -> None:
    network = Network()
    view = scored(network)
    primary = view.primary(AGGREGATION, 0)
    stored, posted = acts_of(primary).propose(view, 0, view.usable)
    assert isinstance(stored, StoreBlobs)
    view = seen(network, [stored, posted])
    proposal = proposal_in(view)
    assert set(rests_on(view, proposal.request.vote.result)) == set(blobs_in(stored))
    assert proposal.record is not None
    record = decode_record(proposal.record)
    assert record.clients == view.usable
    assert len(record.scores) == 5
    assert record.refused == ()
    assert record.dropouts == ()


def test_a_request_for_fewer_names_the_others_as_missing() -> None:
    network = Network()
    view = scored(network)
    fewer = view.usable[1:]
    for member in view.inputs.participants.members:
        view = seen(network, acts_of(member).publish_scores(view, fewer))
    view = seen(network, acts_of(view.primary(AGGREGATION, 0)).propose(view, 0, fewer))
    record = decode_record(proposal_in(view).record or b"")
    assert record.clients == fewer
    (dropout,) = record.dropouts
    assert (dropout.client, dropout.reason) == (view.usable[0], DropoutReason.PAYLOAD_MISSING)


def test_a_malformed_payload_is_named_and_stored() -> None:
    network = Network()
    chain = network.open_chain()
    client = chain.participants().trainers[2]
    network.payloads[1, client] = b"malformed"
    view = requested(network)
    (dropout,) = decode_record(proposal_in(view).record or b"").dropouts
    assert (dropout.client, dropout.reason) == (client, DropoutReason.PAYLOAD_MALFORMED)
    assert dropout.payload == sha256(b"malformed")
    me = others_of(view)[0]
    stored, _ = acts_of(me).answer(view, proposal_in(view), Holdings())
    assert isinstance(stored, StoreBlobs)
    assert dropout.payload in blobs_in(stored)


def test_nothing_is_requested_of_which_nothing_follows() -> None:
    network = Network()
    members = network.chain.state.committee
    view = scored(network, *members[:2])  # two vectors are no majority of five
    assert acts_of(view.primary(AGGREGATION, 0)).propose(view, 0, view.usable) == []


def test_a_second_request_in_a_view_is_not_signed() -> None:
    network, journal = Network(), PowerCutJournal()
    members = network.chain.state.committee
    view = scored(network, *members[:3])
    primary = acts_of(view.primary(AGGREGATION, 0), journal)
    first = primary.propose(view, 0, view.usable)
    assert first != []
    view = scored(network, *members[3:])
    assert primary.propose(view, 0, view.usable) == []
    assert primary.propose(view, 1, view.usable) != []


def test_replies_to_a_true_record_after_storing_its_evidence() -> None:
    network = Network()
    view = requested(network)
    me = others_of(view)[0]
    stored, posted = acts_of(me).answer(view, proposal_in(view), held_of(view))
    assert isinstance(stored, StoreBlobs)
    assert isinstance(posted, PostEnvelope)
    assert isinstance(posted.envelope.body, Reply)
    asked = proposal_in(view).request.vote
    assert posted.envelope.body.reply == signed_vote(me, replace(asked, kind=VoteKind.REPLY))
    assert set(blobs_in(stored)) == set(rests_on(view, asked.result))


def test_does_not_reply_to_what_does_not_follow() -> None:
    network = Network()
    view = requested(network)
    me, proposal = others_of(view)[0], proposal_in(view)
    vote = proposal.request.vote
    for wrong in (replace(vote, set_digest=NO_DIGEST), replace(vote, result=NO_DIGEST)):
        asked = replace(proposal, request=signed_vote(proposal.request.member, wrong))
        assert acts_of(me).answer(view, asked, Holdings()) == []
    for record in (None, b"no record"):
        assert acts_of(me).answer(view, replace(proposal, record=record), Holdings()) == []


def test_does_not_reply_without_the_evidence_of_the_record() -> None:
    network = Network()
    full = requested(network)
    me, opened = others_of(full)[0], network.closed_view()
    without_payloads = opened.with_envelopes(network.board)
    assert acts_of(me).answer(without_payloads, proposal_in(full), Holdings()) == []
    kinds = [e for e in network.board if e.kind is not EnvelopeKind.SCORES]
    without_vectors = network.grown(opened, kinds)
    assert acts_of(me).answer(without_vectors, proposal_in(full), Holdings()) == []


def test_does_not_reply_twice_otherwise_in_a_view() -> None:
    network, journal = Network(), PowerCutJournal()
    view = requested(network)
    me, asked = others_of(view)[0], proposal_in(view).request.vote
    signed = signed_vote(me, replace(asked, kind=VoteKind.REPLY, result=NO_DIGEST))
    before = Envelope(DOMAIN, 1, me, Reply(signed))
    acts = acts_of(me, journal)
    acts._signer.adopt(DOMAIN, [before])
    assert acts.answer(view, proposal_in(view), Holdings()) == []


def test_a_member_posts_a_missing_vector_instead_of_replying() -> None:
    network = Network()
    members = network.chain.state.committee
    late = members[4]
    view = scored(network, *members[:4])
    primary = view.primary(AGGREGATION, 0)
    view = seen(network, acts_of(primary).propose(view, 0, view.usable))
    full = scored(network, late)
    me = next(m for m in others_of(view) if m != late)
    (envelope,) = envelopes_in(acts_of(me).answer(full, proposal_in(full), held_of(full)))
    assert isinstance(envelope.body, PublishedScores)
    assert envelope.body.signed.scores.member == envelope.client == late
    # What came after the view began need not be in the record.
    assert len(acts_of(me).answer(full, proposal_in(full), held_of(view))) == 2


def test_who_misses_a_payload_in_the_record_publishes_it_first() -> None:
    network = Network()
    view = scored(network)
    fewer = view.usable[1:]
    for member in view.inputs.participants.members:
        view = seen(network, acts_of(member).publish_scores(view, fewer))
    view = seen(network, acts_of(view.primary(AGGREGATION, 0)).propose(view, 0, fewer))
    me, missing = others_of(view)[0], view.usable[0]
    in_time = Holdings(frozenset({missing}))
    stored, posted = acts_of(me).answer(view, proposal_in(view), in_time)
    payload = network.payload(1, missing)
    assert isinstance(stored, StoreBlobs)
    assert stored.payloads == {missing: view.evidence.payloads[missing]}
    assert blobs_in(stored).keys() == {sha256(payload)}
    assert isinstance(posted, PostEnvelope)
    assert posted.envelope.body == PublishedPayload(sha256(payload))
    assert len(acts_of(me).answer(view, proposal_in(view), Holdings())) == 2


def test_members_that_share_a_judge_act_as_each_with_its_own() -> None:
    network, judge = Network(), JudgementCache()
    network.close()
    view = seen(network, ())
    for step in ("scores", "answers", "more answers"):
        acts: list[Action] = []
        for member in view.inputs.participants.members:
            shared = ProtocolSteps(
                ProtectedSigner(member, signers()[member], PowerCutJournal()), judge
            )
            both = [
                one.publish_scores(view, view.usable)
                if step == "scores"
                else one.answer(view, proposal_in(view), held_of(view))
                for one in (shared, acts_of(member))
            ]
            assert both[0] == both[1]
            acts += both[0]
        view = seen(network, acts)
        if step == "scores":
            asks = acts_of(view.primary(AGGREGATION, 0)).propose(view, 0, view.usable)
            view = seen(network, asks)
    assert view.certificates(AGGREGATION)


def test_a_shared_judge_judges_again_once_the_evidence_has_come() -> None:
    network, judge = Network(), JudgementCache()
    full = requested(network)
    record = proposal_in(full).record or b""
    without_payloads = network.closed_view().with_envelopes(network.board)
    doubts = judge.judge(without_payloads, record)
    assert doubts[0] is None
    assert judge.judge(without_payloads, record) is doubts
    judgement, _ = judge.judge(full, record)
    assert judgement is not None
    assert judge.judge(without_payloads, record)[0] is judgement, "what follows stays"


def test_a_shared_judge_asks_each_member_for_its_own_holdings() -> None:
    network, judge = Network(), JudgementCache()
    view = requested(network)
    missing = replace(proposal_record(view), scores=proposal_record(view).scores[1:])
    (left_out,) = set(proposal_record(view).scores) - set(missing.scores)
    held, other = held_of(view), Holdings()
    for _ in range(2):
        (omission,) = judge.omissions(missing, held.payloads, held.claims)
        assert omission.clients == (left_out.scores.member,)
        assert judge.omissions(missing, other.payloads, other.claims) == []


def test_what_a_vote_rests_on_follows_the_evidence() -> None:
    network, judge = Network(), JudgementCache()
    view = requested(network)
    record = proposal_record(view)
    stored = judge.stored(view.evidence, record)
    assert stored is judge.stored(view.evidence, record)
    fewer = view.evidence.with_vectors({})
    assert len(stored.documents) == 1 + len(record.scores)
    assert len(judge.stored(fewer, record).documents) == 1
    assert judge.stored(view.evidence, record) == stored


# Phase 2.


def test_requests_the_election_on_a_certificate_that_it_stands_behind() -> None:
    network = Network()
    view = replied(network)
    primary = view.primary(ELECTION, 0)
    (certificate,) = view.certificates(AGGREGATION)
    (posted,) = acts_of(primary).propose_election(view, 0, certificate)
    view = seen(network, [posted])
    vote = proposal_in(view, ELECTION).request.vote
    assert vote.result == certificate.vote.result
    assert vote.base == certificate.vote.base


@pytest.mark.parametrize("lack", ["the certificate", "the payloads", "the record"])
def test_does_not_reply_in_phase_2_without(lack: str) -> None:
    network = Network()
    full, opened = elected(network), network.closed_view()
    me, proposal = others_of(full, ELECTION)[0], proposal_in(full, ELECTION)
    board = {
        "the certificate": [e for e in network.board if e.kind is not EnvelopeKind.REPLY],
        "the payloads": [e for e in network.board if e.kind is not EnvelopeKind.PAYLOAD],
        "the record": [e for e in network.board if e.kind is not EnvelopeKind.REQUEST],
    }
    asked = Envelope(DOMAIN, 1, proposal.request.member, proposal)  # it brings the certificate
    partial = network.grown(opened, [e for e in board[lack] if e != asked])
    assert acts_of(me).answer_election(partial, proposal) == []
    assert acts_of(me).answer_election(full, proposal) != []


def test_does_not_reply_to_another_committee_or_result_than_follows() -> None:
    network = Network()
    view = elected(network)
    me, proposal = others_of(view, ELECTION)[0], proposal_in(view, ELECTION)
    vote = proposal.request.vote
    for wrong in (replace(vote, set_digest=NO_DIGEST), replace(vote, result=NO_DIGEST)):
        asked = replace(proposal, request=signed_vote(proposal.request.member, wrong))
        assert acts_of(me).answer_election(view, asked) == []


# An honest client commits once and in time, and publishes nothing before all inputs are closed.


ME = ClientId(3)
PAYLOAD = Payload.of(b"an update")


def trainer(client: int = ME, update: Payload | None = None) -> Trainer:
    return Trainer(ClientId(client), signers()[client], update)


def test_commits_its_payload_bound_to_itself() -> None:
    chain = Network().open_chain()
    (action,) = trainer().commit(chain, PAYLOAD)
    assert isinstance(action, SendCommitment)
    commitment = action.signed.commitment
    assert commitment.commitment == commitment_of(ME, sha256(b"an update"))
    assert (commitment.round, commitment.client) == (1, ME)
    assert is_signed_by(signers()[ME].address, DOMAIN, commitment, action.signed.signature)


def test_commits_again_until_the_commitment_is_recorded() -> None:
    network = Network()
    actions = trainer().commit(network.open_chain(), PAYLOAD)
    assert trainer().commit(network.open_chain(), PAYLOAD) == actions
    network.apply(actions[0])
    network.chain.mine(0.0)
    assert trainer().commit(network.open_chain(), PAYLOAD) == []
    assert trainer(4).commit(network.open_chain(), PAYLOAD) != []


def test_does_not_commit_when_the_window_is_over() -> None:
    network = Network()
    chain = network.open_chain()
    network.chain.mine_to(chain.opened_block + chain.parameters.commit_blocks, 0.0)
    assert trainer().commit(network.open_chain(), PAYLOAD) == []


def test_does_not_commit_when_banned_before_the_round() -> None:
    chain = Network().open_chain()
    registry = list(chain.registry)
    registry[ME] = replace(registry[ME], banned_in=1)
    assert trainer().commit(replace(chain, registry=tuple(registry)), PAYLOAD) != []
    assert trainer().commit(replace(chain, registry=tuple(registry), round=2), PAYLOAD) == []


def test_publishes_what_counts_until_it_is_announced() -> None:
    network = Network()
    view = network.close()
    (client, *_) = view.inputs.participants.active
    payload = Payload.of(network.payload(1, client))
    store, post = trainer(client, payload).publish(view)
    assert store == StoreBlobs(payloads={client: payload})
    assert isinstance(post, PostEnvelope)
    assert post.envelope.body == PublishedPayload(sha256(network.payload(1, client)))
    assert trainer(client, payload).publish(view.with_envelopes([post.envelope])) == []


def test_publishes_nothing_that_does_not_count() -> None:
    network = Network()
    absent = network.open_chain().participants().trainers[0]
    view = network.close(absent)
    present = view.inputs.participants.trainers[1]
    assert trainer(absent, Payload.of(network.payload(1, absent))).publish(view) == []
    assert trainer(present, Payload.of(b"another update")).publish(view) == []
