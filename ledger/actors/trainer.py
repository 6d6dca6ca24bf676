"""An honest client's part before the vote: commit an update, publish it once all inputs are closed.

A trainer that departs from the protocol subclasses the honest one and changes what it sends.
"""

from __future__ import annotations

from ledger.actors.steps import Action, PostEnvelope, SendCommitment, StoreBlobs
from ledger.actors.view import ChainView, RoundView
from ledger.protocol.documents.envelope import Envelope, PublishedPayload
from ledger.protocol.encoding import commitment_of
from ledger.protocol.inputs import Inputs
from ledger.protocol.payloads import Payload
from ledger.protocol.signing import Signer, sign
from ledger.protocol.types import ClientId, Commitment, Digest, SignedCommitment


class Trainer:
    """A client that trains, whether it also serves on the committee or not."""

    def __init__(self, client: ClientId, signer: Signer, update: Payload | None = None) -> None:
        """Prepare to take part in one round.

        Args:
            update: what it has committed to, if it has already.
        """
        self.client = client
        self._signer = signer
        self._payload = update

    def commit(self, chain: ChainView, update: Payload | None) -> list[Action]:
        """Return the commitment to an update, while it is accepted and not yet on the chain.

        Args:
            update: the client's update; None if it has none, or is not active.
        """
        self._payload = None if update is None else self.payload_for(update)
        is_banned = chain.registry[self.client].is_banned_in(chain.round)
        has_committed = any(mined.client == self.client for mined in chain.commitments)
        if self._payload is None or has_committed or is_banned or not chain.takes_commitments:
            return []
        return [self.signed(chain, commitment_of(self.client, self._payload.digest))]

    def publish(self, view: RoundView) -> list[Action]:
        """Return the payload and its announcement, if it counts and is not announced yet."""
        payload = self._payload
        if payload is None or self.client in view.announced:
            return []
        counted = view.inputs.closing.commitments.get(self.client)
        if counted != commitment_of(self.client, payload.digest):
            return []
        body = PublishedPayload(payload.digest)
        envelope = Envelope(view.inputs.domain, view.inputs.round, self.client, body)
        return [StoreBlobs(payloads={self.client: payload}), PostEnvelope(envelope)]

    def act_while_voting(self, view: RoundView) -> list[Action]:  # noqa: ARG002
        """Do nothing: an honest trainer's part is over."""
        return []

    def payload_for(self, update: Payload) -> Payload | None:
        """Return what is sent in place of an update: itself, from an honest trainer."""
        return update

    def signed(self, inputs: ChainView | Inputs, commitment: Digest) -> SendCommitment:
        """Return the transaction of a commitment with this client's signature."""
        statement = Commitment(inputs.round, self.client, commitment)
        signature = sign(self._signer, inputs.domain, statement)
        return SendCommitment(SignedCommitment(statement, signature))
