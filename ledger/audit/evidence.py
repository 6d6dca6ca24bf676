"""The blobs behind a decided round, each read once and compared with its commitment (step 5)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ledger.audit import report
from ledger.protocol.canonical import MAX_DOCUMENT_BYTES
from ledger.protocol.counting import CountedScores, Electorate
from ledger.protocol.documents import MAX_SCORES_BYTES, decode_record, decode_score_vector
from ledger.protocol.encoding import sha256, vector_from_bytes
from ledger.protocol.errors import BlobError, BlobMissingError, EncodingError
from ledger.protocol.sampling import sample_trainers

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ledger.audit.opening import Opening
    from ledger.audit.replay import ReplayedRound
    from ledger.audit.report import Notebook
    from ledger.blobs.store import BlobReader
    from ledger.protocol.documents import RoundRecord, RunDocument
    from ledger.protocol.ledger_state import RoundDecided
    from ledger.protocol.types import ClientId, Digest, SignedScores

OVERSIZED_BYTES = 64 << 20
"""How much of an oversized payload is read to see whether it is what was committed."""


@dataclass
class Archive:
    """Blobs that note what is missing or damaged."""

    blobs: BlobReader
    notes: Notebook

    def get(self, digest: Digest, limit: int) -> bytes:
        """Return a blob, hashed here too: the audit takes no store's word for it.

        Args:
            digest: its sha256.
            limit: the size that it may have.

        Raises:
            BlobMissingError: there is none.
            BlobError: it is damaged, or larger than the limit.
        """
        data = self.blobs.get(digest, limit)
        if len(data) > limit or sha256(data) != digest:
            raise BlobError(f"the store gives other bytes for blob {digest.hex()}")
        return data

    def read(
        self, digest: Digest, limit: int, what: str, at: int, clients: tuple[int, ...] = ()
    ) -> bytes | None:
        """Return a blob that must be there; None if it is missing or damaged, which is noted.

        Args:
            digest: its sha256.
            limit: the size that it may have.
            what: what it is, for the sentence.
            at: round.
            clients: whose it is.
        """
        shown = report.shown(digest)
        try:
            data = self.get(digest, limit)
        except BlobMissingError:
            self.notes.lack(report.BLOBS, f"round {at}: {what} ({shown}) is missing")
            return None
        except BlobError as error:
            self.notes.contradict(report.BLOBS, f"{what} is blob {shown}", str(error), at, clients)
            return None
        self.notes.counts["blobs"] += 1
        self.notes.counts["bytes"] += len(data)
        return data

    def payload(self, digest: Digest, limit: int, at: int, client: int) -> bytes | None:
        """Return a payload that may be missing; None if it is, or too large, or damaged (noted).

        Args:
            digest: as committed.
            limit: the size that it may have.
            at: round.
            client: whose it is.
        """
        try:
            return self.get(digest, limit)
        except BlobMissingError:
            return None
        except BlobError:
            pass
        try:
            self.get(digest, max(limit, OVERSIZED_BYTES))
        except BlobError as error:
            what = f"the payload is blob {report.shown(digest)}"
            self.notes.contradict(report.BLOBS, what, str(error), at, (client,))
        return None


@dataclass
class RoundEvidence:
    """All that a decision rests on, as far as it can be read.

    Attributes:
        facts: the round as its transactions made it.
        event: its decision.
        electorate: who may score whom.
        payloads: digest of each active client that committed and was not banned since.
        record: the round's record, or None.
        usable: active clients with a usable update, as the record says; None without a record.
        vectors: Δ of the active clients whose payload could be read and is an update.
        unread: clients whose payload is missing or damaged now, though the record counts it.
        scores: the score vectors that count, as far as they could be read.
    """

    facts: ReplayedRound
    event: RoundDecided
    electorate: Electorate
    payloads: dict[ClientId, Digest]
    record: RoundRecord | None
    usable: frozenset[ClientId] | None = None
    vectors: dict[ClientId, NDArray[np.float32]] = field(default_factory=dict)
    unread: set[ClientId] = field(default_factory=set)
    scores: dict[ClientId, CountedScores] = field(default_factory=dict)

    @property
    def dropouts(self) -> dict[ClientId, str]:
        """The clients that the record leaves out, with its reasons."""
        return dict(self.record.dropouts) if self.record is not None else {}

    @property
    def active(self) -> tuple[ClientId, ...]:
        """Trainers and members, ascending."""
        return tuple(sorted({*self.electorate.trainers, *self.electorate.committee}))


def gather(
    facts: ReplayedRound,
    event: RoundDecided,
    opening: Opening,
    document: RunDocument,
    desk: Archive,
) -> RoundEvidence:
    """Return the evidence of a decided round; what is missing or damaged is noted.

    Args:
        facts: the round.
        event: its decision.
        opening: what the run starts from.
        document: its configuration.
        desk: where the blobs are.
    """
    before, parameters = facts.before, document.parameters
    trainers = sample_trainers(
        before.seed, parameters.clients, before.committee, parameters.trainers
    )
    electorate = Electorate(
        opening.domain, facts.round, before.registry, trainers, before.committee
    )
    record = _record(event, desk)
    found = RoundEvidence(facts, event, electorate, {}, record)
    left_out = found.dropouts
    for client in found.active:
        payload = facts.payloads.get(client)
        # A member that is banned while the committee decides may or may not be counted still.
        late_ban = client in before.committee and client not in left_out
        if payload is not None and (client in before.committed or late_ban):
            found.payloads[client] = payload
    if record is not None:
        found.usable = frozenset(set(found.active) - set(left_out))
    for client, payload in found.payloads.items():
        if client not in left_out:
            _read_update(found, client, payload, parameters.dimension, desk)
    for signed in record.scores if record is not None else ():
        _read_scores(found, signed, desk)
    return found


def _record(event: RoundDecided, desk: Archive) -> RoundRecord | None:
    """Return the round's record; without one, what it would prove is not checkable."""
    record = _read_record(event, desk)
    if record is None:
        for step in (report.DISTANCES, report.MEANS, report.RANKING, report.COMPLETENESS):
            desk.notes.lack(step, f"round {event.round}: there is no readable record")
    return record


