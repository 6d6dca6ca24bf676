"""Members over real keys, honest and otherwise, and a run on the executable specification."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ledger.protocol import encoding, ledger_state, rounds
from ledger.protocol.counting import Electorate, collect_updates, count_scores
from ledger.protocol.decision import decide
from ledger.protocol.documents import ScoreVector
from ledger.protocol.sampling import first_committee, sample_trainers
from ledger.protocol.scoring import squared_distance
from ledger.protocol.signing import is_signed_by, sign
from ledger.protocol.types import (
    NO_DIGEST,
    ClientId,
    Commitment,
    Phase,
    SignedVote,
    Vote,
    VoteKind,
)
from tests.protocol.support import DOMAIN, Shelf, f32, registry_of, signed_scores, signers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ledger.protocol.consensus import Certificate
    from ledger.protocol.counting import Updates
    from ledger.protocol.decision import Decision
    from ledger.protocol.documents import Incident
    from ledger.protocol.errors import ConsensusError
    from ledger.protocol.parameters import Parameters
    from ledger.protocol.types import SignedScores

NOW = 1_700_000_000


@dataclass
class Table:
    """What all members of a round see."""

    parameters: Parameters
    electorate: Electorate
    updates: Updates
    model: NDArray[np.float32]
    shelf: Shelf = field(default_factory=Shelf)
    published: list[SignedScores] = field(default_factory=list)

    def distance(self, client: ClientId, member: ClientId) -> float:
        return squared_distance(self.updates.vectors[client], self.updates.vectors[member])

    @cached_property
    def decision(self) -> Decision:
        counted, _ = count_scores(
            self.electorate, self.updates, self.published, self.shelf.get, self.distance
        )
        registry = self.electorate.registry
        return decide(self.parameters, registry, self.model, self.updates, counted)

    def is_signed(self, signed: SignedVote) -> bool:
        client = self.electorate.registry[signed.member]
        return not client.banned and is_signed_by(
            client.address, DOMAIN, signed.vote, signed.signature
        )

    def committee(self, faults: Mapping[int, type[Honest]] | None = None) -> list[Honest]:
        """Return the members by their places, with faults by place."""
        return [
            (faults or {}).get(place, Honest)(member, self)
            for place, member in enumerate(self.electorate.committee)
        ]


class Honest:
    """A member that does what Algorithms 1 and 2 say."""

    def __init__(self, client: ClientId, table: Table) -> None:
        self.client = client
        self.table = table

    def broadcast_scores(self) -> None:
        table, usable = self.table, self.table.updates.vectors
        trainers = tuple(c for c in table.electorate.trainers if c in usable)
        others = tuple(c for c in sorted(table.electorate.committee) if c != self.client)
        vector = ScoreVector(
            table.electorate.round,
            self.client,
            trainers,
            np.array([table.distance(client, self.client) for client in trainers]),
            others,
            np.array([table.distance(other, self.client) for other in others]),
        )
        claim = signed_scores(table.shelf, vector, round_number=table.electorate.round)
        table.published.append(claim)

    def decide(self) -> Decision:
        return self.table.decision

    def request(self, phase: Phase, view: int) -> tuple[SignedVote, ...]:
        return (self.signed(self.vote(VoteKind.REQUEST, phase, view)),)

    def reply(self, request: SignedVote) -> tuple[SignedVote, ...]:
        vote = request.vote
        if (vote.set_digest, vote.result) != self.decide().voted(vote.phase):
            return ()
        return (self.signed(replace(vote, kind=VoteKind.REPLY)),)

    def vote(self, kind: VoteKind, phase: Phase, view: int) -> Vote:
        sets = self.decide().voted(phase)
        return Vote(kind, self.table.electorate.round, phase, view, NOW, *sets)

    def signed(self, vote: Vote) -> SignedVote:
        return SignedVote(self.client, vote, sign(signers()[self.client], DOMAIN, vote))


class Silent(Honest):
    """Scores, but neither proposes nor replies."""

    def request(self, phase: Phase, view: int) -> tuple[SignedVote, ...]:  # noqa: ARG002
        return ()

    def reply(self, request: SignedVote) -> tuple[SignedVote, ...]:  # noqa: ARG002
        return ()


class WrongProposer(Honest):
    """Proposes an empty set."""

    def request(self, phase: Phase, view: int) -> tuple[SignedVote, ...]:
        right = self.vote(VoteKind.REQUEST, phase, view)
        return (self.signed(replace(right, set_digest=encoding.set_digest(()))),)


class Equivocator(WrongProposer):
    """Signs two different votes for everything."""

    def request(self, phase: Phase, view: int) -> tuple[SignedVote, ...]:
        right = self.signed(self.vote(VoteKind.REQUEST, phase, view))
        return right, *super().request(phase, view)

    def reply(self, request: SignedVote) -> tuple[SignedVote, ...]:
        right = replace(request.vote, kind=VoteKind.REPLY)
        return self.signed(right), self.signed(replace(right, result=encoding.sha256(b"wrong")))


class Forger(Honest):
    """Signs with another member's key."""

    def signed(self, vote: Vote) -> SignedVote:
        other = next(c for c in self.table.electorate.committee if c != self.client)
        return SignedVote(self.client, vote, sign(signers()[other], DOMAIN, vote))


