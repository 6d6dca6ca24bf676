"""One round: events, documents, digests, and each client's part.

A client is *sampled* if the seed draws it as a trainer, and a *member* if it is on the committee. A
member that was banned when the round opened has an empty seat and does not *serve*.

A client has *committed* if the chain has its commitment by the closing block. It is *ranked* if the
decision ranks it, and *accepted* if its update is in S_a. It has *dropped out* if it was sampled
and a decided round does not rank it.

A member's scores *count* or are *refused* as the round's record states. A member has *voted* on a
phase if the deciding certificate holds its signature, as primary or in a reply. A client is
*banned* from the round after the record of its ban.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import cached_property
from typing import Any, NamedTuple

from ledger.chain.round_ledger import ENDS, RecordedEvent, RoundHistory
from ledger.protocol.documents.record import (
    Incident,
    Incidents,
    RefusedScores,
    RoundRecord,
    decode_incidents,
    decode_record,
)
from ledger.protocol.documents.run import RunDocument, decode_run
from ledger.protocol.encoding import RegisteredClient, word_client
from ledger.protocol.inputs import (
    Participants,
    RoundSizes,
    closing_block,
    participants_of,
    window_end,
)
from ledger.protocol.ledger_state import (
    ClientBanned,
    Deployment,
    MinedCommitment,
    RoundAbandoned,
    RoundDecided,
    RoundStart,
    mined_commitments,
    registry_with_bans,
)
from ledger.protocol.types import NO_DIGEST, ClientId, Digest, DropoutReason, Phase
from ledger.storage.blobs import BlobReader, read_as


class RoundStatus(StrEnum):
    """Status of a round."""

    OPEN = "open"
    DECIDED = "decided"
    ABANDONED = "abandoned"


@dataclass(frozen=True)
class HistoryRound:
    """One round: opening, events and end."""

    opening: RoundStart  # its number, committee and seed, and the block that opened it
    sizes: RoundSizes
    registry: tuple[RegisteredClient, ...]  # all clients, with the bans recorded until it ended
    ended: RecordedEvent | None  # None while it is open
    events: tuple[RecordedEvent, ...] = ()  # in the chain's order, `ended` included

    @property
    def round(self) -> int:
        return self.opening.round

    @property
    def committee(self) -> tuple[ClientId, ...]:
        return self.opening.committee

    @property
    def seed(self) -> Digest:
        return self.opening.seed

    @property
    def end(self) -> RoundDecided | RoundAbandoned | None:
        event = None if self.ended is None else self.ended.event
        return event if isinstance(event, (RoundDecided, RoundAbandoned)) else None

    @property
    def decided(self) -> RoundDecided | None:
        event = None if self.ended is None else self.ended.event
        return event if isinstance(event, RoundDecided) else None

    @property
    def status(self) -> RoundStatus:
        if self.ended is None:
            return RoundStatus.OPEN
        return RoundStatus.DECIDED if self.decided else RoundStatus.ABANDONED

    @cached_property
    def participants(self) -> Participants:
        """The participants; the seed draws the trainers among the clients that are not banned."""
        return participants_of(self.sizes, self.registry, self.round, self.seed, self.committee)

    @property
    def trainers(self) -> tuple[ClientId, ...]:
        """S_b, ascending; none of them was banned when the round opened."""
        return self.participants.trainers

    @property
    def vacant_members(self) -> tuple[ClientId, ...]:
        return tuple(c for c in self.committee if self.registry[c].is_banned_in(self.round))

    @property
    def bans(self) -> dict[ClientId, RecordedEvent]:
        """Clients banned during the round, with effect from the next one, and their bans."""
        return {
            each.event.client: each for each in self.events if isinstance(each.event, ClientBanned)
        }

    @property
    def mined(self) -> tuple[MinedCommitment, ...]:
        return tuple(
            mined
            for recorded in self.events
            for mined in mined_commitments(recorded.event, recorded.block_number)
        )

    @property
    def commitments(self) -> dict[ClientId, Digest]:
        """Each client's recorded commitment, also one without effect."""
        return {mined.client: mined.commitment for mined in self.mined}

    @property
    def counted(self) -> frozenset[ClientId]:
        """The active clients whose commitment counts: recorded by the closing block."""
        expected, mined = self.participants.expected, self.mined
        # While the window is open, the commitments so far determine the closing block.
        last = closing_block(window_end(self.sizes, self.opening.opened_block), expected, mined)
        return expected.intersection(each.client for each in mined if each.block <= last)

    @property
    def places(self) -> dict[ClientId, tuple[int, int]]:
        """Rank from 0 and distance bits of each ranked trainer."""
        ranking = self.decided.ranking if self.decided else ()
        return {word_client(word): (rank, word >> 32) for rank, word in enumerate(ranking)}


