"""Honest participants: a trainer before the vote, and a committee member.

A trainer commits its update, and publishes it once all inputs are closed. One that departs from the
protocol subclasses the honest one and changes what it sends.

A member's actions follow from the data it sees and from the time. A step repeats everything
that has not been seen to arrive, so that a lost message costs only time. The journal limits a key
to one vote for each slot and one vector for each set of updates, whatever is lost or repeated.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

from ledger.actors import steps
from ledger.actors.journal import ProtectedSigner, VoteJournal
from ledger.actors.view import (
    ChainView,
    Holdings,
    RoundView,
    ViewSpan,
    VotingPosition,
    seconds_of_turns,
    view_at,
)
from ledger.protocol.documents.envelope import Envelope, Proposal, PublishedPayload
from ledger.protocol.encoding import commitment_of, set_digest, vector_view
from ledger.protocol.inputs import Inputs, sending_order
from ledger.protocol.parameters import majority
from ledger.protocol.payloads import Payload
from ledger.protocol.signing import Signer, sign
from ledger.protocol.types import (
    ClientId,
    Commitment,
    Digest,
    Domain,
    Phase,
    SignedCommitment,
    VoteKind,
)


class Trainer:
    """A client that trains, whether it also serves on the committee or not."""

    def __init__(self, client: ClientId, signer: Signer, update: Payload | None = None) -> None:
        """Prepare to take part in one round, with the update that it has committed to, if any."""
        self.client = client
        self._signer = signer
        self._payload = update

    def commit(self, chain: ChainView, update: Payload | None) -> list[steps.Action]:
        self._payload = None if update is None else self.payload_for(update)
        is_banned = chain.registry[self.client].is_banned_in(chain.round)
        has_committed = self.client in chain.committed
        if self._payload is None or has_committed or is_banned or not chain.takes_commitments:
            return []
        return [self.signed(chain, commitment_of(self.client, self._payload.digest))]

    def publish(self, view: RoundView) -> list[steps.Action]:
        payload = self._payload
        if payload is None or self.client in view.announced:
            return []
        counted = view.inputs.closing.commitments.get(self.client)
        if counted != commitment_of(self.client, payload.digest):
            return []
        body = PublishedPayload(payload.digest)
        envelope = Envelope(view.inputs.domain, view.inputs.round, self.client, body)
        return [steps.StoreBlobs(payloads={self.client: payload}), steps.PostEnvelope(envelope)]

    def act_while_voting(self, view: RoundView) -> list[steps.Action]:  # noqa: ARG002
        """Do nothing: an honest trainer's part is over."""
        return []

    def payload_for(self, update: Payload) -> Payload | None:
        """Return what is sent in place of an update: itself, from an honest trainer."""
        return update

    def signed(self, inputs: ChainView | Inputs, commitment: Digest) -> steps.SendCommitment:
        statement = Commitment(inputs.round, self.client, commitment)
        signature = sign(self._signer, inputs.domain, statement)
        return steps.SendCommitment(SignedCommitment(statement, signature))


class MemberActor(Protocol):
    """A committee member as a simulation or a worker steps it, honest or not."""

    @property
    def client(self) -> ClientId:
        """Its index."""

    def step(self, view: RoundView, now: float) -> list[steps.Action]:
        """Return what there is to do."""

    def next_time(self, view: RoundView, now: float) -> float | None:
        """Return when there may be something to do though nothing new arrives."""


