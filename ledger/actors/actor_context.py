"""The context of a run's actors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ledger.actors.journal import VoteJournal
    from ledger.chain.round_ledger import RoundLedger
    from ledger.protocol.parameters import Parameters
    from ledger.protocol.rules.distance import Layout
    from ledger.protocol.types import Domain
    from ledger.storage.blobs import BlobStore
    from ledger.storage.mailbox import Mailbox


@dataclass(frozen=True, slots=True)
class ActorContext:
    """Chain, stores and journal of a run.

    Attributes:
        parameters: of the run.
        layout: of its model.
        domain: the contract on its chain.
        ledger: the contract, or the memory ledger.
        blobs: where everybody publishes.
        mailbox: where envelopes are put.
        journal: what the keys of this process have signed.
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
