"""The view of a round and its timing: the chain up to its closing block, and envelopes.

Pure: a view grows by envelopes and payloads and is never changed. An envelope is genuine by what
it carries, not by its sender; others are skipped. One key can sign any number of statements, and
two are kept: they prove equivocation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from ledger.protocol import encoding
from ledger.protocol.documents.envelope import (
    Envelope,
    PhaseCertificate,
    Proposal,
    PublishedPayload,
    PublishedScores,
    Reply,
)
from ledger.protocol.documents.record import MAX_VECTOR_BYTES
from ledger.protocol.inputs import (
    Evidence,
    Inputs,
    Participants,
    participants_of,
    primary_seat,
    round_closing,
    window_end,
)
from ledger.protocol.judgement import usable_clients
from ledger.protocol.ledger_state import (
    EquivocationReport,
    MinedCommitment,
    QuorumCertificate,
    SignedStatement,
)
from ledger.protocol.parameters import MAX_VIEWS, Parameters
from ledger.protocol.payloads import Payload
from ledger.protocol.signing import is_signed_by
from ledger.protocol.types import (
    ClientId,
    Digest,
    Domain,
    Phase,
    Scores,
    SignedScores,
    SignedVote,
    Slot,
    Vote,
    VoteKind,
)
from ledger.protocol.validation import parse_vector

MAX_SETS_PER_MEMBER = 2 * MAX_VIEWS  # that are kept; an honest one scores one set in a view


@dataclass(frozen=True)
class ChainView:
    """An open round up to the last final block; S_c by places, commitments in chain order."""

    parameters: Parameters
    domain: Domain
    registry: tuple[encoding.RegisteredClient, ...]
    round: int
    seed: Digest
    committee: tuple[ClientId, ...]
    opened_block: int
    final_block: int
    commitments: tuple[MinedCommitment, ...]

    @property
    def window_end(self) -> int:
        return window_end(self.parameters, self.opened_block)

    @property
    def takes_commitments(self) -> bool:
        return self.final_block < self.window_end

    @property
    def missed_window(self) -> str:
        blocks = f"blocks {self.opened_block} to {self.window_end}"
        return f"round {self.round} took commitments in {blocks}, and {self.final_block} is newest"

    def participants(self) -> Participants:
        return self._participants

    @cached_property
    def _participants(self) -> Participants:
        drawn = self.round, self.seed, self.committee
        return participants_of(self.parameters, self.registry, *drawn)

    @cached_property
    def committed(self) -> frozenset[ClientId]:
        return frozenset(mined.client for mined in self.commitments)

    def inputs(self) -> Inputs | None:
        """Return what the chain has closed of the round, None while that is open."""
        participants = self.participants()
        closing = round_closing(
            self.window_end, participants.expected, self.final_block, self.commitments
        )
        if closing is None:
            return None
        run = self.parameters, self.domain, self.registry
        return Inputs(*run, self.round, self.seed, participants, closing)


@dataclass(frozen=True, slots=True)
class Holdings:
    """A member's holdings at one time: clients with a payload, and signed vectors."""

    payloads: frozenset[ClientId] = frozenset()
    claims: tuple[SignedScores, ...] = ()


