"""Trainer and member actors: what a simulation or a worker steps in a round, honest or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ledger.actors.actions import SendCommitment
from ledger.actors.trainer import Trainer
from ledger.protocol.signing import sign
from ledger.protocol.types import Commitment, SignedCommitment

if TYPE_CHECKING:
    from ledger.actors.actions import Action
    from ledger.actors.view import ChainView, RoundView
    from ledger.protocol.inputs import Inputs
    from ledger.protocol.payload import Payload
    from ledger.protocol.signing import Signer
    from ledger.protocol.types import ClientId, Digest


class MemberActor(Protocol):
    """A member of a simulation, honest or not."""

    @property
    def client(self) -> ClientId:
        """Who it is."""

    def step(self, view: RoundView, now: float) -> list[Action]:
        """Return what there is to do."""

    def next_time(self, view: RoundView, now: float) -> float | None:
        """Return when there may be something to do though nothing new is seen."""


class TrainerActor(Protocol):
    """A client of a simulation, honest or not."""

    def commit(self, chain: ChainView, update: Payload | None) -> list[Action]:
        """Return what it does while commitments are taken; its update is None if not active."""

    def publish(self, view: RoundView) -> list[Action]:
        """Return what it does once the round's inputs are closed."""

    def linger(self, view: RoundView) -> list[Action]:
        """Return what it does while the committee votes."""


class HonestTrainer:
    """A trainer that keeps its payload until it may be published.

    Attributes:
        client: who it is.
    """

    def __init__(self, client: ClientId, signer: Signer) -> None:
        self.client = client
        self._signer = signer
        self._trainer = Trainer(client, signer)
        self._payload: Payload | None = None

    def commit(self, chain: ChainView, update: Payload | None) -> list[Action]:
        """Commit the update if there is one."""
        self._payload = None if update is None else self.payload(update)
        return [] if self._payload is None else self._trainer.commit(chain, self._payload)

    def publish(self, view: RoundView) -> list[Action]:
        """Publish what was committed."""
        return [] if self._payload is None else self._trainer.publish(view, self._payload)

    def linger(self, view: RoundView) -> list[Action]:  # noqa: ARG002 - the honest do nothing
        """Do nothing."""
        return []

    def payload(self, update: Payload) -> Payload | None:
        """Return what is sent, None for nothing."""
        return update

    def _committed(self, about: ChainView | Inputs, word: Digest) -> SendCommitment:
        commitment = Commitment(about.round, self.client, word)
        signature = sign(self._signer, about.domain, commitment)
        return SendCommitment(SignedCommitment(commitment, signature))
