"""What the clients of a worker do in a round: the honest actors, and the port for any others.

A worker that an owner runs is honest: nothing in its environment or its folder can tell it to be
anything else. Only a test network hands another behaviour in.
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
    """How the clients of a worker act in one round."""

    def trainers(
        self, hosted: Sequence[ClientId], active: Sequence[ClientId]
    ) -> Sequence[ClientId]:
        """Return who acts as a trainer.

        Args:
            hosted: all clients of the worker, ascending.
            active: those that train or serve, ascending.
        """

    def trainer(self, client: ClientId, signer: Signer) -> Trainer:
        """Return the actor of a client that trains.

        Args:
            client: who it is.
            signer: its key.
        """

    def sent(self, update: Payload, *, is_member: bool) -> Payload:
        """Return what a client commits to.

        Args:
            update: what it has trained.
            is_member: whether it sits on the committee.
        """

    def member(self, honest: Member, signer: Signer, hosted: frozenset[ClientId]) -> MemberActor:
        """Return the actor of a client that serves.

        Args:
            honest: the honest member.
            signer: its key.
            hosted: all clients of the worker.
        """


class WorkerBehaviour(Protocol):
    """How the clients of a worker act."""

    def in_round(self, number: int) -> RoundBehaviour:
        """Return how they act in one round.

        Args:
            number: t.
        """


@dataclass(frozen=True, slots=True)
class HonestBehaviour:
    """Clients that follow the protocol."""

    def in_round(self, number: int) -> HonestBehaviour:  # noqa: ARG002 - the same in each
        """Return the same for each round.

        Args:
            number: t.
        """
        return self

    def trainers(
        self,
        hosted: Sequence[ClientId],  # noqa: ARG002 - nobody acts uninvited
        active: Sequence[ClientId],
    ) -> Sequence[ClientId]:
        """Return the active clients.

        Args:
            hosted: all clients of the worker, ascending.
            active: those that train or serve, ascending.
        """
        return active

    def trainer(self, client: ClientId, signer: Signer) -> Trainer:
        """Return an honest trainer.

        Args:
            client: who it is.
            signer: its key.
        """
        return Trainer(client, signer)

    def sent(self, update: Payload, *, is_member: bool) -> Payload:  # noqa: ARG002
        """Return the update as it is.

        Args:
            update: what a client has trained.
            is_member: whether it sits on the committee.
        """
        return update

    def member(
        self,
        honest: Member,
        signer: Signer,  # noqa: ARG002 - it has the key already
        hosted: frozenset[ClientId],  # noqa: ARG002 - it favours nobody
    ) -> MemberActor:
        """Return the honest member.

        Args:
            honest: that member.
            signer: its key.
            hosted: all clients of the worker.
        """
        return honest


HONEST = HonestBehaviour()
