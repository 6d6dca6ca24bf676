"""Algorithms 1, 2 and 3 of the paper, one function each, in the paper's line order.

The numbers in the margin are the paper's lines. What the paper leaves to "each client" and "each
member" are the methods of `Clients` and `Member`: a simulation plays them all in one process, a
worker plays one of them. `Ledger` is the contract, which refuses whatever does not follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from ledger.protocol.consensus import Certificate, primary_place, quorum
from ledger.protocol.documents import Incident
from ledger.protocol.errors import ConsensusError
from ledger.protocol.sampling import sample_trainers
from ledger.protocol.types import ClientId, Digest, Phase, SignedVote, Vote, VoteKind

if TYPE_CHECKING:
    from ledger.protocol.decision import Decision

IsSigned = Callable[[SignedVote], bool]
"""Says whether a vote carries its member's signature."""

SILENT = "silent"
EQUIVOCATION = "equivocation"
WRONG_PROPOSAL = "wrong proposal"
NO_QUORUM = "no quorum"

MAX_VIEWS = 256
"""Views after which a committee gives up and the round waits for its deadline."""


class Member(Protocol):
    """One member of the committee; everything that it sends is broadcast to all members.

    A message that does not come is an empty tuple; more than one in the same view is
    equivocation, which all members see.
    """

    client: ClientId

    def broadcast_scores(self) -> None:
        """Publish the signed score vector of the round."""

    def decide(self) -> Decision:
        """Return this member's own decision from the scores that all have published."""

    def request(self, phase: Phase, view: int) -> tuple[SignedVote, ...]:
        """Return the signed request of this member as primary."""

    def reply(self, request: SignedVote) -> tuple[SignedVote, ...]:
        """Return the signed reply to a request, none if this member decides otherwise."""


class Clients(Protocol):
    """All clients of a run."""

    def train(self, round_number: int, active: Sequence[ClientId]) -> None:
        """Local SGD of the active clients; each commits its update, then publishes it."""

    def members(self) -> Sequence[Member]:
        """Return the members of the open round, by their places."""


class Ledger(Protocol):
    """The contract, as the algorithm needs it."""

    round: int
    rounds: int
    clients: int
    trainers: int
    seed: Digest
    committee: tuple[ClientId, ...]
    finished: bool

    def decide(
        self,
        decision: Decision,
        certificates: tuple[Certificate, Certificate],
        incidents: tuple[Incident, ...],
    ) -> None:
        """Record the round; the next one opens with the elected committee."""

    def abandon(self, reason: ConsensusError) -> None:
        """End the round without a decision once its deadline is reached."""


def training(ledger: Ledger, clients: Clients, is_signed: IsSigned) -> None:
    """Run rounds until the last one (Algorithm 3).

    Args:
        ledger: the contract; w^1, S_c^1 and S_b^1 (line 1) are fixed at its deployment.
        clients: all clients.
        is_signed: says whether a vote carries its member's signature.
    """
    while not ledger.finished:  # 2
        training_round(ledger, clients, is_signed)


def training_round(ledger: Ledger, clients: Clients, is_signed: IsSigned) -> None:
    """Run one round of Algorithm 3.

    Args:
        ledger: the contract, with a round open.
        clients: all clients.
        is_signed: says whether a vote carries its member's signature.
    """
    trainers = sample_trainers(  # 16: S_b is drawn anew
        ledger.seed, ledger.clients, ledger.committee, ledger.trainers
    )
    clients.train(ledger.round, [*trainers, *ledger.committee])  # 3-7, 10
    committee = clients.members()
    try:
        outcome = committee_consensus(ledger.round, ledger.seed, committee, is_signed)  # 8-15
    except ConsensusError as error:
        ledger.abandon(error)
        return
    ledger.decide(*outcome)  # 17-19: the recorded model is what clients download next


