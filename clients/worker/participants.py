"""The clients that a worker hosts, their part in a round, and the guard against lost blocks.

They are honest, unless a process of the tests hands in another behaviour: nothing in an owner's
environment or folder can make a worker misbehave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clients.training.port import Engine
from clients.worker.training import LocalUpdates
from ledger.actors.journal import VoteJournal
from ledger.actors.participants import Member, MemberActor, Trainer, reports_of
from ledger.actors.settlement import JudgementCache
from ledger.actors.steps import Action, PostEnvelope
from ledger.actors.view import ChainView, RoundView
from ledger.chain.finality import AncestryCheck, FinalityCheckpoints
from ledger.chain.ports import Block, ChainReader
from ledger.protocol.documents.envelope import Envelope, PublishedEnvironment
from ledger.protocol.encoding import keccak256
from ledger.protocol.parameters import Parameters
from ledger.protocol.payloads import Payload
from ledger.protocol.signing import Signer, sign
from ledger.protocol.training_replay import TrainingEnvironment
from ledger.protocol.types import ClientId, EnvironmentStatement, RegisteredClient

if TYPE_CHECKING:
    from ledger.actors.observer import Observer


_MOST_HEADS = 128


class ChainFinalityGuard:
    """Compares a chain with the final blocks recorded on a worker's own disk."""

    def __init__(self, chain: ChainReader, acted_on: FinalityCheckpoints) -> None:
        """Guard a chain, given the final blocks that were acted on."""
        self._chain = chain
        self._acted_on = acted_on
        self._accepted: Block | None = None
        self._heads: dict[int, Block] = {}

    def require_unchanged(self, newest: Block, lineage: AncestryCheck) -> None:
        """Accept a chain that still has every block that was acted on.

        Blocks on top of an accepted head need no further comparison.
        """
        accepted, self._accepted = self._accepted, None
        if accepted is None or not lineage.connects(accepted, newest):
            self._heads.clear()
            self._acted_on.require_unchanged(self._chain, newest)
        self._accepted = newest
        self._heads[newest.number] = newest
        if len(self._heads) > _MOST_HEADS:
            del self._heads[next(iter(self._heads))]

    def act_on(self, block_number: int) -> None:
        """Record a final block before it is acted on."""
        newest = self._acted_on.newest
        if newest is not None and block_number <= newest:
            return
        block = self._heads.get(block_number)
        if block is None:
            block = self._chain.block(block_number)
            # The chain may have changed since its head was accepted: the next look tells.
            self._accepted = None
        self._acted_on.note(block)


class WorkerBehaviour:
    """Behaviour of a worker's clients, which follow the protocol; tests derive others."""

    def in_round(self, number: int) -> WorkerBehaviour:  # noqa: ARG002 - the same in each
        return self

    def trainers(
        self,
        hosted: Sequence[ClientId],  # noqa: ARG002 - none acts uninvited
        active: Sequence[ClientId],
    ) -> Sequence[ClientId]:
        return active

    def trainer(self, client: ClientId, signer: Signer) -> Trainer:
        """Return the actor of a client that trains."""
        return Trainer(client, signer)

    def sent(self, update: Payload, parameters: Parameters, *, is_member: bool) -> Payload:  # noqa: ARG002
        """Return the payload that a client commits to, given its update."""
        return update

    def member(self, honest: Member, signer: Signer, hosted: frozenset[ClientId]) -> MemberActor:  # noqa: ARG002
        """Return the actor of a committee member; a favouring one favours the hosted clients."""
        return honest


HONEST = WorkerBehaviour()


@dataclass(frozen=True, slots=True)
class HostedClients:
    """The clients of a worker, and what they act with.

    Attributes:
        environment: in which the engine trains, which the clients state beside their updates.
        sets: names of local test sets; without any, no model is evaluated.
        finality: guards against a chain that takes back final blocks; None for one that cannot.
    """

    signers: Mapping[ClientId, Signer]
    engine: Engine
    own: LocalUpdates
    training: Executor
    sending: Executor
    environment: TrainingEnvironment
    behaviour: WorkerBehaviour = HONEST
    sets: Sequence[str] = ()
    finality: ChainFinalityGuard | None = None

    @property
    def clients(self) -> tuple[ClientId, ...]:
        """The hosted clients, ascending."""
        return tuple(sorted(self.signers))

    def can_act(self, registry: Sequence[RegisteredClient], round_number: int) -> bool:
        """Return whether any of them may still take part in a round or a later one."""
        return any(not registry[client].is_banned_in(round_number) for client in self.signers)


STAGGER_VIEWS = 4
"""Over how many view times those who may all do one thing are spread."""


