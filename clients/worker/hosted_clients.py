"""Clients hosted by one worker, with keys, engine and threads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from clients.worker.behaviour import HONEST
from clients.worker.finality_guard import FinalityGuard, NoFinalityGuard

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Executor

    from clients.training.port import Engine
    from clients.worker.behaviour import WorkerBehaviour
    from clients.worker.local_updates import LocalUpdates
    from ledger.protocol.signing import Signer
    from ledger.protocol.types import ClientId, RegisteredClient


@dataclass(frozen=True, slots=True)
class HostedClients:
    """The clients of a worker, and what they act with.

    Attributes:
        signers: the key of each client.
        engine: trains them, and computes their distances.
        own: store of their trained updates.
        training: the one thread that trains and evaluates.
        sending: the one thread that sends transactions.
        behaviour: honest, except in tests.
        sets: names of local test sets; without any, no model is evaluated.
        finality: guards against a chain that takes back final blocks.
    """

    signers: Mapping[ClientId, Signer]
    engine: Engine
    own: LocalUpdates
    training: Executor
    sending: Executor
    behaviour: WorkerBehaviour = HONEST
    sets: Sequence[str] = field(default=())
    finality: FinalityGuard = field(default_factory=NoFinalityGuard)

    @property
    def clients(self) -> tuple[ClientId, ...]:
        """The hosted clients, ascending."""
        return tuple(sorted(self.signers))

    def can_act(self, registry: Sequence[RegisteredClient], round_number: int) -> bool:
        """Return whether any of them may still take part in a round or a later one."""
        return any(not registry[client].is_banned_in(round_number) for client in self.signers)