def committee_consensus(
    round_number: int, seed: Digest, committee: Sequence[Member], is_signed: IsSigned
) -> tuple[Decision, tuple[Certificate, Certificate], tuple[Incident, ...]]:
    """Let the committee agree on a round (Algorithm 1).

    Args:
        round_number: t.
        seed: seed_t.
        committee: S_c, by places.
        is_signed: says whether a vote carries its member's signature.

    Returns:
        The decision, its two certificates, and what went wrong on the way.

    Raises:
        ConsensusError: no decision can be computed, no view brings a quorum, or nobody who
            replied has the decision behind the certificates.
    """
    for member in committee:  # 1-5
        member.broadcast_scores()
    where = (round_number, seed, committee)
    aggregation, incidents = voting(*where, Phase.AGGREGATION, is_signed)  # 6-11
    try:
        election, more = voting(*where, Phase.ELECTION, is_signed)  # 12
    except ConsensusError as error:
        raise ConsensusError(str(error), incidents + error.incidents) from error
    certificates, incidents = (aggregation, election), incidents + more
    for decision in (m.decide() for m in committee if _replied(m.client, aggregation)):
        if all(decision.voted(c.vote.phase) == _decided(c.vote) for c in certificates):
            return decision, certificates, incidents
    raise ConsensusError("nobody who replied has the decision that was certified", incidents)


def voting(
    round_number: int,
    seed: Digest,
    committee: Sequence[Member],
    phase: Phase,
    is_signed: IsSigned,
) -> tuple[Certificate, tuple[Incident, ...]]:
    """Let the committee agree on a set of clients and a result (Algorithm 2).

    Args:
        round_number: t.
        seed: seed_t, from which the primaries follow.
        committee: S_c, by places.
        phase: what is voted on: S_a and the aggregate, or the next S_c.
        is_signed: says whether a vote carries its member's signature.

    Returns:
        The certificate, and what went wrong on the way to it.

    Raises:
        ConsensusError: no quorum within `MAX_VIEWS` views.
    """
    incidents: list[Incident] = []
    caught: set[ClientId] = set()
    for view in range(MAX_VIEWS):  # 1
        primary = committee[primary_place(seed, phase, view, len(committee))]  # 2
        asked = primary.request(phase, view)  # 3-7
        slot = (VoteKind.REQUEST, round_number, phase, view)
        requests = _cast(asked, primary.client, slot, is_signed)
        if len(requests) != 1:
            kind = EQUIVOCATION if requests else SILENT
            incidents.append(Incident(phase, view, primary.client, kind, requests[:2]))
            continue
        replies: list[SignedVote] = []
        for member in committee:  # 8
            if member is primary:
                continue
            answered = member.reply(requests[0])  # 9-13
            slot = (VoteKind.REPLY, round_number, phase, view)
            answers = _cast(answered, member.client, slot, is_signed)
            if len(answers) > 1 and member.client not in caught:
                caught.add(member.client)  # one proof is enough, and bounds the record
                incidents.append(Incident(phase, view, member.client, EQUIVOCATION, answers[:2]))
            replies += [answer for answer in answers if _agrees(answer, requests[0])][:1]
            if len(replies) >= quorum(len(committee)):  # 14
                certificate = Certificate(requests[0], tuple(replies))  # 15, 18
                return certificate, tuple(_named(incident, certificate) for incident in incidents)
        incidents.append(Incident(phase, view, primary.client, NO_QUORUM, requests))
    message = f"no quorum in {MAX_VIEWS} views of phase {phase.name.lower()}"
    raise ConsensusError(message, tuple(incidents))


def _cast(
    sent: Iterable[SignedVote],
    sender: ClientId,
    slot: tuple[VoteKind, int, Phase, int],
    is_signed: IsSigned,
) -> tuple[SignedVote, ...]:
    """Return the different votes that a member signed for one kind, round, phase and view.

    Another member's vote does not count again; one for another view would make a certificate
    that the contract refuses; and the same vote twice is no equivocation.
    """
    votes: dict[Vote, SignedVote] = {}
    for signed in sent:
        vote = signed.vote
        at = (vote.kind, vote.round, vote.phase, vote.view)
        if signed.member == sender and at == slot and is_signed(signed):
            votes.setdefault(vote, signed)
    return tuple(votes.values())


def _replied(client: ClientId, certificate: Certificate) -> bool:
    return any(reply.member == client for reply in certificate.replies)


def _agrees(answer: SignedVote, request: SignedVote) -> bool:
    return answer.vote == replace(request.vote, kind=VoteKind.REPLY)


def _named(incident: Incident, certificate: Certificate) -> Incident:
    """Return the incident, called a wrong proposal if the request contradicts what was decided."""
    if incident.kind != NO_QUORUM:
        return incident
    if _decided(incident.votes[0].vote) == _decided(certificate.vote):
        return incident
    return replace(incident, kind=WRONG_PROPOSAL)


def _decided(vote: Vote) -> tuple[Digest, Digest]:
    """Return set digest and result, as `Decision.voted` does."""
    return vote.set_digest, vote.result