class Dissenter(Silent):
    """Proposes nothing, and replies with another content."""

    def reply(self, request: SignedVote) -> tuple[SignedVote, ...]:
        vote = replace(request.vote, kind=VoteKind.REPLY)
        return (self.signed(replace(vote, timestamp=vote.timestamp + 1)),)


class Copier(Honest):
    """Passes on what its neighbour signs."""

    def neighbour(self) -> Honest:
        committee = self.table.electorate.committee
        return Honest(committee[committee.index(self.client) - 1], self.table)

    def request(self, phase: Phase, view: int) -> tuple[SignedVote, ...]:
        return self.neighbour().request(phase, view)

    def reply(self, request: SignedVote) -> tuple[SignedVote, ...]:
        return self.neighbour().reply(request)


class Stutterer(Honest):
    """Sends everything twice."""

    def request(self, phase: Phase, view: int) -> tuple[SignedVote, ...]:
        return super().request(phase, view) * 2

    def reply(self, request: SignedVote) -> tuple[SignedVote, ...]:
        return super().reply(request) * 2


class Run:
    """A whole run on the executable specification; plays `Ledger` and `Clients`.

    Client i's update is i, in every round. `faults` says which clients act how as members.
    """

    def __init__(self, parameters: Parameters, faults: Mapping[int, type[Honest]]) -> None:
        self.parameters, self.faults = parameters, faults
        self.model = f32(0.0)
        config = encoding.sha256(b"configuration")
        committee = first_committee(config, parameters.clients, parameters.members)
        registry = registry_of(parameters.clients)
        digest = encoding.sha256(encoding.vector_bytes(self.model))
        deployment, batches = ledger_state.deployment_of(
            parameters, config, registry, committee, digest
        )
        self.state = rounds.deployed(deployment, DOMAIN)
        self.block = 1
        self.events: list[ledger_state.Event] = []
        self.incidents: list[tuple[Incident, ...]] = []
        for words, rest in batches:
            self._step(rounds.register_clients(self.state, words, rest, self._context()))
        self.rounds, self.clients = parameters.rounds, parameters.clients
        self.trainers = parameters.trainers

    def train(self, round_number: int, active: Sequence[ClientId]) -> None:
        payloads = {client: encoding.vector_bytes(f32(float(client))) for client in active}
        signed = []
        for client, payload in payloads.items():
            commitment = Commitment(round_number, client, encoding.sha256(payload))
            signature = sign(signers()[client], DOMAIN, commitment)
            signed.append((client, commitment.payload, signature))
        self._step(rounds.commit_updates(self.state, round_number, signed))
        shelf = Shelf(payloads.values())
        commitments = {client: payload for client, payload, _ in signed}
        updates = collect_updates(active, commitments, shelf.get, self.parameters.dimension)
        trainers = sample_trainers(self.seed, self.clients, self.committee, self.trainers)
        electorate = Electorate(DOMAIN, round_number, self.state.registry, trainers, self.committee)
        self.table = Table(self.parameters, electorate, updates, self.model)

    def members(self) -> Sequence[Honest]:
        committee = self.committee
        return self.table.committee(
            {place: self.faults.get(c, Honest) for place, c in enumerate(committee)}
        )

    def is_signed(self, signed: SignedVote) -> bool:
        return self.table.is_signed(signed)

    def decide(
        self,
        decision: Decision,
        certificates: tuple[Certificate, Certificate],
        incidents: tuple[Incident, ...],
    ) -> None:
        submission = ledger_state.SubmittedDecision(
            committee=self.committee,
            ranking=decision.ranking,
            model=decision.model_digest,
            updates_root=decision.updates_root,
            scores_root=decision.scores_root,
            threshold_bits=decision.threshold_bits,
            record=NO_DIGEST,
        )
        first, second = (submitted(c, self.committee) for c in certificates)
        self.incidents.append(incidents)
        self.model = decision.model
        self._step(
            rounds.decide(self.state, self.round, submission, (first, second), self._context())
        )

    def abandon(self, reason: ConsensusError) -> None:
        self.incidents.append(reason.incidents)
        self.block = self.state.opened_block + self.parameters.deadline_blocks
        self._step(rounds.abandon_round(self.state, self.round, self._context()))

    def _context(self) -> ledger_state.BlockContext:
        return ledger_state.BlockContext(self.block, NO_DIGEST)

    def _step(self, step: ledger_state.Step) -> None:
        self.state, events = step
        self.events += events
        self.block += 1
        self.round, self.seed = self.state.round, self.state.seed
        self.committee = self.state.committee
        self.finished = self.state.stage is ledger_state.Stage.FINISHED


def submitted(
    certificate: Certificate, committee: tuple[ClientId, ...]
) -> ledger_state.SubmittedCertificate:
    """Return a certificate as a transaction carries it."""
    vote = certificate.vote
    return ledger_state.SubmittedCertificate(
        vote.view,
        vote.timestamp,
        vote.set_digest,
        certificate.request.signature,
        certificate.signers(committee),
        tuple(reply.signature for reply in certificate.replies),
    )
