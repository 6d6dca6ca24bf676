"""Retention of a run's blobs: a machine's choice, and no part of the protocol.

Members vote by what they hold in memory or store, so heads are the same under every choice. An
audit reports missing blobs and ends incomplete.

The chain and its records determine which blobs may go, so a resumed run finds what a killed one
has left behind. A payload stays while any newer round, a document or another run in the store has
the same bytes: a client may publish a copy of a model or of a record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from ledger.chain.contract.deploy import connect
from ledger.chain.contract.event_log import complete_ledger
from ledger.chain.contract.ledger import read_run_manifest
from ledger.chain.ports import ChainReader
from ledger.chain.round_ledger import RoundHistory, ends_after, last_ended
from ledger.io.home import Home
from ledger.protocol.documents.record import decode_incidents, decode_record
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.ledger_state import RoundDecided
from ledger.protocol.types import NO_DIGEST, ClientId, Digest
from ledger.storage.blobs import BlobReader, BlobStore, read_as

MAX_RETAINED_ROUNDS = 2**31 - 1  # whose payloads can be asked for


class StoredBlobs(StrEnum):
    """The blobs that are written."""

    ALL = "all"
    ACCEPTED = "accepted"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """The blobs that are kept (of payloads all, S_a's or none), and for how many newest rounds."""

    stored: StoredBlobs = StoredBlobs.ALL
    rounds: int | None = None


RETAIN_ALL = RetentionPolicy()
RETAIN_NOTHING = RetentionPolicy(StoredBlobs.NOTHING)


def retention_policy_of(setting: str | int) -> RetentionPolicy:
    """Return the policy of a setting: "all", "accepted", or a number of newest rounds."""
    if isinstance(setting, bool) or not isinstance(setting, int):
        if setting in {StoredBlobs.ALL, StoredBlobs.ACCEPTED}:
            return RetentionPolicy(StoredBlobs(setting))
    elif 1 <= setting <= MAX_RETAINED_ROUNDS:
        return RetentionPolicy(rounds=setting)
    raise ConfigurationError(
        f"keep = {setting!r}: must be 'all', 'accepted', or a number of rounds from 1 to "
        f"{MAX_RETAINED_ROUNDS}"
    )


@dataclass(slots=True)
class PayloadRemover:
    """The payloads of a run's rounds; only the newest are kept."""

    ledger: RoundHistory
    blobs: BlobStore
    rounds: int  # at least 1
    pinned: Collection[Digest] = frozenset()  # other runs name them in the same store
    _documents: set[Digest] = field(default_factory=set, init=False)
    _payloads: dict[int, frozenset[Digest]] = field(default_factory=dict, init=False)
    _read_to: int = field(default=0, init=False)

    def ended(
        self, round_number: int, published: Iterable[Digest], ledger: RoundHistory | None = None
    ) -> None:
        """Remove durably what is old once a round ends; no record names its `published` blobs."""
        self._read(ledger or self.ledger)
        payloads = self._payloads.get(round_number, frozenset())
        self._payloads[round_number] = payloads.union(published)
        for payload in self._gone_by(round_number):
            self.blobs.remove(payload)

    def removable(self) -> frozenset[Digest]:
        """Return the payloads that would go now, there or not; they do not come again."""
        self._read(self.ledger)
        return self._gone_by(last_ended(self.ledger.state()))

    def _gone_by(self, newest: int) -> frozenset[Digest]:
        old = [number for number in self._payloads if number <= newest - self.rounds]
        gone = [self._payloads.pop(number) for number in old]
        retained = self._documents.union(self.pinned, *self._payloads.values())
        return frozenset().union(*gone) - retained

    def _read(self, ledger: RoundHistory) -> None:
        if not self._read_to:
            self._documents |= _deployed(ledger)
        for number, documents, payloads in _decided(ledger, self.blobs, self._read_to):
            self._documents |= documents
            if payloads is not None:
                self._payloads[number] = payloads
            self._read_to = number


def blobs_named_by_run(ledger: RoundHistory, blobs: BlobReader) -> set[Digest]:
    """Return every blob that a run names, as far as its records can be read."""
    named = _deployed(ledger)
    for _, documents, payloads in _decided(ledger, blobs):
        named |= documents | (payloads or frozenset())
    return named


def blobs_of_other_runs(
    home: Home, address: str, chain: ChainReader, blobs: BlobReader
) -> frozenset[Digest]:
    """Return the blobs that the runs of a home name, except the contract's own."""
    named: set[Digest] = set()
    for paths in home.deployed():
        manifest = read_run_manifest(paths)
        if manifest.address == address:
            continue
        if manifest.genesis_hash != f"0x{chain.genesis_hash.hex()}":
            raise ConfigurationError(
                f"run {paths.name!r} of {home.path} is on another chain and may need old "
                "payloads; use keep = all or accepted, or give each run a home"
            )
        named |= blobs_named_by_run(complete_ledger(connect(chain, manifest)), blobs)
    return frozenset(named)


def _deployed(ledger: RoundHistory) -> set[Digest]:
    deployment = ledger.deployment()
    return {deployment.config, deployment.model}


def _decided(
    ledger: RoundHistory, blobs: BlobReader, after_round: int = 0
) -> Iterator[tuple[int, set[Digest], frozenset[Digest] | None]]:
    """Yield number, documents and payloads (None if the record is unreadable) of decided rounds."""
    for event in ends_after(ledger, after_round):
        if isinstance(event, RoundDecided):
            record = read_as(decode_record, event.record, blobs)
            documents = {event.model, event.record, event.incidents}
            if event.incidents != NO_DIGEST:
                # A wrong proposal opens to a record, as far as the incidents can be read.
                read = read_as(decode_incidents, event.incidents, blobs)
                openings = [one.opening for one in read.incidents] if read is not None else []
                documents |= {opening.record for opening in openings if opening is not None}
            if record is None:
                yield event.round, documents, None
            else:
                documents |= {signed.scores.digest for signed in record.claims}
                yield event.round, documents, frozenset(record.named_payloads().values())


class BlobUse(StrEnum):
    """The use of a blob in a round."""

    PAYLOAD = "payload"
    VECTOR = "vector"
    RECORD = "record"
    INCIDENTS = "incidents"
    MODEL = "model"


@dataclass(frozen=True, slots=True)
class NamedBlob:
    """A blob that a round names: of one client, or of none."""

    use: BlobUse
    client: ClientId | None
    digest: Digest


def blobs_of_round(
    ledger: RoundHistory, blobs: BlobReader, round_number: int
) -> tuple[NamedBlob, ...] | None:
    """Return the blobs that a round names, without its record no payloads; None if undecided."""
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
    record = read_as(decode_record, decided.record, blobs)
    if record is not None:
        claims = [claim.scores for claim in record.claims_with_vectors]
        vectors = sorted((claim.member, claim.digest) for claim in claims)
        payloads = sorted(record.named_payloads().items())
        named += [NamedBlob(BlobUse.PAYLOAD, *payload) for payload in payloads]
        named += [NamedBlob(BlobUse.VECTOR, *vector) for vector in vectors]
    return tuple(named)