class Member:
    """A member that does what the algorithms say."""

    def __init__(
        self, client: ClientId, signer: Signer, journal: VoteJournal, judge: steps.JudgementCache
    ) -> None:
        self.client = client
        self._signer = ProtectedSigner(client, signer, journal)
        self._judge = judge
        self.steps = steps.ProtocolSteps(self._signer, judge)
        self._about: tuple[int, Digest] | None = None
        self._seen = Holdings()
        self._in_time: dict[int, Holdings] = {}
        self._scored_in: dict[int, tuple[ClientId, ...]] = {}
        self._settled: tuple[float, int] | None = None  # time and block

    def recall(self, domain: Domain, envelopes: Iterable[Envelope]) -> None:
        """Record this member's own envelopes of the round, before the first step."""
        self._signer.adopt(domain, envelopes)

    def step(self, view: RoundView, now: float) -> list[steps.Action]:
        if self.client not in view.inputs.participants.members:
            return []
        about = (view.inputs.round, view.inputs.closing.base)
        if about != self._about:
            self._about, self._seen, self._settled = about, Holdings(), None
            self._in_time, self._scored_in = {}, {}
        if view.certificates(Phase.AGGREGATION):
            actions = self._elect(view, now) + self._settle(view, now)
        else:
            actions = self._aggregate(view, now)
        self._seen = view.held
        return actions

    def present(self, view: RoundView, now: float) -> VotingPosition:
        phase, begin = self._phase(view, now)
        return VotingPosition(phase, view_at(view.inputs, phase, begin, now))

    def _phase(self, view: RoundView, now: float) -> tuple[Phase, float]:
        if view.certificates(Phase.AGGREGATION):
            return Phase.ELECTION, self._signer.first_certificate_time(view.inputs, now)
        return Phase.AGGREGATION, view.voting_begins

    def next_time(self, view: RoundView, now: float) -> float | None:
        """Return when there may be something to do though nothing new is seen, None if never."""
        phase, begin = self._phase(view, now)
        times = [begin]
        if phase is Phase.AGGREGATION:
            times.append(begin - view.inputs.parameters.view_seconds / 2)
        elif self._settled is not None:
            times.append(self._settled[0] + seconds_of_turns(view.inputs, self._turn(view)))
        span = view_at(view.inputs, phase, begin, now)
        if span is not None:
            times += [span.quarter, span.half, span.end]
        return min((time for time in times if time > now), default=None)

    def _aggregate(self, view: RoundView, now: float) -> list[steps.Action]:
        begin = view.voting_begins
        span = view_at(view.inputs, Phase.AGGREGATION, begin, now)
        if span is None:
            half = view.inputs.parameters.view_seconds / 2
            is_due = view.has_all_payloads or now >= begin - half
            return self.steps.publish_scores(view, view.usable) if is_due and now < begin else []
        # What was held before the view began: the last step's, nothing after a restart.
        self._in_time.setdefault(span.view, self._seen)
        if view.primary(Phase.AGGREGATION, span.view) == self.client:
            return self._lead(view, span, now)
        actions = self._follow_scores(view, span)
        for proposal in self._to_answer(view, Phase.AGGREGATION, span.view):
            actions += self.steps.answer(view, proposal, self._in_time[span.view])
        return actions

    def _lead(self, view: RoundView, span: ViewSpan, now: float) -> list[steps.Action]:
        """Return what a primary does in its view: at a quarter a vector, at half time a record."""
        if view.requests(Phase.AGGREGATION, span.view):
            return []
        clients = view.usable
        actions: list[steps.Action] = []
        if now >= span.quarter and span.view not in self._scored_in:
            self._scored_in[span.view] = clients
            actions += self.steps.publish_payloads(view, clients)
        # Again, until it is seen to have arrived: the mailbox may have lost it.
        if span.view in self._scored_in:
            actions += self.steps.publish_scores(view, self._scored_in[span.view])
        scorers = set(view.inputs.participants.members) & set(clients)
        scored = {signed.scores.member for signed in view.claims_for(set_digest(clients))}
        is_complete = view.has_all_payloads and scored >= scorers
        if now < span.half and not is_complete:
            return actions
        needed = majority(view.inputs.parameters.members)
        for chosen in dict.fromkeys((clients, *_sets_scored(view, self.client))):
            if len(view.claims_for(set_digest(chosen))) >= needed:
                proposed = self.steps.propose(view, span.view, chosen)
                if proposed:
                    return actions + proposed
        return actions

    def _follow_scores(self, view: RoundView, span: ViewSpan) -> list[steps.Action]:
        """Return a vector for the set of the primary's newest one, for one set a view at most."""
        chosen = next(iter(_sets_scored(view, view.primary(Phase.AGGREGATION, span.view))), ())
        scored = self._scored_in.get(span.view)
        if not chosen or (scored is not None and scored != chosen):
            return []
        if chosen != view.usable and not set(view.usable).issuperset(chosen):
            return []
        actions = self.steps.publish_scores(view, chosen)
        if actions:
            self._scored_in[span.view] = chosen
        return actions

    def _elect(self, view: RoundView, now: float) -> list[steps.Action]:
        span = self.present(view, now).span
        if span is None:
            return []
        if view.primary(Phase.ELECTION, span.view) != self.client:
            proposals = self._to_answer(view, Phase.ELECTION, span.view)
            return [action for p in proposals for action in self.steps.answer_election(view, p)]
        if view.requests(Phase.ELECTION, span.view):
            return []
        for certificate in view.certificates(Phase.AGGREGATION):
            actions = self.steps.propose_election(view, span.view, certificate)
            if actions:
                return actions
        return []

    def _settle(self, view: RoundView, now: float) -> list[steps.Action]:
        """Return the decision and the proofs of equivocation, when it is this member's turn."""
        settlement = steps.settlement_of(view, self._judge)
        if settlement is None:
            return []
        if self._settled is None:
            self._settled = now, view.newest_block
        (since, block), turn = self._settled, self._turn(view)
        if view.newest_block < block + turn and now < since + seconds_of_turns(view.inputs, turn):
            return []
        judgement = settlement.judgement
        digest, incidents = steps.incidents_of(view, self._judge, settlement)
        documents = [Payload(vector_view(judgement.model), judgement.opening.model)]
        if incidents is not None:
            documents.append(Payload(incidents, digest))
            # An accusation opens to a record, which the accused need not have stored.
            proposed = steps.proposals_of(view, Phase.AGGREGATION)
            documents += [Payload.of(p.record) for p in proposed if p.record is not None]
        decision, certificates = steps.decision_of(view, settlement, digest)
        return [
            steps.StoreBlobs(tuple(documents)),
            *reports_of(view),
            steps.SendDecision(view.inputs.round, decision, certificates),
        ]

    def _turn(self, view: RoundView) -> int:
        return sending_order(view.inputs.seed, view.inputs.participants.members).index(self.client)

    def _to_answer(self, view: RoundView, phase: Phase, number: int) -> list[Proposal]:
        """Return the only request of a view, if this member has not answered it yet."""
        proposals = view.proposals.get((phase, number), ())
        if len(proposals) != 1 or len(view.requests(phase, number)) != 1:
            return []
        slot = replace(proposals[0].request.vote, kind=VoteKind.REPLY).slot
        return [] if (self.client, slot) in view.votes else [proposals[0]]


def reports_of(view: RoundView) -> list[steps.SendReport]:
    """Return the proofs of equivocation against clients that are not banned yet."""
    registry = view.inputs.registry
    return [
        steps.SendReport(report)
        for report in view.equivocations()
        if not registry[report.client].banned_in
    ]


def _sets_scored(view: RoundView, member: ClientId) -> list[tuple[ClientId, ...]]:
    # The newest is the largest: an honest member holds more and more. Vectors may overtake each
    # other, and anyone can send an old one again.
    sets = [clients for _, clients in view.sets_scored(member) if clients is not None]
    return sorted(sets, key=len, reverse=True)