def has_begun(start: RoundStart, sizes: RoundSizes) -> bool:
    """Return whether a start opens a round: without a full committee none does."""
    return start.round <= sizes.rounds and len(start.committee) == sizes.members


def read_round(ledger: RoundHistory, sizes: RoundSizes, number: int) -> HistoryRound | None:
    """Return one round of a ledger, None if it has not opened."""
    opening = ledger.opening(number)
    if opening is None or not has_begun(opening, sizes):
        return None
    events = tuple(ledger.round_events(number))
    ended = next((each for each in events if isinstance(each.event, ENDS)), None)
    registry = registry_with_bans(ledger.registry(), ledger.bans())
    return HistoryRound(opening, sizes, registry, ended, events)


@dataclass(frozen=True, slots=True)
class Documents:
    """The documents that a round's decision names, where they are available and of this round."""

    record: RoundRecord | None = None  # the basis of the decision, which binds it
    incidents: Incidents | None = None  # failures while voting, reported by the decision's sender
    names_incidents: bool = False

    @property
    def has_incidents(self) -> bool:
        """True if the incidents document is available, or the decision names none."""
        return self.incidents is not None or not self.names_incidents

    @property
    def reported_incidents(self) -> tuple[Incident, ...]:
        """Incidents that the decision's sender reports, in the document's order."""
        return () if self.incidents is None else self.incidents.incidents

    @property
    def payloads(self) -> dict[ClientId, Digest]:
        return {} if self.record is None else self.record.named_payloads()


NO_DOCUMENTS = Documents()


def read_documents(blobs: BlobReader, round_: HistoryRound) -> Documents:
    """Return the documents of a round; a round that is not decided has none."""
    decided = round_.decided
    if decided is None:
        return NO_DOCUMENTS
    record, incidents = read_as(decode_record, decided.record, blobs), None
    names_incidents = decided.incidents != NO_DIGEST
    if names_incidents:
        incidents = read_as(decode_incidents, decided.incidents, blobs)
    inputs = decided.round, decided.base
    return Documents(
        record if record and (record.round, record.base) == inputs else None,
        incidents if incidents and (incidents.round, incidents.base) == inputs else None,
        names_incidents,
    )


def missing_payloads(documents: Documents, blobs: BlobReader) -> tuple[ClientId, ...]:
    """Return the clients, ascending, whose payload the record names and the store lacks."""
    named = sorted(documents.payloads.items())
    return tuple(client for client, payload in named if not blobs.has(payload))


def read_run(blobs: BlobReader, config: Digest) -> RunDocument | None:
    """Return a run's configuration; None if it is missing, damaged or malformed."""
    return read_as(decode_run, config, blobs)


class RoundRole(StrEnum):
    """Role of a participant."""

    TRAINER = "trainer"
    MEMBER = "member"


class UpdateOutcome(StrEnum):
    """Outcome of a trainer's update."""

    ACCEPTED = "accepted"
    NOT_ACCEPTED = "not_accepted"
    DROPPED_OUT = "dropped_out"
    UNDECIDED = "undecided"


class ScoresOutcome(StrEnum):
    """Outcome of a member's scores."""

    COUNTED = "counted"
    REFUSED = "refused"
    NONE = "none"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Participation:
    """The part of one client in one round."""

    client: ClientId
    role: RoundRole
    place: int | None = None  # seat index on the committee; None for a trainer
    empty_seat: bool = False  # whether it is a member that was banned when the round opened
    committed: bool | None = None
    commitment: Digest | None = None
    payload: Digest | None = None  # digest of its payload, from the record
    outcome: UpdateOutcome | None = None  # of its update; None for a member
    rank: int | None = None  # from 0, best first; None if it is not ranked
    distance_bits: int | None = None
    dropout: DropoutReason | None = None  # reason, if chain or record give one
    scores: ScoresOutcome | None = None  # outcome of its scores; None for a trainer
    refused: tuple[RefusedScores, ...] = ()  # its scores that do not count, with reasons
    voted: tuple[Phase, ...] = ()
    primary_of: tuple[Phase, ...] = ()
    incidents: tuple[Incident, ...] = ()
    banned: bool = False  # whether a ban of it was recorded during the round

    @property
    def served(self) -> bool:
        return self.role is RoundRole.MEMBER and not self.empty_seat


