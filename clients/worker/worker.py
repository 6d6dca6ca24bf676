"""A worker: the clients of one owner, in one process, on a shared chain.

A step polls everything and does what is due, without waiting. All state follows from the chain's
final blocks, the mailbox, the blobs, the journal of signatures and the stored updates. So a worker
can be killed and restarted at any point.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from clients.training.port import Engine
from clients.worker.background import (
    BackgroundEvaluator,
    ChainClock,
    FailureTracker,
    LocalUpdates,
    Moment,
    RoundTraining,
    TrainingAssignment,
    TransactionSender,
    WorkPart,
)
from ledger.actors.driver import Driver
from ledger.actors.journal import VoteJournal, first_round_key
from ledger.actors.observer import Observer, PublishedBlobs
from ledger.actors.participants import Member, MemberActor, Trainer, reports_of
from ledger.actors.steps import (
    Action,
    ActorContext,
    JudgementCache,
    PostEnvelope,
    SendCommitment,
    SendDecision,
    SendReport,
)
from ledger.actors.view import ChainView, RoundView, VotingPosition
from ledger.chain.finality import AncestryCheck, FinalityCheckpoints
from ledger.chain.ports import Block, ChainMovedError, ChainReader
from ledger.distances import fast_server_step, usable_cores
from ledger.protocol.documents.envelope import Envelope, PublishedEnvironment
from ledger.protocol.encoding import keccak256, u64
from ledger.protocol.errors import JournalError
from ledger.protocol.inputs import Inputs
from ledger.protocol.ledger_state import LedgerStage
from ledger.protocol.parameters import Parameters
from ledger.protocol.payloads import Payload
from ledger.protocol.signing import Signer, sign
from ledger.protocol.training_replay import TrainingEnvironment
from ledger.protocol.types import ClientId, EnvironmentStatement

_log = logging.getLogger(__name__)

MAX_VOTING_PASSES = 8  # of one step over the results of its own actions; the next step continues
STAGGER_VIEWS = 4  # view times over which workers are spread that may all do the same thing
_MOST_HEADS = 128


class ChainFinalityGuard:
    """Compares a chain with the final blocks recorded on a worker's disk."""

    def __init__(self, chain: ChainReader, acted_on: FinalityCheckpoints) -> None:
        self._chain, self._acted_on = chain, acted_on
        self._accepted: Block | None = None
        self._heads: dict[int, Block] = {}

    def require_unchanged(self, newest: Block, lineage: AncestryCheck) -> None:
        accepted, self._accepted = self._accepted, None
        # Blocks on top of an accepted head need no further comparison.
        if accepted is None or not lineage.connects(accepted, newest):
            self._heads.clear()
            self._acted_on.require_unchanged(self._chain, newest)
        self._accepted = newest
        self._heads[newest.number] = newest
        if len(self._heads) > _MOST_HEADS:
            del self._heads[next(iter(self._heads))]

    def act_on(self, block_number: int) -> None:
        newest = self._acted_on.newest
        if newest is not None and block_number <= newest:
            return
        block = self._heads.get(block_number)
        if block is None:
            block = self._chain.block(block_number)
            # The chain may have changed since its head was accepted: the next look tells.
            self._accepted = None
        if self._chain.block(block_number).hash != block.hash:
            # A noted block is compared for good, so one wrong answer must not be noted.
            self._accepted = None
            raise ChainMovedError(self._chain.node, block_number)
        self._acted_on.note(block)


class WorkerBehaviour:
    """Behaviour of a worker's clients, which follow the protocol.

    Tests derive others and pass them in: nothing in an owner's environment or folder can make a
    worker misbehave.
    """

    def in_round(self, number: int) -> WorkerBehaviour:  # noqa: ARG002 - the same in each
        return self

    def trainers(
        self,
        hosted: Sequence[ClientId],  # noqa: ARG002 - none acts uninvited
        active: Sequence[ClientId],
    ) -> Sequence[ClientId]:
        return active

    def trainer(self, client: ClientId, signer: Signer) -> Trainer:
        return Trainer(client, signer)

    def sent(self, update: Payload, parameters: Parameters, *, is_member: bool) -> Payload:  # noqa: ARG002
        return update

    def member(self, honest: Member, signer: Signer, hosted: frozenset[ClientId]) -> MemberActor:  # noqa: ARG002
        return honest


HONEST = WorkerBehaviour()


@dataclass(frozen=True, slots=True)
class HostedClients:
    """The clients of a worker, and what they act with; without a test set no model is evaluated."""

    signers: Mapping[ClientId, Signer]
    engine: Engine
    own: LocalUpdates
    training: Executor
    sending: Executor
    environment: TrainingEnvironment
    behaviour: WorkerBehaviour = HONEST
    test_set: str | None = None
    finality: ChainFinalityGuard | None = None

    @property
    def clients(self) -> tuple[ClientId, ...]:
        return tuple(sorted(self.signers))


