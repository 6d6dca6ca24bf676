"""Actions that an actor's step returns, and the context that a driver carries them out in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ledger.protocol.rules.distance import Layout
from ledger.protocol.types import ClientId, Digest, Domain, SignedCommitment

if TYPE_CHECKING:
    from ledger.actors.journal import VoteJournal
    from ledger.chain.round_ledger import RoundLedger
    from ledger.protocol.documents.envelope import Envelope
    from ledger.protocol.ledger_state import (
        EquivocationReport,
        SubmittedCertificate,
        SubmittedDecision,
    )
    from ledger.protocol.parameters import Parameters
    from ledger.protocol.payload import Payload
    from ledger.storage.blobs import BlobStore
    from ledger.storage.mailbox import Mailbox


@dataclass(frozen=True, slots=True)
class StoreBlobs:
    """Store these under their sha256: durable before others can see anything that follows.

    Attributes:
        documents: what was made of the round: its record, vectors, incidents and model.
        payloads: what these clients have published of it, which a machine need not keep.
    """

    documents: tuple[Payload, ...] = ()
    payloads: Mapping[ClientId, Payload] = field(default_factory=dict)

    @property
    def blobs(self) -> dict[Digest, Payload]:
        return {blob.digest: blob for blob in (*self.payloads.values(), *self.documents)}


@dataclass(frozen=True, slots=True)
class PostEnvelope:
    """Send an envelope to everybody."""

    envelope: Envelope


@dataclass(frozen=True, slots=True)
class SendCommitment:
    """Bring a commitment to the contract; a driver may put many into one transaction."""

    signed: SignedCommitment


@dataclass(frozen=True, slots=True)
class SendReport:
    """Bring a proof of equivocation to the contract."""

    report: EquivocationReport


@dataclass(frozen=True, slots=True)
class SendDecision:
    """Bring a round's decision to the contract."""

    round: int
    decision: SubmittedDecision
    certificates: tuple[SubmittedCertificate, SubmittedCertificate]


Transaction = SendCommitment | SendReport | SendDecision

Action = StoreBlobs | PostEnvelope | Transaction


@dataclass(frozen=True, slots=True)
class ActorContext:
    """Chain, stores and journal of a run.

    Attributes:
        finality_blocks: how far below the head a block cannot be taken back any more; None for
            what the chain itself calls finalized.
    """

    parameters: Parameters
    layout: Layout
    domain: Domain
    ledger: RoundLedger
    blobs: BlobStore
    mailbox: Mailbox
    journal: VoteJournal
    finality_blocks: int | None = 0