@dataclass(frozen=True)
class RoundView:
    """A closed round, and what was published of it so far.

    All actors of a process share a view, so what follows from it alone is computed once. Announced
    are the payloads whose digest opens a commitment, held or not. At most two are kept: of claims
    for a member and set of clients, the smallest digests; of proposals for a phase and view, any
    that open their result. Different votes for a member and slot are limited to two as well.
    """

    inputs: Inputs
    closed_at: float  # time stamp of the closing block, in the chain's seconds
    evidence: Evidence
    announced: Mapping[ClientId, Digest] = field(default_factory=dict)
    claims: Mapping[tuple[ClientId, Digest], tuple[SignedScores, ...]] = field(default_factory=dict)
    proposals: Mapping[tuple[Phase, int], tuple[Proposal, ...]] = field(default_factory=dict)
    votes: Mapping[tuple[ClientId, Slot], tuple[SignedVote, ...]] = field(default_factory=dict)
    newest_block: int = 0  # of the chain, final or not, when the view last grew

    @property
    def voting_begins(self) -> float:
        """When view 0 of the aggregation begins, in the chain's seconds."""
        return self.closed_at + self.inputs.parameters.view_seconds

    def primary(self, phase: Phase, view: int) -> ClientId:
        committee = self.inputs.participants.committee
        return committee[primary_seat(self.inputs.seed, phase, view, len(committee))]

    def claims_for(self, clients: Digest) -> list[SignedScores]:
        pairs = [self.claims[key] for key in sorted(self.claims) if key[1] == clients]
        return [signed for pair in pairs for signed in pair]

    def sets_scored(self, member: ClientId) -> list[tuple[Digest, tuple[ClientId, ...] | None]]:
        """Return digest and clients (None if the vector is of another set) of a member's sets."""
        sets = []
        for (scorer, digest), claims in self.claims.items():
            if scorer == member:
                vector = parse_vector(self.evidence.vectors[claims[0].scores.digest])
                is_of_it = vector is not None and encoding.set_digest(vector.clients) == digest
                sets.append((digest, vector.clients if vector is not None and is_of_it else None))
        return sets

    def requests(self, phase: Phase, view: int) -> tuple[SignedVote, ...]:
        """Return the different requests that the primary of a view signed, two at most."""
        inputs = self.inputs
        slot = Slot(VoteKind.REQUEST, inputs.round, phase, view, inputs.closing.base)
        return self.votes.get((self.primary(phase, view), slot), ())

    @cached_property
    def held(self) -> Holdings:
        claims = (claim for pair in self.claims.values() for claim in pair)
        return Holdings(frozenset(self.evidence.payloads), tuple(claims))

    @cached_property
    def has_all_payloads(self) -> bool:
        committed = self.inputs.closing.commitments
        active = self.inputs.participants.active
        return all(c in self.evidence.payloads for c in active if c in committed)

    @cached_property
    def usable(self) -> tuple[ClientId, ...]:
        return usable_clients(self.inputs, self.evidence)

    def certificates(self, phase: Phase) -> list[QuorumCertificate]:
        """Return every certificate of a phase, lowest view first, with no reply too many."""
        return self._certificates[phase]

    @cached_property
    def _certificates(self) -> dict[Phase, list[QuorumCertificate]]:
        certificates: dict[Phase, list[QuorumCertificate]] = {phase: [] for phase in Phase}
        needed = self.inputs.parameters.replies
        for phase, view in sorted({(slot.phase, slot.view) for _, slot in self.votes}):
            for request in self.requests(phase, view):
                reply = replace(request.vote, kind=VoteKind.REPLY)
                slot = reply.slot
                replies = [
                    signed
                    for member in self.inputs.participants.committee
                    if member != request.member
                    for signed in self.votes.get((member, slot), ())
                    if signed.vote == reply
                ]
                if len(replies) >= needed:
                    certificates[phase].append(QuorumCertificate(request, tuple(replies[:needed])))
        return certificates

    def equivocations(self) -> list[EquivocationReport]:
        reports: dict[ClientId, EquivocationReport] = {}
        for (member, _), votes in self.votes.items():
            if len(votes) > 1:
                pair = (SignedStatement(v.vote, v.signature) for v in votes)
                reports.setdefault(member, EquivocationReport(member, *pair))
        for (member, _), claims in self.claims.items():
            if len(claims) > 1:
                pair = (SignedStatement(c.scores, c.signature) for c in claims)
                reports.setdefault(member, EquivocationReport(member, *pair))
        return [reports[member] for member in sorted(reports)]

    def with_payloads(self, payloads: Mapping[ClientId, Payload]) -> RoundView:
        """Return the view with more payloads; payloads that open no commitment are ignored."""
        commitments = self.inputs.closing.commitments
        genuine = {
            client: payload
            for client, payload in payloads.items()
            if commitments.get(client) == encoding.commitment_of(client, payload.digest)
            and client not in self.evidence.payloads
        }
        return replace(self, evidence=self.evidence.with_payloads(genuine)) if genuine else self

    def with_envelopes(self, envelopes: Iterable[Envelope]) -> RoundView:
        grown = _RoundViewBuilder(self)
        for envelope in envelopes:
            if (envelope.domain, envelope.round) == (self.inputs.domain, self.inputs.round):
                grown.take(envelope)
        return grown.view()