class RoundParticipants:
    """The hosted clients in one round."""

    def __init__(self, chain: ChainView, hosting: HostedClients) -> None:
        who = chain.participants()
        self.key, self._round, self._hosting = round_key(chain), chain.round, hosting
        self.serving = tuple(c for c in who.members if c in hosting.signers)
        self.active = tuple(c for c in sorted(who.expected) if c in hosting.signers)
        self._behaviour: WorkerBehaviour | None = None
        self._trainers: dict[ClientId, Trainer] = {}
        # Each serving client as honest member and as the actor that is stepped.
        self.members: list[tuple[Member, MemberActor]] = []
        self.view: RoundView | None = None  # until the chain has closed its inputs
        # Members that stay silent, since their journal may lack what they signed.
        self.abstaining: frozenset[ClientId] = frozenset()
        # Seconds for which this worker leaves shared tasks to others, by a new rank each round.
        clients = len(chain.registry)
        first = int.from_bytes(keccak256(chain.seed + b"turn")) % clients
        rank = min((client - first) % clients for client in hosting.signers)
        self.wait = rank / clients * STAGGER_VIEWS * chain.parameters.view_seconds

    def commit(self, chain: ChainView, updates: Mapping[ClientId, Payload]) -> list[Action]:
        if self.active and not updates:
            return []
        behaviour = self._behaviour_now()
        actions: list[Action] = []
        for client, trainer in self._trainers.items():
            update = updates.get(client)
            if update is None and client in self.active:
                continue
            if update is not None:
                is_member = client in self.serving
                update = behaviour.sent(update, chain.parameters, is_member=is_member)
            actions += trainer.commit(chain, update)
        return actions

    def start_voting(
        self, view: RoundView, judge: JudgementCache, journal: VoteJournal, observer: Observer
    ) -> None:
        """Create the members once the inputs are closed, each with the votes it signed before."""
        members = []
        behaviour, hosted = self._behaviour_now(), frozenset(self._hosting.signers)
        seated = [client for client in self.serving if client not in self.abstaining]
        # Once for all of them: each takes its own, and passes over what it has not signed.
        mail = observer.envelopes(view) if seated else []
        for client in seated:
            signer = self._hosting.signers[client]
            honest = Member(client, signer, journal, judge)
            honest.recall(view.inputs.domain, mail)
            members.append((honest, behaviour.member(honest, signer, hosted)))
        self.members, self.view = members, view

    def act(self, view: RoundView, now: float) -> list[Action]:
        """Return the actions due while the committee votes, at a time in the chain's seconds."""
        self.view = view
        actions: list[Action] = []
        for client, trainer in self._trainers.items():
            published = trainer.publish(view)
            actions += published
            # The worker may have been restarted in another environment, in which the bits differ.
            if published and self._hosting.own.is_of_this_environment(self._round, client):
                here, domain = self._hosting.environment, view.inputs.domain
                statement = EnvironmentStatement(self._round, client, here.digest)
                signature = sign(self._hosting.signers[client], domain, statement)
                body = PublishedEnvironment(here, signature)
                actions.append(PostEnvelope(Envelope(domain, self._round, client, body)))
            actions += trainer.act_while_voting(view)
        for _, member in self.members:
            actions += member.step(view, now)
        if now >= view.closed_at + self.wait:  # this worker's turn
            actions += reports_of(view)
        return actions

    def next_time(self, view: RoundView, now: float) -> float | None:
        times = (member.next_time(view, now) for _, member in self.members)
        return min((time for time in times if time is not None), default=None)

    def _behaviour_now(self) -> WorkerBehaviour:
        # Late: a test may set it a moment after the round has opened.
        if self._behaviour is None:
            self._behaviour = behaviour = self._hosting.behaviour.in_round(self._round)
            signers = self._hosting.signers
            acting = behaviour.trainers(self._hosting.clients, self.active)
            self._trainers = {c: behaviour.trainer(c, signers[c]) for c in acting}
        return self._behaviour


def round_key(chain: ChainView) -> tuple[object, ...]:
    """Return what all views of one round have in common, also after a reorganisation."""
    return (chain.domain, chain.round, chain.seed, chain.committee, chain.opened_block)


