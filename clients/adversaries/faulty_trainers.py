"""Faulty trainers: each changes what an honest one sends."""

from __future__ import annotations

from collections.abc import Callable

from clients.adversaries.faults import TrainerFault, faulty_payload
from ledger.actors.actions import Action, SendReport
from ledger.actors.trainer import Trainer
from ledger.actors.view import ChainView, RoundView
from ledger.protocol.encoding import commitment_of, sha256
from ledger.protocol.ledger_state import EquivocationReport, SignedStatement
from ledger.protocol.payload import Payload
from ledger.protocol.signing import Signer, sign
from ledger.protocol.types import (
    NO_DIGEST,
    ClientId,
    Phase,
    Vote,
    VoteKind,
)


class UnusableTrainer(Trainer):
    """Sends what is no update, or nothing."""

    def __init__(self, client: ClientId, signer: Signer, fault: TrainerFault) -> None:
        super().__init__(client, signer)
        self._fault = fault

    def payload_for(self, update: Payload) -> Payload | None:
        """Return what is unusable, None for nothing."""
        return faulty_payload(update, self._fault)


class LateTrainer(Trainer):
    """Commits only when the committee is already at work."""

    def commit(self, chain: ChainView, update: Payload | None) -> list[Action]:
        """Keep the update back."""
        super().commit(chain, update)
        return []

    def act_while_voting(self, view: RoundView) -> list[Action]:
        """Commit now."""
        if self._payload is None or self.client in view.inputs.closing.commitments:
            return []
        return [self.signed(view.inputs, commitment_of(self.client, self._payload.digest))]


class StrayClient(Trainer):
    """Commits in rounds in which it is not active."""

    def commit(self, chain: ChainView, update: Payload | None) -> list[Action]:
        """Commit whatever, if it is not active."""
        if update is not None:
            return super().commit(chain, update)
        self._payload = None
        if not chain.takes_commitments or _has_committed(chain, self.client):
            return []
        return [self.signed(chain, sha256(b"stray" + chain.seed))]


class CopyingTrainer(Trainer):
    """Repeats the first commitment that it sees, and hopes to profit from the payload."""

    def commit(self, chain: ChainView, update: Payload | None) -> list[Action]:
        """Commit another's word."""
        self._payload = None
        others = [mined for mined in chain.commitments if mined.client != self.client]
        if update is None or not others or _has_committed(chain, self.client):
            return []
        return [self.signed(chain, others[0].commitment)]


class SelfBanningTrainer(Trainer):
    """Does its work, then proves its own equivocation while the committee votes."""

    def act_while_voting(self, view: RoundView) -> list[Action]:
        """Send two conflicting votes of this client to the contract."""
        inputs = view.inputs
        if self._payload is None or inputs.registry[self.client].banned_in:
            return []
        signed = []
        for result in (NO_DIGEST, inputs.closing.base):
            slot = (VoteKind.REPLY, inputs.round, Phase.AGGREGATION, 0, inputs.closing.base)
            vote = Vote(*slot, NO_DIGEST, result)
            signed.append(SignedStatement(vote, sign(self._signer, inputs.domain, vote)))
        return [SendReport(EquivocationReport(self.client, *signed))]


TRAINERS: dict[TrainerFault, Callable[[ClientId, Signer], Trainer]] = {
    TrainerFault.LATE: LateTrainer,
    TrainerFault.STRAY: StrayClient,
    TrainerFault.COPIED: CopyingTrainer,
    TrainerFault.SELF_BAN: SelfBanningTrainer,
}
"""What does a fault that is not in the payload alone."""


def trainer_with(fault: TrainerFault | None, client: ClientId, signer: Signer) -> Trainer:
    """Return a client with a fault; an honest one without."""
    if fault is None:
        return Trainer(client, signer)
    if fault in TRAINERS:
        return TRAINERS[fault](client, signer)
    return UnusableTrainer(client, signer, fault)


def _has_committed(chain: ChainView, client: ClientId) -> bool:
    return any(mined.client == client for mined in chain.commitments)
