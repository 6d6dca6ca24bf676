"""A run with all actors in one process, and distances computed early.

The actors are the ones of separate workers. Only the contract moves the run on, and a killed run
resumes from chain, blobs and journal. Time jumps to the next moment when any actor may act.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clients.training.port import Engine, TrainingJob
from ledger.actors.driver import Driver
from ledger.actors.journal import VoteJournal
from ledger.actors.observer import Observer, PublishedBlobs
from ledger.actors.participants import Member, MemberActor, Trainer, reports_of
from ledger.actors.retention import RETAIN_ALL, PayloadRemover, RetentionPolicy, StoredBlobs
from ledger.actors.steps import Action, ActorContext, JudgementCache, SendDecision, judgement_behind
from ledger.actors.view import ChainView, RoundView
from ledger.chain.ports import ChainRolledBackError
from ledger.distances import fast_server_step, usable_cores
from ledger.protocol.errors import ChainError
from ledger.protocol.inputs import training_seed
from ledger.protocol.payloads import Payload
from ledger.protocol.rules.distance import DistanceRule, Distances, OwnRuleName, Travel, Updates
from ledger.protocol.types import ClientId, Digest, Phase

if TYPE_CHECKING:
    from clients.adversaries.attackers import AttackMemory
    from clients.runs.metrics import Measure, RoundMetrics
    from clients.runs.population import Population

_log = logging.getLogger(__name__)


class _Asked(NamedTuple):
    rule: DistanceRule
    travel: Travel
    updates: Updates
    members: Sequence[ClientId]

    def covers(self, other: _Asked) -> bool:
        if other.rule != self.rule or other.travel is not self.travel:
            return False
        if self.rule.between is None and other.updates.keys() != self.updates.keys():
            return False
        return set(other.members) <= set(self.members) and all(
            client in self.updates and _are_same(update, self.updates[client])
            for client, update in other.updates.items()
        )


def _are_same(update: NDArray[np.float32], other: NDArray[np.float32]) -> bool:
    here, there = update.__array_interface__["data"][0], other.__array_interface__["data"][0]
    return bool(here == there and update.shape == other.shape)


class EarlyDistances:
    """A counterpart of the given distances that computes some of them in advance.

    One thread computes them while the transactions of a trained round are mined. A squared distance
    has the same bytes with any other updates in the call; directions are of the same ones alone.
    """

    def __init__(self, distances: Distances) -> None:
        self._distances = distances
        self._early: tuple[_Asked, Future[NDArray[np.float64]]] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="distances")

    def begin(
        self, rule: DistanceRule, travel: Travel, updates: Updates, members: Sequence[ClientId]
    ) -> None:
        """Start to compute the distances of a round, whose updates are unchanged until `drop`."""
        self.drop()
        asked = _Asked(rule, travel, updates, tuple(members))

        def compute() -> NDArray[np.float64]:
            # Updates that are not finite are excluded later; their distances are never requested.
            with np.errstate(all="ignore"):
                return self._distances(*asked)

        self._early = asked, self._thread.submit(compute)

    def drop(self) -> None:
        """Drop the computed distances, once the thread no longer reads the updates."""
        if self._early is not None and not self._early[1].cancel():
            self._early[1].exception()
        self._early = None

    def __call__(
        self, rule: DistanceRule, travel: Travel, updates: Updates, members: Sequence[ClientId]
    ) -> NDArray[np.float64]:
        asked = _Asked(rule, travel, updates, members)
        if self._early is None or not self._early[0].covers(asked):
            return self._distances(*asked)
        early, matrix = self._early
        column_of = {client: column for column, client in enumerate(sorted(early.updates))}
        rows = [early.members.index(member) for member in members]
        columns = [column_of[client] for client in sorted(updates)]
        return matrix.result()[np.ix_(rows, columns)]


@dataclass(frozen=True, slots=True)
class SimulatedActors:
    """Actors of a run; with `overlaps`, distances are computed in parallel with transactions."""

    population: Population
    engine: Engine
    overlaps: bool = False
    memory: AttackMemory | None = None

    def trainers(self, chain: ChainView) -> dict[ClientId, Trainer]:
        signers, faults = self.population.signers, self.population.trainer_faults
        active = chain.participants().active
        if not faults:
            return {client: Trainer(client, signers[client]) for client in sorted(active)}
        # A run without adversaries does not load their code; nor do the next two methods.
        from clients.adversaries.faults import UNINVITED, trainer_with  # noqa: PLC0415

        uninvited = {client for client, fault in faults.items() if fault in UNINVITED}
        return {
            client: trainer_with(faults.get(client), client, signers[client])
            for client in sorted(uninvited.union(active))
        }

    def member(
        self, client: ClientId, journal: VoteJournal, judge: JudgementCache
    ) -> tuple[Member, MemberActor]:
        signer, fault = self.population.signers[client], self.population.member_faults.get(client)
        honest = Member(client, signer, journal, judge)
        if fault is None:
            return honest, honest
        from clients.adversaries.faults import member_with  # noqa: PLC0415

        return honest, member_with(fault, honest, signer, self.population.favoured)

    def updates(
        self, chain: ChainView, model: NDArray[np.float32], travel: NDArray[np.float32] | None
    ) -> tuple[Mapping[ClientId, NDArray[np.float32]], dict[ClientId, Payload]]:
        """Return the update that each active client sends, and its payload: forged or honest.

        The model is w_t, the travel w_s − w_t of shape (d,), None if the distances need none.
        """
        able = sorted(chain.participants().expected)
        jobs = [TrainingJob(int(c), training_seed(chain.seed, c)) for c in able]
        trained = dict(zip(able, self.engine.train(model, jobs), strict=True))
        honest = {client: update.vector for client, update in trained.items()}
        sent: Mapping[ClientId, NDArray[np.float32]] = honest
        if self.population.malicious or self.population.member_faults:
            sent = self._forged(honest, chain, model, travel)
        form = chain.parameters.payload_form
        payloads = {
            client: trained[client].payload if update is honest[client] else form.payload(update)
            for client, update in sent.items()
        }
        # The update is what the payload says: a forged one is rounded, too.
        said = {client: payload.update for client, payload in payloads.items()}
        return {c: sent[c] if update is None else update for c, update in said.items()}, payloads

    def _forged(
        self,
        honest: Mapping[ClientId, NDArray[np.float32]],
        chain: ChainView,
        model: NDArray[np.float32],
        travel: NDArray[np.float32] | None,
    ) -> Mapping[ClientId, NDArray[np.float32]]:
        """Return the updates that are sent: an honest one is the very array that was passed."""
        from clients.adversaries.attackers import AttackRound  # noqa: PLC0415
        from clients.adversaries.faults import MemberFault, wild_reference  # noqa: PLC0415

        population, members = self.population, chain.participants().members
        sent = dict(honest)
        for client in members:
            if population.member_faults.get(client) is MemberFault.FALSE_REFERENCE:
                sent[client] = wild_reference(honest[client])
        attack = AttackRound(
            seed=chain.seed,
            starts=dict.fromkeys(honest, model),
            members=frozenset(members),
            parameters=chain.parameters,
            travel=travel,
            history=None if self.memory is None else self.memory.history(chain.round, model),
        )
        return population.attackers.corrupt(sent, attack)


class Simulation:
    """A simulated run; `on_step` gets an actor's actions before they are carried out."""

    def __init__(
        self,
        context: ActorContext,
        cast: SimulatedActors,
        keep: RetentionPolicy = RETAIN_ALL,
        on_model: Callable[[int, NDArray[np.float32]], None] | None = None,
        pinned: Collection[Digest] = frozenset(),
    ) -> None:
        """Resume a run; `on_model` gets a round's certified model before the decision is sent."""
        self._context, self._cast, self._on_model = context, cast, on_model
        self._published = PublishedBlobs()
        self._driver = Driver(context, self._published, keep)
        forgets = keep.stored is StoredBlobs.NOTHING
        self._observer = Observer(context, self._published, remembers=forgets)
        self._distances = EarlyDistances(cast.engine.distances)
        self._judge = JudgementCache(self._distances, fast_server_step(usable_cores()))
        self._model: NDArray[np.float32] | None = None
        self._told: Digest | None = None
        self.on_step: Callable[[list[Action]], None] | None = None
        self.chain: ChainView | None = self._observer.chain()
        self._old: PayloadRemover | None = None
        if keep.rounds is not None:
            self._old = PayloadRemover(context.ledger, context.blobs, keep.rounds, pinned)
            # A process that was killed after a decision has removed nothing.
            number = context.ledger.state().round
            self._old.ended(number - 1 if self.chain is not None else number, ())

    @property
    def model(self) -> NDArray[np.float32]:
        if self._model is None:
            self._model = self._observer.model()
        return self._model

    def run(
        self,
        measure: Measure,
        on_round: Callable[[RoundMetrics], None],
        is_over: Callable[[], bool],
    ) -> None:
        """Play the remaining rounds until the run is over, and call `on_round` with each row."""
        while self.chain is not None and not is_over():
            number = self.chain.round
            later = self.play_round()
            if later is not None and later.round != number + 1:
                raise ChainRolledBackError(
                    f"round {number + 1} should be open, but round {later.round} is; the node "
                    "has an older state of its chain, or another chain"
                )
            on_round(measure.row(self._context.ledger, number, self.model))

    def play_round(self) -> ChainView | None:
        chain = self.chain
        assert chain is not None, "a round is open"
        trainers = self._cast.trainers(chain)
        view = self._closed(chain, trainers)
        self._apply(trainer.publish(view) for trainer in trainers.values())
        context, members = self._context, []
        mail = self._observer.envelopes(view)
        for client in chain.participants().members:
            honest, member = self._cast.member(client, context.journal, self._judge)
            members.append(member)
            honest.recall(context.domain, mail)
        self._vote(view, trainers, members)
        self._model = self._observer.model()
        self._context.mailbox.forget(self._context.domain, chain.round)
        self.chain = self._observer.chain()
        if self.chain is not None and self.chain.round == chain.round:
            self._driver.abandon(chain)
            self.chain = self._observer.chain()
        elif self._cast.memory is not None:
            form, dimension = chain.parameters.payload_form, chain.parameters.dimension
            published = self._published.payloads.items()
            updates = {client: form.update_of(p.data, dimension) for client, p in published}
            self._cast.memory.round_ended(updates)
        if self._old is not None:
            payloads = self._published.payloads.values()
            self._old.ended(chain.round, [payload.digest for payload in payloads])
        self._forget()
        return self.chain

    def _forget(self) -> None:
        self._distances.drop()
        self._published.forget()

    def _closed(self, chain: ChainView, trainers: Mapping[ClientId, Trainer]) -> RoundView:
        """Let all clients commit, and return the view once the chain has closed the inputs."""
        self._forget()  # a round that was cut short may have left something
        travel, opened = self._observer.travel(chain.round), chain.final_block
        sent, payloads = self._cast.updates(chain, self.model, travel)
        # An own distance is not asked about updates that will turn out not to be usable.
        if self._cast.overlaps and OwnRuleName.of(chain.parameters.distance) is None:
            seated = [member for member in sorted(chain.participants().members) if member in sent]
            self._distances.begin(chain.parameters.distance_rule, travel, sent, seated)
        while self._apply(t.commit(chain, payloads.get(c)) for c, t in trainers.items()):
            chain = self._refreshed(chain)
        inputs = chain.inputs()
        if inputs is not None and not inputs.closing.commitments:
            _log.warning("%s", chain.missed_window, extra={"round": chain.round})
        if inputs is None:  # somebody is late: the window has to pass
            self._driver.mine_to(chain.window_end)
            inputs = self._refreshed(chain).inputs()
        if inputs is None:
            raise _ended_by_another(chain)
        # No block of a round changes what the model of its first one was.
        return self._observer.opened(inputs, self.model, opened)

    def _vote(
        self, view: RoundView, trainers: Mapping[ClientId, Trainer], members: list[MemberActor]
    ) -> None:
        """Let the members act until the round is over, or none of them has anything left to do."""
        now = view.closed_at
        while True:
            view = self._observer.look(view)
            steps = [trainer.act_while_voting(view) for trainer in trainers.values()]
            steps += [member.step(view, now) for member in members]
            if self._on_model is not None:
                for certificate in view.certificates(Phase.AGGREGATION):
                    result = certificate.vote.result
                    judgement = judgement_behind(view, self._judge, result)
                    if judgement is not None and result != self._told:
                        self._told = result
                        self._on_model(view.inputs.round, judgement.model)
            if self._apply(steps):
                decides = any(isinstance(each, SendDecision) for step in steps for each in step)
                if decides and not self._context.is_open(view.inputs.round):
                    return
                continue
            times = (member.next_time(view, now) for member in members)
            later = min((time for time in times if time is not None), default=None)
            if later is None:
                self._apply([[*reports_of(view)]])
                return
            now = later

    def _refreshed(self, chain: ChainView) -> ChainView:
        # The events of own transactions: the round's end compares them with the contract's storage.
        again = self._observer.chain(verifies=False)
        if again is None or again.round != chain.round:
            raise _ended_by_another(chain)
        return again

    def _apply(self, steps: Iterable[list[Action]]) -> bool:
        all_steps = list(steps)
        if self.on_step is not None:
            for step in all_steps:
                self.on_step(step)
        return self._driver.apply([action for step in all_steps for action in step])


def _ended_by_another(chain: ChainView) -> ChainError:
    return ChainError(
        f"round {chain.round} is not open any more, and this process did not end it: another "
        f"process plays this run, or the chain was reorganised; end the other process, and resume "
        f"the run"
    )