class Worker:
    """Steps its hosted clients."""

    def __init__(
        self,
        context: ActorContext,
        hosting: HostedClients,
        failures: FailureTracker,
        on_round: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Resume from chain, mailbox, journal and disk; `on_round` comes before signatures."""
        self._context, self.hosting, self.failures = context, hosting, failures
        self._on_round = on_round
        self._published = PublishedBlobs()
        self._driver = Driver(context, self._published, mines=False)
        self._lineage = AncestryCheck(context.ledger.block)
        self.observer = Observer(context, self._published, lineage=self._lineage)
        self._judge = JudgementCache(hosting.engine.distances, fast_server_step(usable_cores()))
        self._training = RoundTraining(hosting.engine, hosting.own, hosting.training)
        self._sending = TransactionSender(hosting.sending, failures)
        self._clock = ChainClock()
        self._assigned: TrainingAssignment | None = None
        self._in_course: int | None = None
        self._taken_up: dict[ClientId, int] = {}
        # Position of each member when it last acted, once the inputs are closed.
        self.present: dict[ClientId, VotingPosition] = {}
        self._late_since: float | None = None
        self.measuring = BackgroundEvaluator(hosting.engine, hosting.test_set, hosting.training)
        self.chain: ChainView | None = None  # before the first poll, and after the last round
        self.seats: RoundParticipants | None = None
        self.now = float("-inf")  # the last step, in the chain's seconds
        self._newest: Block | None = None  # of the last step
        self.is_finished = False

    @property
    def can_act(self) -> bool:
        if self.is_finished:
            return False
        if self.chain is None:
            return True
        registry, number = self.chain.registry, self.chain.round
        return any(not registry[client].is_banned_in(number) for client in self.hosting.signers)

    def step(self, moment: Moment) -> float | None:
        """Do what is due; return seconds until the next step, None if only news can bring more."""
        has_effect = self._sending.collect(moment)
        after_poll = self.failures.attempt(WorkPart.CHAIN, moment, partial(self._look, moment))
        chain, seats = self.chain, self.seats
        if after_poll is None or chain is None or seats is None:
            return None
        if seats.active:
            training = partial(self._train, chain, seats, moment)
            self.failures.attempt(WorkPart.TRAINING, moment, training)
        actions = seats.commit(chain, self._training.held)
        if actions:  # without any, it is not known whether voting works
            self.failures.attempt(WorkPart.VOTING, moment, partial(self._apply, actions, moment))
        inputs = chain.inputs()
        due: list[float | None] = []
        if inputs is not None and seats.active:
            voting = partial(self._vote, chain, seats, inputs, moment)
            voted = self.failures.attempt(WorkPart.VOTING, moment, voting)
            if voted is not None:
                has_effect |= voted[0]
                due.append(voted[1])
        due.append(self._abandon(chain, seats, moment))
        if self._assigned is not None and not self._training.is_busy:
            measuring = partial(self.measuring.look, chain.round, self._assigned.model)
            self.failures.attempt(WorkPart.MEASURING, moment, measuring)
        if has_effect or self._sending.collect(moment):
            return 0.0
        times = [time for time in due if time is not None]
        return max(0.0, min(times) - self.now) if times else None

    def _look(self, moment: Moment) -> bool:
        # One look at the head for all: what is guarded and what is read are the same chain.
        newest = self._context.ledger.newest_block()
        if self.hosting.finality is not None:
            self.hosting.finality.require_unchanged(newest, self._lineage)
        chain = self.observer.chain(newest)
        self._newest = newest
        self._clock.see(newest, moment)
        self.now = self._clock.now(moment)
        if chain is None:
            final = self.observer.final
            self.is_finished = final is not None and final.stage is LedgerStage.FINISHED
        elif self.seats is None or self.seats.key != round_key(chain):
            self._turn_to(chain)
        self.chain = chain
        return chain is not None

    def _turn_to(self, chain: ChainView) -> None:
        """Drop the previous round, whose end is final, and start the next."""
        self._published.forget()
        self._training.forget()
        self._driver.forget()
        self._context.mailbox.forget(self._context.domain, chain.round)
        self._on_round(chain.round)
        self._assigned, self._late_since, self.present = None, None, {}
        self.seats = RoundParticipants(chain, self.hosting)
        if self._in_course is None:
            self._in_course = 0 if chain.inputs() is None else chain.round
            with suppress(JournalError):  # reported again before a member votes
                self._take_up(chain)
        _log.info(
            "round %d: %d of %d clients are active, %d on the committee",
            chain.round,
            len(self.seats.active),
            len(self.hosting.signers),
            len(self.seats.serving),
            extra={"round": chain.round, "active": [int(c) for c in self.seats.active]},
        )
        is_late = not chain.takes_commitments and bool(self.seats.active)
        if is_late and chain.committed.isdisjoint(self.seats.active):
            _log.warning("%s", chain.missed_window, extra={"round": chain.round})

    def _take_up(self, chain: ChainView) -> None:
        """Find the first round that each client's journal covers: not this one if it was lost."""
        assert self._in_course is not None, "the chain was looked at"
        journal, first_rounds = self._context.journal, {}
        for client in self.hosting.clients:
            place = first_round_key(chain.domain, client)
            first_rounds[client] = int.from_bytes(journal.record(place, u64(self._in_course)))
        journal.sync()
        self._taken_up = first_rounds

    def _train(
        self, chain: ChainView, seats: RoundParticipants, moment: Moment
    ) -> Mapping[ClientId, Payload] | None:
        if self._assigned is None:
            read = partial(self.observer.model, chain.final_block)
            model = self.failures.attempt(WorkPart.MODEL, moment, read)
            if model is None:
                return None
            # After the window, only updates with a commitment are useful.
            committed = {mined.client for mined in chain.commitments}
            useful = [c for c in seats.active if chain.takes_commitments or c in committed]
            size = chain.parameters.payload_form.size(chain.parameters.dimension)
            inputs = (chain.domain, chain.round, chain.seed, model, tuple(useful), size)
            self._assigned = TrainingAssignment(*inputs)
        return self._training.updates(self._assigned)

    def _vote(
        self, chain: ChainView, seats: RoundParticipants, inputs: Inputs, moment: Moment
    ) -> tuple[bool, float | None]:
        """Let all clients act until nothing new results; return the effect and when to act next."""
        view = seats.view
        newest = self._newest
        if view is not None and newest is not None and newest.timestamp < view.closed_at:
            # Time stamps never fall, so the one of the closing block was wrong.
            _log.warning("block %d is dated before an older one; it is read again", newest.number)
            view = None
        # A chain that has taken blocks back may close the same round over other commitments.
        if view is None or view.inputs.closing != inputs.closing:
            if seats.serving and not self._taken_up:
                self._take_up(chain)
            seats.abstaining = frozenset(c for c, t in self._taken_up.items() if t == chain.round)
            for client in sorted(seats.abstaining.intersection(seats.serving)):
                _log.warning(
                    "client %d does not vote in round %d. Its vote journal started after the "
                    "round's commitments had closed, so it may lack an earlier vote. It votes in "
                    "later rounds",
                    client,
                    chain.round,
                )
            model = self.observer.model(chain.final_block)
            view = self.observer.opened(inputs, model, chain.final_block)
            seats.start_voting(view, self._judge, self._context.journal, self.observer)
        elif view.inputs != inputs:
            # A client was banned since, and must not be reported again.
            view = replace(view, inputs=inputs)
        has_effect = False
        for _ in range(MAX_VOTING_PASSES):
            counted = view.inputs.closing.commitments
            if seats.members:
                view = self.observer.look(view)
            elif any(c not in view.announced for c in seats.active if c in counted):
                view = self.observer.look(view, fetches=False)
            if not self._apply(seats.act(view, self.now), moment):
                break
            has_effect = True
        self.present = {
            member.client: member.present(view, self.now) for member, _ in seats.members
        }
        next_time = seats.next_time(view, self.now)
        # When a member first saw a certificate is written down, also where it has nothing to say.
        self._context.journal.sync()
        return has_effect, next_time

    def _apply(self, actions: list[Action], moment: Moment) -> bool:
        if not actions or self.chain is None:
            return False
        if self.hosting.finality is not None:
            self.hosting.finality.act_on(self.chain.final_block)
        said = self._driver.publish(actions)
        if said.transactions:
            names = dict.fromkeys(_NAMES[type(transaction)] for transaction in said.transactions)
            what = f"{' and '.join(names)} of round {self.chain.round}"
            task = partial(self._driver.send, said.transactions)
            self._sending.offer(moment, what, task, self._at_this_block(said.transactions))
        return self._sending.collect(moment) or said.has_new_mail

    def _abandon(self, chain: ChainView, seats: RoundParticipants, moment: Moment) -> float | None:
        """Abandon a round after its deadline, at this worker's turn; return when that is."""
        parameters, newest = chain.parameters, self.observer.newest
        if newest is None or newest.number + 1 < chain.opened_block + parameters.deadline_blocks:
            return None
        if self._late_since is None:
            self._late_since = self.now
        turn = self._late_since + seats.wait
        if self.now >= turn:
            what = f"the end of round {chain.round}, undecided"
            task = partial(self._driver.abandon, chain)
            self._sending.offer(moment, what, task, self._at_this_block(chain.round))
        return turn if turn > self.now else None

    def _at_this_block(self, sent: object) -> tuple[bytes, object] | None:
        newest = self.observer.newest
        return None if newest is None else (newest.hash, sent)


_NAMES = {
    SendCommitment: "commitments",
    SendReport: "a proof of equivocation",
    SendDecision: "the decision",
}