class _Facts(NamedTuple):
    """The values that the parts of all clients in a round follow from."""

    committed: frozenset[ClientId]
    commitments: dict[ClientId, Digest]
    places: dict[ClientId, tuple[int, int]]
    payloads: dict[ClientId, Digest]
    dropouts: dict[ClientId, DropoutReason]
    banned: dict[ClientId, RecordedEvent]
    phases: tuple[tuple[Phase, ClientId, int], ...]


@dataclass(frozen=True)
class DocumentedRound:
    """One round with its documents, and the parts of all participants."""

    round: HistoryRound
    documents: Documents

    @property
    def lacks_record(self) -> bool:
        return self.round.decided is not None and self.documents.record is None

    @property
    def is_whole(self) -> bool:
        return self.documents.has_incidents and not self.lacks_record

    @cached_property
    def _facts(self) -> _Facts:
        round_, record, decided = self.round, self.documents.record, self.round.decided
        dropouts = () if record is None else record.dropouts
        pairs = () if decided is None else zip(decided.primaries, decided.signers, strict=True)
        return _Facts(
            committed=round_.counted,
            commitments=round_.commitments,
            places=round_.places,
            payloads=self.documents.payloads,
            dropouts={each.client: each.reason for each in dropouts},
            banned=round_.bans,
            phases=tuple((phase, *pair) for phase, pair in zip(Phase, pairs, strict=False)),
        )

    def all(self) -> list[Participation]:
        """Return the parts of all: trainers ascending, then members by seat index."""
        return self.trainers() + self.members()

    def part(self, client: ClientId) -> Participation | None:
        committee = self.round.committee
        if client in committee:
            return self.member(committee.index(client), client)
        return self.trainer(client) if client in self.round.trainers else None

    def trainers(self) -> list[Participation]:
        return [self.trainer(client) for client in self.round.trainers]

    def members(self) -> list[Participation]:
        return [self.member(place, client) for place, client in enumerate(self.round.committee)]

    def trainer(self, client: ClientId) -> Participation:
        decided = self.round.decided
        rank, bits = self._facts.places.get(client, (None, None))
        if decided is None:
            outcome = UpdateOutcome.UNDECIDED
        elif rank is None:
            outcome = UpdateOutcome.DROPPED_OUT
        else:
            is_accepted = client in decided.accepted
            outcome = UpdateOutcome.ACCEPTED if is_accepted else UpdateOutcome.NOT_ACCEPTED
        common = self._common(client, with_reason=outcome is UpdateOutcome.DROPPED_OUT)
        return Participation(
            client, RoundRole.TRAINER, outcome=outcome, rank=rank, distance_bits=bits, **common
        )

    def member(self, place: int, client: ClientId) -> Participation:
        scores, refused = self._scores(client)
        phases, incidents = self._facts.phases, self.documents.reported_incidents
        return Participation(
            client,
            RoundRole.MEMBER,
            place=place,
            empty_seat=self.round.registry[client].is_banned_in(self.round.round),
            scores=scores,
            refused=refused,
            voted=tuple(
                phase for phase, primary, bits in phases if primary == client or bits >> place & 1
            ),
            primary_of=tuple(phase for phase, primary, _ in phases if primary == client),
            incidents=tuple(each for each in incidents if each.member == client),
            **self._common(client, with_reason=self.round.decided is not None),
        )

    def _common(self, client: ClientId, *, with_reason: bool) -> dict[str, Any]:
        """Return what every role has; `with_reason` for a dropout from the record or the chain."""
        facts, dropout = self._facts, None
        if with_reason and self.documents.record is not None:
            dropout = facts.dropouts.get(client)
        elif with_reason and client not in facts.committed:
            dropout = DropoutReason.NO_COMMITMENT
        return {
            "committed": client in facts.committed,
            "commitment": facts.commitments.get(client),
            "payload": facts.payloads.get(client),
            "dropout": dropout,
            "banned": client in facts.banned,
        }

    def _scores(self, member: ClientId) -> tuple[ScoresOutcome, tuple[RefusedScores, ...]]:
        record = self.documents.record
        if record is None:
            return ScoresOutcome.UNKNOWN, ()
        refused = tuple(each for each in record.refused if each.signed.scores.member == member)
        if refused:
            return ScoresOutcome.REFUSED, refused
        is_counted = any(signed.scores.member == member for signed in record.scores)
        return (ScoresOutcome.COUNTED if is_counted else ScoresOutcome.NONE), ()


