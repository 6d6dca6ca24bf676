"""Retention of a run's blobs: a machine's choice, and no part of the protocol.

Members vote by what they hold in memory or store, so heads are the same under every choice. What
changes is how much an audit can check afterwards: it says what is not there, and ends incomplete.

What may go follows from the chain and from the records that it names, so a run that is taken up
again finds what a killed one has left behind. A payload stays while any newer round has the same,
and so does whatever else is named by these bytes: a client may publish a copy of a model or of a
record, and runs that share a store may share an update.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from ledger.chain.round_ledger import RoundHistory, ends_after
from ledger.protocol.documents.record import RoundRecord, decode_record
from ledger.protocol.documents.vector import decode_incidents
from ledger.protocol.errors import BlobError, ConfigurationError, EncodingError
from ledger.protocol.ledger_state import LedgerStage, RoundDecided
from ledger.protocol.types import NO_DIGEST, ClientId, Digest
from ledger.storage.blobs import BlobReader, BlobStore

MAX_RETAINED_ROUNDS = 2**31 - 1
"""The largest number of rounds whose payloads can be asked for."""


class StoredBlobs(StrEnum):
    """The blobs that are written."""

    ALL = "all"
    ACCEPTED = "accepted"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """The blobs that are retained.

    Attributes:
        stored: everything; of the payloads only those of S_a; or nothing, where the ledger itself
            ends with its process, so that no blob is ever read.
        rounds: number of newest rounds that keep their payloads; None for all rounds.
    """

    stored: StoredBlobs = StoredBlobs.ALL
    rounds: int | None = None


RETAIN_ALL = RetentionPolicy()
RETAIN_NOTHING = RetentionPolicy(StoredBlobs.NOTHING)


def retention_policy_of(setting: str | int) -> RetentionPolicy:
    """Return the choice that a setting asks for.

    Args:
        setting: "all", "accepted" (before a decision leaves, the payloads of its S_a are stored,
            and no others ever), or how many of the newest rounds keep their payloads.
    """
    if isinstance(setting, bool) or not isinstance(setting, int):
        if setting in {StoredBlobs.ALL, StoredBlobs.ACCEPTED}:
            return RetentionPolicy(StoredBlobs(setting))
    elif 1 <= setting <= MAX_RETAINED_ROUNDS:
        return RetentionPolicy(rounds=setting)
    raise ConfigurationError(
        f"keep = {setting!r}: must be 'all', 'accepted', or a number of rounds from 1 to "
        f"{MAX_RETAINED_ROUNDS}"
    )


class LedgerAndBlobs(Protocol):
    """A run whose payloads are removed."""

    @property
    def ledger(self) -> RoundHistory:
        """The contract, which names them."""

    @property
    def blobs(self) -> BlobStore:
        """The store that holds them."""


class PayloadRemover:
    """The payloads of a run's rounds, of which only the newest are kept."""

    def __init__(
        self, context: LedgerAndBlobs, rounds: int, pinned: Collection[Digest] = frozenset()
    ) -> None:
        """Look at a run; its chain is read when the first round ends.

        Args:
            rounds: how many of the newest rounds keep their payloads, at least 1.
            pinned: what else must stay: the blobs that other runs name in the same store.
        """
        self._context = context
        self._rounds = rounds
        self._pinned = pinned
        self._documents: set[Digest] = set()
        self._payloads: dict[int, frozenset[Digest]] = {}
        self._read_to = 0

    def ended(self, round_number: int, published: Iterable[Digest]) -> None:
        """Remove what is old once a round has ended, durably.

        Args:
            published: payloads of the round that this process has stored; a round without a
                decision has no record that tells them.
        """
        self._read()
        payloads = self._payloads.get(round_number, frozenset())
        self._payloads[round_number] = payloads.union(published)
        old = sorted(number for number in self._payloads if number <= round_number - self._rounds)
        gone = [self._payloads.pop(number) for number in old]
        retained = self._documents.union(*self._payloads.values())
        for payload in frozenset().union(*gone) - retained:
            if payload not in self._pinned:
                self._context.blobs.remove(payload)

    def _read(self) -> None:
        """Read the rounds that have been decided since the last time."""
        ledger = self._context.ledger
        if not self._read_to:
            deployment = ledger.deployment()
            self._documents |= {deployment.config, deployment.model}
        for event in _decided(ledger, self._read_to):
            record = _record(event, self._context.blobs)
            self._documents |= _documents(event, record, self._context.blobs)
            if record is not None:
                self._payloads[event.round] = frozenset(_payloads(record))
            self._read_to = event.round


