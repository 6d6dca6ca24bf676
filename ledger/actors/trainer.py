"""An honest client's part before the vote: commit an update, and publish it once all have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.actors.actions import PostEnvelope, SendCommitment, StoreBlobs
from ledger.protocol.documents.envelope import Envelope, PublishedPayload
from ledger.protocol.encoding import commitment_of
from ledger.protocol.signing import sign
from ledger.protocol.types import Commitment, SignedCommitment

if TYPE_CHECKING:
    from ledger.actors.actions import Action
    from ledger.actors.view import ChainView, RoundView
    from ledger.protocol.payload import Payload
    from ledger.protocol.signing import Signer
    from ledger.protocol.types import ClientId


class Trainer:
    """A client that trains, as trainer or as member.

    Attributes:
        client: who it is.
    """

    def __init__(self, client: ClientId, signer: Signer) -> None:
        """Take part.

        Args:
            client: who it is.
            signer: its key.
        """
        self.client = client
        self._signer = signer

    def commit(self, chain: ChainView, payload: Payload) -> list[Action]:
        """Return the commitment to a payload, while it can be taken and has not been.

        Args:
            chain: the open round.
            payload: the client's update, which nobody has seen yet.
        """
        has_committed = any(mined.client == self.client for mined in chain.commitments)
        is_banned = chain.registry[self.client].is_banned_in(chain.round)
        if has_committed or is_banned or not chain.takes_commitments:
            return []
        word = commitment_of(self.client, payload.digest)
        commitment = Commitment(chain.round, self.client, word)
        signature = sign(self._signer, chain.domain, commitment)
        return [SendCommitment(SignedCommitment(commitment, signature))]

    def publish(self, view: RoundView, payload: Payload) -> list[Action]:
        """Return the payload and its announcement, if it is what counts and nobody has it yet.

        Args:
            view: the round, whose closing block is final.
            payload: the client's update.
        """
        counted = view.inputs.closing.commitments.get(self.client)
        if counted != commitment_of(self.client, payload.digest) or self.client in view.announced:
            return []
        body = PublishedPayload(payload.digest)
        envelope = Envelope(view.inputs.domain, view.inputs.round, self.client, body)
        return [StoreBlobs(payloads={self.client: payload}), PostEnvelope(envelope)]