def _counts_of(part: Participation) -> dict[str, int]:
    return {
        "sampled": part.role is RoundRole.TRAINER,
        "ranked": part.rank is not None,
        "accepted": part.outcome is UpdateOutcome.ACCEPTED,
        "dropped_out": part.outcome is UpdateOutcome.DROPPED_OUT,
        "served": part.served,
        "scored": part.scores is ScoresOutcome.COUNTED,
        "refused": part.scores is ScoresOutcome.REFUSED,
        "voted": len(part.voted),
        "primary": len(part.primary_of),
        "incidents": len(part.incidents),
    }


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of all clients over the ended rounds."""

    rounds: int
    records_missing: int  # of decided rounds: dropout reasons and score outcomes are unknown
    clients: tuple[Counter[str], ...]

    def with_rounds(self, rounds: Iterable[DocumentedRound]) -> Tally:
        counts = tuple(map(Counter, self.clients))
        ended, missing = self.rounds, self.records_missing
        for each in rounds:
            ended += 1
            missing += each.lacks_record
            for part in each.all():
                counts[part.client].update(_counts_of(part))
        return Tally(ended, missing, counts)


class DigestKind(IntEnum):
    """Subject of a digest or an address; the numbers never change their meaning."""

    CONFIGURATION = 1
    REGISTRY = 2
    INITIAL_MODEL = 3
    SEED = 4
    COMMITMENT = 5
    PAYLOAD = 6
    SCORE_VECTOR = 7
    BASE = 8
    MODEL = 9
    UPDATES_ROOT = 10
    SCORES_ROOT = 11
    REVEAL = 12
    RECORD = 13
    INCIDENTS = 14
    RESULT = 15
    HEAD = 16
    BLOCK = 17
    TRANSACTION = 18


NO_CLIENT = -1  # in place of a client, for a digest that belongs to none


class Occurrence(NamedTuple):
    """One place of a digest; round 0 is the deployment itself. Places sort by round and kind."""

    round: int
    kind: DigestKind
    client: int
    digest: Digest


def digests_of_deployment(fixed: Deployment) -> Iterator[Occurrence]:
    """Yield the digests among the contract's parameters."""
    yield Occurrence(0, DigestKind.CONFIGURATION, NO_CLIENT, fixed.config)
    yield Occurrence(0, DigestKind.REGISTRY, NO_CLIENT, fixed.registry)
    yield Occurrence(0, DigestKind.INITIAL_MODEL, NO_CLIENT, fixed.model)


def digests_of_events(events: Iterable[RecordedEvent], number: int) -> Iterator[Occurrence]:
    """Yield hashes, heads after bans, and commitments of a round; 0 is the registration."""
    for recorded in events:
        event, transaction = recorded.event, Digest(recorded.transaction_hash)
        yield Occurrence(number, DigestKind.BLOCK, NO_CLIENT, Digest(recorded.block_hash))
        yield Occurrence(number, DigestKind.TRANSACTION, NO_CLIENT, transaction)
        if isinstance(event, ClientBanned):
            yield Occurrence(number, DigestKind.HEAD, event.client, event.head)
        for mined in mined_commitments(event, recorded.block_number):
            yield Occurrence(number, DigestKind.COMMITMENT, mined.client, mined.commitment)


def digests_of_round(documented: DocumentedRound) -> Iterator[Occurrence]:
    """Yield the digests of a round and its documents."""
    round_, documents, decided = documented.round, documented.documents, documented.round.decided
    number = round_.round
    yield Occurrence(number, DigestKind.SEED, NO_CLIENT, round_.seed)
    yield from digests_of_events(round_.events, number)
    if round_.end is not None:
        yield Occurrence(number, DigestKind.HEAD, NO_CLIENT, round_.end.head)
    if decided is not None:
        yield Occurrence(number, DigestKind.RESULT, NO_CLIENT, decided.result())
        names = ("base", "model", "updates_root", "scores_root", "reveal", "record", "incidents")
        for name in names:
            if (digest := getattr(decided, name)) != NO_DIGEST:
                yield Occurrence(number, DigestKind[name.upper()], NO_CLIENT, digest)
    for client, payload in documents.payloads.items():
        yield Occurrence(number, DigestKind.PAYLOAD, client, payload)
    if documents.record is not None:
        for scores in (signed.scores for signed in documents.record.claims):
            yield Occurrence(number, DigestKind.SCORE_VECTOR, scores.member, scores.digest)