class _RoundViewBuilder:
    def __init__(self, view: RoundView) -> None:
        self._view = view
        self._inputs = view.inputs
        self._members = frozenset(view.inputs.participants.members)
        self._vectors = dict(view.evidence.vectors)
        self._announced = dict(view.announced)
        self._claims = dict(view.claims)
        self._proposals = dict(view.proposals)
        self._votes = dict(view.votes)

    def view(self) -> RoundView:
        evidence = self._view.evidence
        if self._vectors.keys() != evidence.vectors.keys():
            evidence = evidence.with_vectors(self._vectors)
        return replace(
            self._view,
            evidence=evidence,
            announced=self._announced,
            claims=self._claims,
            proposals=self._proposals,
            votes=self._votes,
        )

    def take(self, envelope: Envelope) -> None:
        match envelope.body:
            case PublishedPayload(digest):
                commitment = self._inputs.closing.commitments.get(envelope.client)
                if commitment == encoding.commitment_of(envelope.client, digest):
                    self._announced[envelope.client] = digest
            case PublishedScores():
                self._take_scores(envelope.body)
            case Proposal():
                self._take_proposal(envelope.body)
            case Reply(reply):
                if reply.vote.kind is VoteKind.REPLY:
                    self._take_vote(reply)
            case _:
                pass  # a commitment counts on the chain only

    def _take_scores(self, published: PublishedScores) -> None:
        signed, scores = published.signed, published.signed.scores
        if len(published.vector) > MAX_VECTOR_BYTES or not self._is_here(scores.member, scores):
            return
        key = (scores.member, scores.clients)
        known = self._claims.get(key, ())
        if not known:
            sets = sum(member == scores.member for member, _ in self._claims)
            if sets >= MAX_SETS_PER_MEMBER:
                return
        if any(claim.scores == scores for claim in known):
            return
        is_whole = encoding.sha256(published.vector) == scores.digest
        if not is_whole or not self._is_signed(scores.member, scores, signed.signature):
            return
        self._vectors[scores.digest] = published.vector
        claims = sorted([*known, signed], key=lambda claim: claim.scores.digest)
        self._claims[key] = tuple(claims[:2])
        for spare in claims[2:]:
            # One vector can be signed for two sets: it is kept as long as one of them has it.
            kept_elsewhere = {c.scores.digest for pair in self._claims.values() for c in pair}
            if spare.scores.digest not in kept_elsewhere:
                del self._vectors[spare.scores.digest]

    def _take_proposal(self, proposal: Proposal) -> None:
        vote = proposal.request.vote
        if vote.view >= MAX_VIEWS or vote.kind is not VoteKind.REQUEST:
            return
        if proposal.request.member != self._view.primary(vote.phase, vote.view):
            return
        if not self._take_vote(proposal.request) or not _is_whole(proposal):
            return
        if proposal.certificate is not None:
            self._take_certificate(vote, proposal.certificate)
        proposals = self._proposals.get((vote.phase, vote.view), ())
        if len(proposals) < 2 and all(p.request.vote != vote for p in proposals):
            self._proposals[vote.phase, vote.view] = (*proposals, proposal)

    def _take_certificate(self, asked: Vote, certificate: PhaseCertificate) -> None:
        """Keep the genuine votes of phase 1 that support a request of phase 2."""
        primary = self._view.primary(Phase.AGGREGATION, certificate.view)
        request = replace(
            asked, phase=Phase.AGGREGATION, view=certificate.view, set_digest=certificate.set_digest
        )
        if not self._take_vote(SignedVote(primary, request, certificate.request)):
            return
        reply = replace(request, kind=VoteKind.REPLY)
        # Anyone can attach any certificate: one reply of each member is examined.
        for member, signature in dict(certificate.replies).items():
            self._take_vote(SignedVote(member, reply, signature))

    def _take_vote(self, signed: SignedVote) -> bool:
        vote = signed.vote
        if vote.view >= MAX_VIEWS or not self._is_here(signed.member, vote):
            return False
        pair = self._votes.get((signed.member, vote.slot), ())
        if any(other.vote == vote for other in pair):
            return True
        if len(pair) == 2 or not self._is_signed(signed.member, vote, signed.signature):
            return False
        self._votes[signed.member, vote.slot] = (*pair, signed)
        return True

    def _is_here(self, member: ClientId, message: Vote | Scores) -> bool:
        about = (self._inputs.round, self._inputs.closing.base)
        return member in self._members and (message.round, message.base) == about

    def _is_signed(self, member: ClientId, message: Vote | Scores, signature: bytes) -> bool:
        address = self._inputs.registry[member].address
        return is_signed_by(address, self._inputs.domain, message, signature)


def _is_whole(proposal: Proposal) -> bool:
    """Return whether a request comes with what it rests on, and that opens its result."""
    if proposal.request.vote.phase is Phase.ELECTION:
        return proposal.certificate is not None
    opening, record = proposal.opening, proposal.record
    if opening is None or record is None:
        return False
    is_opened = encoding.aggregation_result(opening) == proposal.request.vote.result
    return is_opened and encoding.sha256(record) == opening.record


@dataclass(frozen=True, slots=True)
class ViewSpan:
    """One view in time; it lasts 0 seconds if its primary was banned when the round opened."""

    view: int
    begin: float
    seconds: float

    @property
    def quarter(self) -> float:
        """When the primary publishes its vector for all that it then holds."""
        return self.begin + self.seconds / 4

    @property
    def half(self) -> float:
        """When the primary makes its record."""
        return self.begin + self.seconds / 2

    @property
    def end(self) -> float:
        return self.begin + self.seconds


class VotingPosition(NamedTuple):
    """The phase and view of a member in a round; no view before the first and after the last."""

    phase: Phase
    span: ViewSpan | None


def view_at(inputs: Inputs, phase: Phase, begin: float, now: float) -> ViewSpan | None:
    """Return the view of a phase whose view 0 begins at a time; None before and after all views."""
    if now < begin:
        return None
    committee, banned = inputs.participants.committee, inputs.participants.banned
    for view in range(MAX_VIEWS):
        seconds = float(inputs.parameters.view_seconds * 2**view)
        if banned and committee[primary_seat(inputs.seed, phase, view, len(committee))] in banned:
            seconds = 0.0
        if now < begin + seconds:
            return ViewSpan(view, begin, seconds)
        begin += seconds
    return None


def seconds_of_turns(inputs: Inputs, turns: int) -> float:
    """Return how long a number of members have to send the decision where no block comes.

    Elsewhere a turn ends with a block, so that a sender that waits for a better next seed has a
    choice between one or two block hashes.
    """
    return turns * inputs.parameters.view_seconds / 4
