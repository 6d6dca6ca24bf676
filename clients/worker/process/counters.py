"""Counters of a worker's activity."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ledger.protocol.documents.envelope import EnvelopeKind
from ledger.storage.blobs import MAX_BLOB_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clients.worker.worker import Worker
    from ledger.protocol.documents.envelope import Envelope
    from ledger.protocol.payload import Payload
    from ledger.protocol.types import ClientId, Digest, Domain, Phase
    from ledger.storage.blobs import BlobStore
    from ledger.storage.mailbox import Mailbox


@dataclass(slots=True)
class WorkerCounters:
    """Counts since the process started.

    Attributes:
        rounds: rounds seen to open.
        commitments: of its clients, on the chain.
        views: entered by its members.
        said: envelopes new to the mailbox, by kind.
        bytes_put: of blobs.
        bytes_got: of blobs.
    """

    rounds: int = 0
    commitments: int = 0
    views: int = 0
    said: Counter[EnvelopeKind] = field(default_factory=Counter)
    bytes_put: int = 0
    bytes_got: int = 0
    _round: int = 0
    _committed: set[ClientId] = field(default_factory=set)
    _entered: set[tuple[ClientId, Phase, int]] = field(default_factory=set)

    @property
    def votes(self) -> int:
        """Requests and replies."""
        return self.said[EnvelopeKind.REQUEST] + self.said[EnvelopeKind.REPLY]

    def look(self, worker: Worker) -> None:
        """Update the counters after a step."""
        chain, seats = worker.chain, worker.seats
        if chain is None or seats is None:
            return
        if chain.round != self._round:
            self._round = chain.round
            self.rounds += 1
            self._committed.clear()
            self._entered.clear()
        hosted = worker.hosting.signers
        now_there = {mined.client for mined in chain.commitments if mined.client in hosted}
        self.commitments += len(now_there - self._committed)
        self._committed |= now_there
        for member, present in worker.present().items():
            if present.span is not None:
                entered = (member, present.phase, present.span.view)
                self.views += entered not in self._entered
                self._entered.add(entered)


class CountingBlobs:
    """A blob store whose bytes are counted."""

    def __init__(self, blobs: BlobStore, counts: WorkerCounters) -> None:
        self._blobs = blobs
        self._counts = counts

    def get(self, digest: Digest, limit: int = MAX_BLOB_BYTES) -> bytes:
        """Return the verified blob with a digest."""
        data = self._blobs.get(digest, limit)
        self._counts.bytes_got += len(data)
        return data

    def has(self, digest: Digest) -> bool:
        """Return whether there is a blob with a digest."""
        return self._blobs.has(digest)

    def put(self, data: bytes) -> Digest:
        """Store a blob and return its digest."""
        digest = self._blobs.put(data)
        self._counts.bytes_put += len(data)
        return digest

    def put_payload(self, payload: Payload) -> None:
        """Store a payload that this process has hashed."""
        self._blobs.put_payload(payload)
        self._counts.bytes_put += payload.size

    def remove(self, digest: Digest) -> None:
        """Remove a blob."""
        self._blobs.remove(digest)

    def sync(self) -> None:
        """Make all stored blobs durable."""
        self._blobs.sync()


class CountingMailbox:
    """A mailbox whose new envelopes are counted."""

    def __init__(self, mailbox: Mailbox, counts: WorkerCounters) -> None:
        self._mailbox = mailbox
        self._counts = counts
        self.is_shared = mailbox.is_shared

    def put(self, envelope: Envelope) -> bool:
        """Add an envelope; return whether it is new."""
        is_new = self._mailbox.put(envelope)
        self._counts.said[envelope.kind] += is_new
        return is_new

    def listed(
        self, domain: Domain, round_number: int, kind: EnvelopeKind, start: int = 0
    ) -> Sequence[Envelope]:
        """Return the envelopes of one kind and round."""
        return self._mailbox.listed(domain, round_number, kind, start)

    def forget(self, domain: Domain, before_round: int) -> None:
        """Drop the envelopes of earlier rounds."""
        self._mailbox.forget(domain, before_round)
