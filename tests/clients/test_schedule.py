"""The paper's schedule, played by the actors of a run, comes to the same as their messages."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from clients.adversaries.faults import FaultyMember, member_with
from clients.runs.open_run import OpenedRun, open_run
from clients.simulation import Simulation
from ledger.actors.participants import Member, reports_of
from ledger.actors.steps import (
    Action,
    PostEnvelope,
    ProtocolSteps,
    SendDecision,
    Settlement,
    StoreBlobs,
    decision_of,
    incidents_of,
    judgement_behind,
)
from ledger.actors.view import Holdings, RoundView
from ledger.protocol import ledger_state
from ledger.protocol.documents.envelope import Proposal, Reply
from ledger.protocol.encoding import vector_bytes
from ledger.protocol.inputs import Participants
from ledger.protocol.judgement import Judgement
from ledger.protocol.ledger_state import QuorumCertificate
from ledger.protocol.payloads import Payload
from ledger.protocol.signing import is_signed_by
from ledger.protocol.types import ClientId, Digest, Phase, SignedVote
from tests.clients.played import FIVE_MEMBERS, Player, configured
from tests.protocol.algorithms import training


class ScheduledMember:
    """One member, whose acts are asked for."""

    def __init__(self, round_: ScheduledRounds, client: ClientId, acts: ProtocolSteps) -> None:
        self.client = client
        self._round = round_
        self._acts = acts

    def publish_scores(self) -> None:
        view = self._round.look()
        self._do(self._acts.publish_scores(view, view.usable))

    def request(self, phase: Phase, view: int) -> tuple[SignedVote, ...]:
        seen = self._round.look()
        if phase is Phase.AGGREGATION:
            return self._do(self._acts.propose(seen, view, seen.usable))
        certificate = seen.certificates(Phase.AGGREGATION)[0]
        return self._do(self._acts.propose_election(seen, view, certificate))

    def reply(self, request: SignedVote) -> tuple[SignedVote, ...]:
        seen = self._round.look()
        asked = request.vote
        (proposal,) = seen.proposals[asked.phase, asked.view]
        if asked.phase is Phase.AGGREGATION:
            held = tuple(claim for pair in seen.claims.values() for claim in pair)
            in_time = Holdings(frozenset(seen.evidence.payloads), held)
            return self._do(self._acts.answer(seen, proposal, in_time))
        return self._do(self._acts.answer_election(seen, proposal))

    def judgement(self, result: Digest) -> Judgement | None:
        return judgement_behind(self._round.look(), self._round.judge, result)

    def _do(self, actions: list[Action]) -> tuple[SignedVote, ...]:
        done = self._round.changed(self.client, actions)
        self._round.apply(done)
        bodies = [action.envelope.body for action in done if isinstance(action, PostEnvelope)]
        return tuple(
            body.request if isinstance(body, Proposal) else body.reply
            for body in bodies
            if isinstance(body, Proposal | Reply)
        )


class ScheduledRounds:
    def __init__(self, run: OpenedRun) -> None:
        simulation: Simulation = run.simulation
        self._simulation = simulation
        self._driver, self._observer = simulation._driver, simulation._observer
        self._context = simulation._context
        self._population = run.population
        self.judge = simulation._judge
        self.replies = self._context.parameters.replies
        self._view: RoundView | None = None
        self._wrappers: dict[ClientId, FaultyMember] = {}

    def play(self) -> None:
        training(self, self, self.is_signed)

    @property
    def round(self) -> int:
        return self._context.ledger.state().round

    @property
    def seed(self) -> Digest:
        return self._context.ledger.state().seed

    @property
    def finished(self) -> bool:
        self._simulation.chain = self._observer.chain()
        return self._simulation.chain is None

    def participants(self) -> Participants:
        chain = self._observer.chain()
        assert chain is not None
        return chain.participants()

    def base(self) -> Digest:
        return self.look().inputs.closing.base

    def train(self, round_number: int, active: Sequence[ClientId]) -> None:
        assert round_number == self.round
        chain = self._observer.chain()
        assert chain is not None
        trainers = self._simulation._cast.trainers(chain)
        assert set(active) <= set(trainers)
        self._view = self._simulation._closed(chain, trainers)
        self.apply([a for trainer in trainers.values() for a in trainer.publish(self._view)])

    def members(self) -> Sequence[ScheduledMember | None]:
        self._wrappers = {}
        participants = self.look().inputs.participants
        return [
            None if client in participants.banned else self._member(client)
            for client in participants.committee
        ]

    def decide(
        self, judgement: Judgement, certificates: tuple[QuorumCertificate, QuorumCertificate]
    ) -> None:
        view = self.look()
        settlement = Settlement(judgement, certificates)
        digest, incidents = incidents_of(view, self.judge, settlement)
        documents = [Payload.of(vector_bytes(judgement.model))]
        if incidents is not None:
            documents.append(Payload.of(incidents))
        decision, submitted = decision_of(view, settlement, digest)
        send = SendDecision(view.inputs.round, decision, submitted)
        self.apply([StoreBlobs(tuple(documents)), *reports_of(view), send])
        self._simulation._model = None

    def abandon(self) -> None:
        self.apply(list(reports_of(self.look())))
        chain = self._observer.chain()
        assert chain is not None
        self._driver.abandon(chain)

    def is_signed(self, vote: SignedVote) -> bool:
        address = self.look().inputs.registry[vote.member].address
        return is_signed_by(address, self._context.domain, vote.vote, vote.signature)

    def look(self) -> RoundView:
        assert self._view is not None, "the clients have trained"
        self._view = self._observer.look(self._view)
        return self._view

    def apply(self, actions: list[Action]) -> None:
        self._driver.apply(actions)

    def changed(self, client: ClientId, actions: list[Action]) -> list[Action]:
        wrapper = self._wrappers.get(client)
        if wrapper is None:
            return actions
        return [changed for a in actions for changed in wrapper.changed(self.look(), a)]

    def _member(self, client: ClientId) -> ScheduledMember:
        signer = self._population.signers[client]
        honest = Member(client, signer, self._context.journal, self.judge)
        fault = self._population.member_faults.get(client)
        actor = member_with(fault, honest, signer, self._population.favoured)
        if isinstance(actor, FaultyMember):
            self._wrappers[client] = actor
        return ScheduledMember(self, client, honest.steps)


def scheduled_head(player: Player, *settings: str) -> bytes:
    with open_run(player.home, "run", configured(*settings), player.chain, player.blobs) as run:
        ScheduledRounds(run).play()
        return run.ledger.state().head


@pytest.mark.parametrize(
    "settings",
    [
        (),
        FIVE_MEMBERS,
        ("protocol.strategy=3",),
        (*FIVE_MEMBERS, "malice.members.silent=1", "malice.members.wrong-proposal=2"),
        (*FIVE_MEMBERS, "malice.members.false-scores=3", "malice.trainers.not-finite=1"),
        (*FIVE_MEMBERS, "malice.trainers.silent=1", "malice.trainers.wrong-length=1"),
        ("malice.members.silent=3", "protocol.deadline_blocks=6"),
    ],
)
def test_the_schedule_and_the_actors_come_to_the_same_head(
    player: Player, other: Player, settings: tuple[str, ...]
) -> None:
    settings = ("protocol.rounds=3", *settings)
    # The head binds views, signers, both sets, every digest and every signature of the scores.
    played = player.play(*settings)
    assert played.ledger.state().stage is ledger_state.LedgerStage.FINISHED
    assert scheduled_head(other, *settings) == played.head


def test_equivocators_bring_both_to_the_same_certificates(player: Player, other: Player) -> None:
    # The actors also see votes that come after a quorum, which the schedule does not ask for.
    settings = (*FIVE_MEMBERS, "malice.members.equivocating=1", "protocol.rounds=2")
    played = player.play(*settings)
    scheduled_head(other, *settings)
    for number in (1, 2):
        told = [player.ledger().round_events(number), other.ledger().round_events(number)]
        first, second = (
            next(r.event for r in events if isinstance(r.event, ledger_state.RoundDecided))
            for events in told
        )
        assert (first.views, first.ranking) == (second.views, second.ranking)
        assert (first.signers, first.record) == (second.signers, second.record)
    assert played.ledger.bans()
