"""Behaviour of a worker's clients: honest, or as a test network's process replaces it.

Nothing in an owner's environment or folder can make a worker misbehave.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ledger.actors.trainer import Trainer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.actors.member import Member, MemberActor
    from ledger.protocol.payload import Payload
    from ledger.protocol.signing import Signer
    from ledger.protocol.types import ClientId


class RoundBehaviour(Protocol):
    """Behaviour of a worker's clients in one round."""

    def trainers(
        self, hosted: Sequence[ClientId], active: Sequence[ClientId]
    ) -> Sequence[ClientId]:
        """Return the clients that act as trainers, given those hosted and those active."""

    def trainer(self, client: ClientId, signer: Signer) -> Trainer:
        """Return the actor of a client that trains."""

    def sent(self, update: Payload, *, is_member: bool) -> Payload:
        """Return the payload that a client commits to, given its update."""

    def member(self, honest: Member, signer: Signer, hosted: frozenset[ClientId]) -> MemberActor:
        """Return the actor of a committee member; a favouring one favours the hosted clients."""


class WorkerBehaviour(Protocol):
    """Behaviour of a worker's clients."""

    def in_round(self, number: int) -> RoundBehaviour:
        """Return the behaviour in one round."""


@dataclass(frozen=True, slots=True)
class HonestBehaviour:
    """Behaviour of clients that follow the protocol."""

    def in_round(self, number: int) -> HonestBehaviour:  # noqa: ARG002 - the same in each
        """Return this behaviour, the same in every round."""
        return self

    def trainers(
        self,
        hosted: Sequence[ClientId],  # noqa: ARG002 - none acts uninvited
        active: Sequence[ClientId],
    ) -> Sequence[ClientId]:
        """Return the active clients."""
        return active

    def trainer(self, client: ClientId, signer: Signer) -> Trainer:
        """Return an honest trainer."""
        return Trainer(client, signer)

    def sent(self, update: Payload, *, is_member: bool) -> Payload:  # noqa: ARG002
        """Return the update."""
        return update

    def member(
        self,
        honest: Member,
        signer: Signer,  # noqa: ARG002 - it has the key already
        hosted: frozenset[ClientId],  # noqa: ARG002 - it favours none
    ) -> MemberActor:
        """Return the honest member."""
        return honest


HONEST = HonestBehaviour()
