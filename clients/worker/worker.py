"""A worker: the clients of one owner, in one process, on a shared chain.

A step polls everything and does what is due, without waiting. All state follows from the chain's
final blocks, the mailbox, the blobs, and the worker's own disk: the journal of what its keys have
signed, and the updates that it has trained. So it can be killed and restarted at any point.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from clients.worker.background import (
    BackgroundEvaluator,
    ChainClock,
    FailureTracker,
    Moment,
    TransactionSender,
    WorkPart,
)
from clients.worker.participants import HostedClients, RoundParticipants
from clients.worker.training import RoundTraining, TrainingAssignment
from ledger.actors.driver import Driver
from ledger.actors.journal import first_round_key
from ledger.actors.observer import Observer, PublishedBlobs
from ledger.actors.settlement import JudgementCache
from ledger.actors.steps import (
    Action,
    ActorContext,
    SendCommitment,
    SendDecision,
    SendReport,
    Transaction,
)
from ledger.actors.view import ChainView, RoundView, VotingPosition
from ledger.chain.finality import AncestryCheck
from ledger.chain.ports import Block
from ledger.chain.round_ledger import LedgerSnapshot
from ledger.protocol.encoding import u64
from ledger.protocol.errors import JournalError
from ledger.protocol.inputs import Inputs
from ledger.protocol.ledger_state import LedgerStage
from ledger.protocol.payloads import Payload
from ledger.protocol.types import ClientId

_log = logging.getLogger(__name__)

MAX_VOTING_PASSES = 8
"""Passes of one step over the results of its own actions; the next step continues."""


@dataclass(frozen=True, slots=True)
class VotingResult:
    """Result of letting every client act on the current view.

    Attributes:
        next_time: when a client may act though nothing new arrives, in the chain's seconds; None
            for never.
    """

    has_effect: bool
    next_time: float | None


class Worker:
    """Steps its hosted clients.

    Attributes:
        chain: the open round by the final blocks; None before the first poll, and after the last
            round.
        now: time of the last step, in the chain's seconds.
    """

    def __init__(
        self,
        context: ActorContext,
        hosting: HostedClients,
        failures: FailureTracker,
        on_round: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Resume from chain, mailbox, journal and disk.

        Args:
            on_round: called with a round's number before anything is signed in it.
        """
        self._context = context
        self.hosting = hosting
        self.failures = failures
        self._on_round = on_round
        self._published = PublishedBlobs()
        self._driver = Driver(context, self._published, mines=False)
        self._lineage = AncestryCheck(context.ledger.block)
        self._observer = Observer(context, self._published, lineage=self._lineage)
        self._judge = JudgementCache(hosting.engine.distances)
        self._training = RoundTraining(hosting.engine, hosting.own, hosting.training)
        self._sending = TransactionSender(hosting.sending, failures)
        self._clock = ChainClock()
        self._assigned: TrainingAssignment | None = None
        self._in_course: int | None = None
        self._taken_up: dict[ClientId, int] = {}
        self._present: dict[ClientId, VotingPosition] = {}
        self._late_since: float | None = None
        self.measuring = BackgroundEvaluator(hosting.engine, hosting.sets, hosting.training)
        self.chain: ChainView | None = None
        self.seats: RoundParticipants | None = None
        self.now = float("-inf")
        self.is_finished = False

    @property
    def can_act(self) -> bool:
        """True while any client may still take part."""
        if self.is_finished:
            return False
        return self.chain is None or self.hosting.can_act(self.chain.registry, self.chain.round)

    @property
    def newest_block(self) -> Block | None:
        """The newest block seen."""
        return self._observer.newest

    @property
    def final_state(self) -> LedgerSnapshot | None:
        """The contract's state after the newest final block seen."""
        return self._observer.final

    def step(self, moment: Moment) -> float | None:
        """Do everything that is due.

        Returns:
            Seconds until the next step is due though nothing new arrives; 0 after an action with an
            effect, None if only news can bring more.
        """
        has_effect = self._sending.collect(moment)
        after_poll = self.failures.attempt(WorkPart.CHAIN, moment, partial(self._look, moment))
        chain, seats = self.chain, self.seats
        if after_poll is None or chain is None or seats is None:
            return None
        self._commit(chain, seats, moment)
        inputs = chain.inputs()
        due: list[float | None] = []
        if inputs is not None and seats.active:
            voting = partial(self._vote, chain, seats, inputs, moment)
            voted = self.failures.attempt(WorkPart.VOTING, moment, voting)
            if voted is not None:
                has_effect |= voted.has_effect
                due.append(voted.next_time)
        due.append(self._abandon(chain, seats, moment))
        self._measure(chain, moment)
        if has_effect or self._sending.collect(moment):
            return 0.0
        times = [time for time in due if time is not None]
        return max(0.0, min(times) - self.now) if times else None

    def _look(self, moment: Moment) -> bool:
        """Poll the chain, and return whether a round is open."""
        # One look at the head for all: what is guarded and what is read are the same chain.
        newest = self._context.ledger.newest_block()
        if self.hosting.finality is not None:
            self.hosting.finality.require_unchanged(newest, self._lineage)
        chain = self._observer.chain(newest)
        self._clock.see(newest, moment)
        self.now = self._clock.now(moment)
        if chain is None:
            final = self._observer.final
            self.is_finished = final is not None and final.stage is LedgerStage.FINISHED
        elif self.seats is None or not self.seats.is_for(chain):
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
        self._assigned, self._late_since, self._present = None, None, {}
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
            sum(map(self.seats.is_serving, self.hosting.clients)),
            extra={"round": chain.round, "active": [int(c) for c in self.seats.active]},
        )

    def _take_up(self, chain: ChainView) -> None:
        """Find the first round that each client's journal covers completely.

        A journal that was lost, emptied or exchanged lacks what the keys signed in the current
        round; in later rounds they have signed nothing. The round is recorded at the first poll, so
        that a worker killed and restarted in it knows as much.
        """
        assert self._in_course is not None, "the chain was looked at"
        journal, first_rounds = self._context.journal, {}
        for client in self.hosting.clients:
            place = first_round_key(chain.domain, client)
            first_rounds[client] = int.from_bytes(journal.record(place, u64(self._in_course)))
        journal.sync()
        self._taken_up = first_rounds

    def _commit(self, chain: ChainView, seats: RoundParticipants, moment: Moment) -> None:
        if seats.active:
            training = partial(self._train, chain, seats, moment)
            self.failures.attempt(WorkPart.TRAINING, moment, training)
        actions = seats.commit(chain, self._training.held)
        # Having nothing to commit to says nothing of whether voting works.
        if actions:
            self.failures.attempt(WorkPart.VOTING, moment, partial(self._apply, actions, moment))

    def _train(
        self, chain: ChainView, seats: RoundParticipants, moment: Moment
    ) -> Mapping[ClientId, Payload] | None:
        if self._assigned is None:
            model = self.failures.attempt(
                WorkPart.MODEL, moment, partial(self._observer.model, chain.final_block)
            )
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
    ) -> VotingResult:
        """Let every client act on the view, until nothing new results."""
        view = seats.view
        # A chain that has taken blocks back may close the same round over other commitments.
        if view is None or view.inputs.closing != inputs.closing:
            if seats.serving and not self._taken_up:
                self._take_up(chain)
            seats.abstaining = frozenset(c for c, t in self._taken_up.items() if t == chain.round)
            for client in sorted(seats.abstaining.intersection(seats.serving)):
                _log.warning(
                    "client %d does not vote in round %d: its vote journal was started after the "
                    "round's commitments had closed, so an earlier vote would not be in it; it may "
                    "vote in later rounds",
                    client,
                    chain.round,
                )
            model = self._observer.model(chain.final_block)
            view = self._observer.opened(inputs, model, chain.final_block)
            seats.start_voting(view, self._judge, self._context.journal, self._observer)
        elif view.inputs != inputs:
            # A client was banned since, and must not be reported again.
            view = replace(view, inputs=inputs)
        has_effect = False
        for _ in range(MAX_VOTING_PASSES):
            view = self._looked(view, seats)
            actions = [*seats.act(view, self.now), *seats.reports(view, self.now)]
            if not self._apply(actions, moment):
                break
            has_effect = True
        self._present = {
            member.client: member.present(view, self.now) for member, _ in seats.members
        }
        voted = VotingResult(has_effect, seats.next_time(view, self.now))
        # When a member first saw a certificate is written down, also where it has nothing to say.
        self._context.journal.sync()
        return voted

    def _looked(self, view: RoundView, seats: RoundParticipants) -> RoundView:
        if seats.members:
            return self._observer.look(view)
        return view if seats.are_announced(view) else self._observer.look(view, fetches=False)

    def _apply(self, actions: list[Action], moment: Moment) -> bool:
        """Post envelopes, send transactions, and return whether anything had an effect."""
        if not actions or self.chain is None:
            return False
        if self.hosting.finality is not None:
            self.hosting.finality.act_on(self.chain.final_block)
        said = self._driver.publish(actions)
        if said.transactions:
            what = f"{_told(said.transactions)} of round {self.chain.round}"
            task = partial(self._driver.send, said.transactions)
            self._sending.offer(moment, what, task, self._at_this_block(said.transactions))
        return self._sending.collect(moment) or said.has_new_mail

    def _abandon(self, chain: ChainView, seats: RoundParticipants, moment: Moment) -> float | None:
        """Abandon a round after its deadline, at this worker's turn; return when that is."""
        parameters, newest = chain.parameters, self.newest_block
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
        newest = self.newest_block
        return None if newest is None else (newest.hash, sent)

    def _measure(self, chain: ChainView, moment: Moment) -> None:
        """Evaluate the model of the round once its training is over."""
        if self._assigned is not None and not self._training.is_busy:
            model = self._assigned.model
            measuring = partial(self.measuring.look, chain.round, model)
            self.failures.attempt(WorkPart.MEASURING, moment, measuring)

    def present(self) -> Mapping[ClientId, VotingPosition]:
        """Return the position of each member when it last acted, once the inputs are closed."""
        return self._present


_NAMES = {
    SendCommitment: "commitments",
    SendReport: "a proof of equivocation",
    SendDecision: "the decision",
}


def _told(transactions: Iterable[Transaction]) -> str:
    return " and ".join(dict.fromkeys(_NAMES[type(transaction)] for transaction in transactions))