def removable_payloads(
    ledger: RoundHistory,
    blobs: BlobReader,
    rounds: int,
    pinned: Collection[Digest] = frozenset(),
) -> set[Digest]:
    """Return the payloads that may go if only the newest rounds keep theirs, there or not.

    Args:
        rounds: how many of the newest ended rounds keep their payloads, at least 1.
        pinned: what else must stay.
    """
    deployment, state = ledger.deployment(), ledger.state()
    newest = state.round - 1 if state.stage is LedgerStage.OPEN else state.round
    gone: set[Digest] = set()
    retained = {deployment.config, deployment.model, *pinned}
    for event in _decided(ledger, 0):
        record = _record(event, blobs)
        retained |= _documents(event, record, blobs)
        if record is not None:
            payloads = _payloads(record)
            if event.round <= newest - rounds:
                gone |= payloads
            else:
                retained |= payloads
    return gone - retained


def blobs_named_by_run(ledger: RoundHistory, blobs: BlobReader) -> set[Digest]:
    """Return every blob that a run names, as far as its records can be read."""
    deployment = ledger.deployment()
    named = {deployment.config, deployment.model}
    for event in _decided(ledger, 0):
        record = _record(event, blobs)
        named |= _documents(event, record, blobs)
        if record is not None:
            named |= _payloads(record)
    return named


def _decided(ledger: RoundHistory, after_round: int) -> list[RoundDecided]:
    ends = ends_after(ledger, after_round)
    return [event for event in ends if isinstance(event, RoundDecided)]


def _record(event: RoundDecided, blobs: BlobReader) -> RoundRecord | None:
    try:
        return decode_record(blobs.get(event.record))
    except (BlobError, EncodingError):
        return None  # nothing tells its payloads any more: they stay


def _payloads(record: RoundRecord) -> set[Digest]:
    return set(record.named_payloads().values())


def _documents(event: RoundDecided, record: RoundRecord | None, blobs: BlobReader) -> set[Digest]:
    named = {event.model, event.record, event.incidents}
    if record is not None:
        named |= {signed.scores.digest for signed in record.claims}
    return named.union(_accusing(event, blobs))


def _accusing(event: RoundDecided, blobs: BlobReader) -> set[Digest]:
    """Return the records behind wrong proposals, as far as the incidents can be read."""
    if event.incidents == NO_DIGEST:
        return set()
    try:
        incidents = decode_incidents(blobs.get(event.incidents)).incidents
    except (BlobError, EncodingError):
        return set()
    return {incident.opening.record for incident in incidents if incident.opening is not None}


class BlobUse(StrEnum):
    """The use of a blob in a round."""

    PAYLOAD = "payload"
    VECTOR = "vector"
    RECORD = "record"
    INCIDENTS = "incidents"
    MODEL = "model"


@dataclass(frozen=True, slots=True)
class NamedBlob:
    """A blob that a round names.

    Attributes:
        client: whose it is; None for what is everybody's.
        digest: its sha256.
    """

    use: BlobUse
    client: ClientId | None
    digest: Digest


def blobs_of_round(
    ledger: RoundHistory, blobs: BlobReader, round_number: int
) -> tuple[NamedBlob, ...] | None:
    """Return the blobs that a decided round names, None if it has no decision.

    Args:
        blobs: where the round's record is; without it nothing tells payloads and vectors.
    """
    events = [recorded.event for recorded in ledger.round_events(round_number)]
    decided = next((event for event in events if isinstance(event, RoundDecided)), None)
    if decided is None:
        return None
    named = [
        NamedBlob(BlobUse.RECORD, None, decided.record),
        NamedBlob(BlobUse.MODEL, None, decided.model),
    ]
    if decided.incidents != NO_DIGEST:
        named.append(NamedBlob(BlobUse.INCIDENTS, None, decided.incidents))
    record = _record(decided, blobs)
    return tuple(named) if record is None else (*named, *_published(record))


def _published(record: RoundRecord) -> list[NamedBlob]:
    payloads = record.named_payloads()
    read = record.claims_with_vectors
    vectors = sorted((claim.scores.member, claim.scores.digest) for claim in read)
    return [
        *(NamedBlob(BlobUse.PAYLOAD, client, payloads[client]) for client in sorted(payloads)),
        *(NamedBlob(BlobUse.VECTOR, member, digest) for member, digest in vectors),
    ]