def _read_record(event: RoundDecided, desk: Archive) -> RoundRecord | None:
    data = desk.read(event.record, MAX_DOCUMENT_BYTES, "the round's record", event.round)
    if data is None:
        return None
    what = f"blob {report.shown(event.record)} is the round's record"
    try:
        record = decode_record(data)
    except EncodingError as error:
        desk.notes.contradict(report.COMPLETENESS, what, str(error), event.round)
        return None
    if record.round != event.round:
        true = f"it is of round {record.round}"
        desk.notes.contradict(report.COMPLETENESS, what, true, event.round)
        return None
    return record


def _read_update(
    found: RoundEvidence, client: ClientId, payload: Digest, dimension: int, desk: Archive
) -> None:
    at = found.facts.round
    data = desk.read(payload, 4 * dimension, f"the payload of client {client}", at, (client,))
    if data is None:
        found.unread.add(client)
        return
    try:
        found.vectors[client] = vector_from_bytes(data, dimension)
    except EncodingError as error:
        found.unread.add(client)
        if found.record is not None:
            desk.notes.contradict(
                report.COMPLETENESS, "its update is usable", f"it is not: {error}", at, (client,)
            )


def _read_scores(found: RoundEvidence, signed: SignedScores, desk: Archive) -> None:
    at, member = found.facts.round, signed.scores.member
    what = f"the score vector of member {member}"
    data = desk.read(signed.scores.digest, MAX_SCORES_BYTES, what, at, (member,))
    if data is None:
        return
    try:
        vector = decode_score_vector(data)
    except EncodingError as error:
        desk.notes.contradict(report.DISTANCES, f"{what} counts", f"{error}", at, (member,))
        return
    found.scores[member] = CountedScores(vector, signed.scores.digest)
