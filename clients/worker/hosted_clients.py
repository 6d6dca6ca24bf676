"""The clients that one worker hosts, and with what they act."""

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
    """The clients of a worker.

    Attributes:
        signers: the key of each.
        engine: trains them, and computes their distances.
        own: keeps what they have trained.
        training: the one thread that trains and measures.
        sending: the one thread that sends transactions.
        behaviour: how they act; honestly, but in tests.
        sets: sets of samples of this worker's own to measure models on; none measures nothing.
        finality: watches that nothing final is taken back.
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
        """Who is hosted, ascending."""
        return tuple(sorted(self.signers))

    def can_act(self, registry: Sequence[RegisteredClient], round_number: int) -> bool:
        """Say whether any of them may still take part.

        Args:
            registry: all clients with their bans.
            round_number: the open one.
        """
        return any(not registry[client].is_banned_in(round_number) for client in self.signers)
