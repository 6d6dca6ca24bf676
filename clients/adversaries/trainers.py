"""Clients that depart from an honest trainer: each wraps one and changes what it sends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from clients.adversaries.faults import TrainerFault, faulty_payload
from ledger.actors.actions import SendCommitment, SendReport
from ledger.actors.trainer import Trainer
from ledger.protocol.encoding import commitment_of, sha256
from ledger.protocol.ledger_state import EquivocationReport, SignedStatement
from ledger.protocol.signing import sign
from ledger.protocol.types import (
    NO_DIGEST,
    Commitment,
    Phase,
    SignedCommitment,
    Vote,
    VoteKind,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.actors.actions import Action
    from ledger.actors.view import ChainView, RoundView
    from ledger.protocol.inputs import Inputs
    from ledger.protocol.payload import Payload
    from ledger.protocol.signing import Signer
    from ledger.protocol.types import ClientId, Digest


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


class UnusableTrainer(HonestTrainer):
    """Sends what is no update, or nothing."""

    def __init__(self, client: ClientId, signer: Signer, fault: TrainerFault) -> None:
        super().__init__(client, signer)
        self._fault = fault

    def payload(self, update: Payload) -> Payload | None:
        """Return what is unusable, None for nothing."""
        return faulty_payload(update, self._fault)


class LateTrainer(HonestTrainer):
    """Commits only when the committee is already at work."""

    def commit(self, chain: ChainView, update: Payload | None) -> list[Action]:
        """Keep the update back."""
        super().commit(chain, update)
        return []

    def linger(self, view: RoundView) -> list[Action]:
        """Commit now."""
        if self._payload is None or self.client in view.inputs.closing.commitments:
            return []
        return [self._committed(view.inputs, commitment_of(self.client, self._payload.digest))]


class StrayClient(HonestTrainer):
    """Commits in rounds in which nobody has asked it to."""

    def commit(self, chain: ChainView, update: Payload | None) -> list[Action]:
        """Commit whatever, if it is not active."""
        if update is not None:
            return super().commit(chain, update)
        self._payload = None
        if not chain.takes_commitments or _has_committed(chain, self.client):
            return []
        return [self._committed(chain, sha256(b"stray" + chain.seed))]


class CopyingTrainer(HonestTrainer):
    """Repeats the first commitment that it sees, and hopes to profit from the payload."""

    def commit(self, chain: ChainView, update: Payload | None) -> list[Action]:
        """Commit another's word."""
        self._payload = None
        others = [mined for mined in chain.commitments if mined.client != self.client]
        if update is None or not others or _has_committed(chain, self.client):
            return []
        return [self._committed(chain, others[0].commitment)]


class SelfBanningTrainer(HonestTrainer):
    """Does its work, then proves an equivocation of its own while the committee votes."""

    def linger(self, view: RoundView) -> list[Action]:
        """Bring two votes of its own to the contract."""
        inputs = view.inputs
        if self._payload is None or inputs.registry[self.client].banned_in:
            return []
        signed = []
        for result in (NO_DIGEST, inputs.closing.base):
            slot = (VoteKind.REPLY, inputs.round, Phase.AGGREGATION, 0, inputs.closing.base)
            vote = Vote(*slot, NO_DIGEST, result)
            signed.append(SignedStatement(vote, sign(self._signer, inputs.domain, vote)))
        return [SendReport(EquivocationReport(self.client, *signed))]


TRAINERS: dict[TrainerFault, Callable[[ClientId, Signer], HonestTrainer]] = {
    TrainerFault.LATE: LateTrainer,
    TrainerFault.STRAY: StrayClient,
    TrainerFault.COPIED: CopyingTrainer,
    TrainerFault.SELF_BAN: SelfBanningTrainer,
}
"""What does a fault that is not in the payload alone."""


def trainer_with(fault: TrainerFault | None, client: ClientId, signer: Signer) -> HonestTrainer:
    """Return a client with this fault.

    Args:
        fault: how it departs; None for an honest client.
        client: who it is.
        signer: its key.
    """
    if fault is None:
        return HonestTrainer(client, signer)
    if fault in TRAINERS:
        return TRAINERS[fault](client, signer)
    return UnusableTrainer(client, signer, fault)


def _has_committed(chain: ChainView, client: ClientId) -> bool:
    return any(mined.client == client for mined in chain.commitments)