class RoundParticipants:
    """The hosted clients in one round.

    Attributes:
        active: those that train or serve, ascending.
        members: each serving client as honest member and as the actor that is stepped.
        view: the round as it is seen; None until the chain has closed its inputs.
        abstaining: members that stay silent, since their journal may lack what they signed.
        wait: for how many seconds this worker leaves shared tasks to others.
    """

    def __init__(self, chain: ChainView, hosting: HostedClients) -> None:
        """Assign the roles of an open round."""
        who = chain.participants()
        self._key = _key(chain)
        self._hosting = hosting
        self.serving = tuple(c for c in who.members if c in hosting.signers)
        self.active = tuple(c for c in sorted(who.expected) if c in hosting.signers)
        self._round = chain.round
        self._behaviour: WorkerBehaviour | None = None
        self._trainers: dict[ClientId, Trainer] = {}
        self.members: list[tuple[Member, MemberActor]] = []
        self.view: RoundView | None = None
        self.abstaining: frozenset[ClientId] = frozenset()
        self.wait = self._share(chain) * STAGGER_VIEWS * chain.parameters.view_seconds

    def is_for(self, chain: ChainView) -> bool:
        """Return whether this is the open round of a chain."""
        return self._key == _key(chain)

    def is_serving(self, client: ClientId) -> bool:
        """Return whether a hosted client is on the committee."""
        return client in self.serving

    def commit(self, chain: ChainView, updates: Mapping[ClientId, Payload]) -> list[Action]:
        """Return the commitments that are still to be made, given the updates trained so far."""
        if self.active and not updates:
            return []
        behaviour = self._behaviour_now()
        actions: list[Action] = []
        for client, trainer in self._trainers.items():
            update = updates.get(client)
            if update is None and client in self.active:
                continue
            if update is not None:
                is_member = self.is_serving(client)
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

    def are_announced(self, view: RoundView) -> bool:
        """Return whether every counted update of these clients has been announced."""
        counted = view.inputs.closing.commitments
        return all(c in view.announced for c in self.active if c in counted)

    def act(self, view: RoundView, now: float) -> list[Action]:
        """Return the actions due while the committee votes, at a time in the chain's seconds."""
        self.view = view
        actions: list[Action] = []
        for client, trainer in self._trainers.items():
            published = trainer.publish(view)
            if published:
                actions += [*published, *self._environment(view, client)]
            actions += trainer.act_while_voting(view)
        for _, member in self.members:
            actions += member.step(view, now)
        return actions

    def reports(self, view: RoundView, now: float) -> list[Action]:
        """Return proofs of equivocation, once it is this worker's turn to send them."""
        if now < view.closed_at + self.wait:
            return []
        return [*reports_of(view)]

    def next_time(self, view: RoundView, now: float) -> float | None:
        """Return when a member may act though nothing new arrives; None for never."""
        times = (member.next_time(view, now) for _, member in self.members)
        return min((time for time in times if time is not None), default=None)

    def _environment(self, view: RoundView, client: ClientId) -> list[PostEnvelope]:
        """Return the client's statement of the environment in which its update was trained.

        There is none of an update that this worker trained before it was restarted in another: who
        repeats it in this one would call it another update.
        """
        here, domain, number = self._hosting.environment, view.inputs.domain, view.inputs.round
        if not self._hosting.own.is_of_this_environment(number, client):
            return []
        statement = EnvironmentStatement(number, client, here.digest)
        body = PublishedEnvironment(here, sign(self._hosting.signers[client], domain, statement))
        return [PostEnvelope(Envelope(domain, number, client, body))]

    def _behaviour_now(self) -> WorkerBehaviour:
        """Return the behaviour of the round, which is looked up when it is first needed.

        A test may set it a moment after the round has opened.
        """
        if self._behaviour is None:
            self._behaviour = behaviour = self._hosting.behaviour.in_round(self._round)
            signers = self._hosting.signers
            acting = behaviour.trainers(self._hosting.clients, self.active)
            self._trainers = {c: behaviour.trainer(c, signers[c]) for c in acting}
        return self._behaviour

    def _share(self, chain: ChainView) -> float:
        """Return this worker's rank among all clients, in [0, 1), drawn anew each round.

        So no worker always pays for all.
        """
        clients = len(chain.registry)
        first = int.from_bytes(keccak256(chain.seed + b"turn")) % clients
        return min((client - first) % clients for client in self._hosting.signers) / clients


def _key(chain: ChainView) -> tuple[object, ...]:
    return (chain.domain, chain.round, chain.seed, chain.committee, chain.opened_block)
