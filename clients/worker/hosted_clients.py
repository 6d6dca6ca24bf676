"""Clients hosted by one worker: their keys, engine, threads and behaviour.

They are honest, unless a process of the tests hands in another behaviour: nothing in an owner's
environment or folder can make a worker misbehave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from clients.training.port import Engine
from clients.worker.finality_guard import ChainFinalityGuard
from clients.worker.round_training import LocalUpdates
from ledger.actors.member import Member, MemberActor
from ledger.actors.trainer import Trainer
from ledger.protocol.parameters import Parameters
from ledger.protocol.payload import Payload
from ledger.protocol.signing import Signer
from ledger.protocol.training_replay import TrainingEnvironment
from ledger.protocol.types import ClientId, RegisteredClient


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
