"""Index rows as documents: events, round starts and participations as checksummed msgpack.

Documents are read by this program only. They give back exactly what the chain and the record say,
and a document that was altered is refused. Columns only serve searches.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import astuple, dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

import msgpack

from ledger.chain.contract.event_logs import RecordedEvent
from ledger.history.participation import Participation
from ledger.history.round import HistoryRound, RoundActivity
from ledger.index.codes import OUTCOME_CODES, ROLE_CODES, SCORES_CODES, DocumentState
from ledger.index.index_errors import IndexDamagedError
from ledger.protocol.documents.incidents import Incidents, decode_incidents, encode_incidents
from ledger.protocol.documents.record import RefusedScores
from ledger.protocol.errors import EncodingError
from ledger.protocol.fold import LedgerView, RoundStart, mined_commitments
from ledger.protocol.inputs import Participants
from ledger.protocol.ledger_state import (
    ClientBanned,
    Deployment,
    LedgerStage,
    RoundAbandoned,
    RoundDecided,
    UpdatesCommitted,
)
from ledger.protocol.types import (
    AcceptanceForm,
    Beacon,
    ClientId,
    Digest,
    DropoutReason,
    Phase,
    RefusalReason,
    Scores,
    SignedScores,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ledger.history.documents import Documents
    from ledger.protocol.inputs import MinedCommitment
    from ledger.protocol.types import RegisteredClient

T = TypeVar("T")
ActivityEvent = UpdatesCommitted | ClientBanned | RoundDecided | RoundAbandoned

_ROLES = {code: role for role, code in ROLE_CODES.items()}
_OUTCOMES = {code: outcome for outcome, code in OUTCOME_CODES.items()}
_SCORES = {code: scores for scores, code in SCORES_CODES.items()}

_CHECKSUM_BYTES = 4
_WORD = struct.Struct(">QI")
"""A ranking word: 63 bits of a finite distance, and 32 of a client."""


def document_states(
    documents: Documents, *, is_decided: bool
) -> tuple[DocumentState, DocumentState]:
    """Return the states of a round's record and incidents document; a decision names a record."""
    record = DocumentState.NONE
    if is_decided:
        record = DocumentState.MISSING if documents.record is None else DocumentState.READ
    if not documents.names_incidents:
        return record, DocumentState.NONE
    is_read = documents.has_incidents
    return record, DocumentState.READ if is_read else DocumentState.MISSING


@dataclass(slots=True)
class RoundEvents:
    """The events of one round.

    Attributes:
        start: how it began.
        head: the ledger's head when it began.
        model: digest of w_t.
        activity: commitments and bans, in the chain's order.
        ended: its end; None while it is open.
        trainers: drawn from its seed; None where they are not known yet.
        ended_time: time of the block that ended it, where it is known.
    """

    start: RoundStart
    head: Digest
    model: Digest
    activity: list[RecordedEvent] = field(default_factory=list)
    ended: RecordedEvent | None = None
    trainers: tuple[ClientId, ...] | None = None
    ended_time: int | None = None

    @property
    def all(self) -> list[RecordedEvent]:
        """All of them in the chain's order; after the last round bans may follow its end."""
        events = self.activity if self.ended is None else [*self.activity, self.ended]
        return sorted(events, key=lambda recorded: (recorded.block_number, recorded.log_index))

    @property
    def mined(self) -> tuple[MinedCommitment, ...]:
        """The commitments among them."""
        return tuple(
            commitment
            for recorded in self.activity
            if isinstance(recorded.event, UpdatesCommitted)
            for commitment in mined_commitments(recorded.event, recorded.block_number)
        )

    def round(self, fixed: Deployment, registry: tuple[RegisteredClient, ...]) -> HistoryRound:
        """Return the round with all that came in."""
        bans = tuple(
            recorded for recorded in self.activity if isinstance(recorded.event, ClientBanned)
        )
        activity = RoundActivity(self.mined, bans)
        return self._with_trainers(HistoryRound(self.start, fixed, registry, self.ended, activity))

    def line(self, fixed: Deployment, registry: tuple[RegisteredClient, ...]) -> HistoryRound:
        """Return the round by its start and its end."""
        return self._with_trainers(HistoryRound(self.start, fixed, registry, self.ended))

    def _with_trainers(self, round_: HistoryRound) -> HistoryRound:
        # The trainers follow from the seed; drawing them again would cost all K clients.
        if self.trainers is not None:
            banned = frozenset(round_.vacant_members)
            participants = Participants(round_.committee, self.trainers, banned)
            round_.__dict__["participants"] = participants
        return round_


def pack_start(events: RoundEvents, trainers: Iterable[ClientId]) -> bytes:
    """Return the document of a round's start, with the trainers that its seed draws."""
    start = events.start
    fields = [start.round, start.committee, start.seed, start.opened_block]
    return _pack([*fields, events.head, events.model, list(trainers)])


def unpack_start(data: bytes) -> RoundEvents:
    """Return a round by its start.

    Raises:
        IndexDamagedError: the document was altered.
    """

    def read(value: list[Any]) -> RoundEvents:
        number, committee, seed, block, head, model, trainers = value
        start = RoundStart(number, tuple(committee), seed, block)
        return RoundEvents(start, head, model, trainers=tuple(trainers))

    return _unpack(data, read)


def pack_events(events: Iterable[RecordedEvent]) -> bytes:
    """Return the document of events of one round, with their log positions."""
    return _pack([_event_fields(recorded) for recorded in events])


def unpack_events(data: bytes) -> list[RecordedEvent]:
    """Return events of one round.

    Raises:
        IndexDamagedError: the document was altered.
    """
    return _unpack(data, lambda value: [_recorded_event(fields) for fields in value])


def pack_deployment(deployment: Deployment) -> bytes:
    """Return the document of what was fixed at deployment."""
    return _pack([v.value if isinstance(v, StrEnum) else v for v in astuple(deployment)])


def unpack_deployment(data: bytes) -> Deployment:
    """Return what was fixed at deployment.

    Raises:
        IndexDamagedError: the document was altered.
    """

    def read(value: list[Any]) -> Deployment:
        plain = Deployment(*value)
        return replace(plain, form=AcceptanceForm(plain.form), beacon=Beacon(plain.beacon))

    return _unpack(data, read)


def pack_view(view: LedgerView) -> bytes:
    """Return the document of the contract's state; tables hold its registry and commitments."""
    start = [view.stage, view.round, view.opened_block, view.seed, view.committee]
    digests = [view.model, view.head, view.commitments]
    return _pack([*start, *digests, view.batches, view.deployments])


def unpack_view(
    data: bytes, deployment: Deployment, registry: tuple[RegisteredClient, ...]
) -> LedgerView:
    """Return the contract's state without the round's commitments; their digest is there.

    Args:
        data: the document.
        deployment: what was fixed.
        registry: all clients registered so far, with bans.

    Raises:
        IndexDamagedError: the document was altered.
    """

    def read(value: list[Any]) -> LedgerView:
        stage, number, block, seed, committee, *rest = value
        model, head, commitments, batches, deployments = rest
        return LedgerView(
            deployment=deployment,
            stage=LedgerStage(stage),
            round=number,
            opened_block=block,
            seed=seed,
            committee=tuple(committee),
            model=model,
            head=head,
            registry=registry,
            commitments=commitments,
            batches=tuple(batches),
            deployments=deployments,
        )

    return _unpack(data, read)


def pack_participation(part: Participation, number: int, base: Digest | None) -> bytes:
    """Return the document of a participation.

    Args:
        part: the client's.
        number: of the round.
        base: of its decision; None if it has none.
    """
    incidents = None
    if part.incidents and base is not None:
        incidents = encode_incidents(Incidents(number, base, part.incidents))
    return _pack(
        [
            ROLE_CODES[part.role],
            part.place,
            part.empty_seat,
            bool(part.committed),
            part.commitment,
            part.payload,
            OUTCOME_CODES[part.outcome],
            part.rank,
            part.distance_bits,
            part.dropout,
            SCORES_CODES[part.scores],
            [_refusal_fields(refused) for refused in part.refused],
            phase_bits(part.voted),
            phase_bits(part.primary_of),
            incidents,
            part.banned,
        ]
    )


def unpack_participation(data: bytes, client: int, number: int) -> Participation:
    """Return a participation.

    Raises:
        IndexDamagedError: the document was altered.
    """

    def read(value: list[Any]) -> Participation:
        role, place, vacant, committed, commitment, payload, outcome, rank, bits, *rest = value
        dropout, scores, refused, voted, primary_of, incidents, banned = rest
        return Participation(
            client=ClientId(client),
            role=_ROLES[role],
            place=place,
            empty_seat=vacant,
            committed=committed,
            commitment=commitment,
            payload=payload,
            outcome=_OUTCOMES[outcome],
            rank=rank,
            distance_bits=bits,
            dropout=None if dropout is None else DropoutReason(dropout),
            scores=_SCORES[scores],
            refused=tuple(_refused_scores(client, number, fields) for fields in refused),
            voted=_PHASES[voted],
            primary_of=_PHASES[primary_of],
            incidents=() if incidents is None else decode_incidents(incidents).incidents,
            banned=banned,
        )

    return _unpack(data, read)


def phase_bits(phases: tuple[Phase, ...]) -> int:
    """Return phases as a bitmap."""
    return _BITS[phases]


def _phases(bits: int) -> tuple[Phase, ...]:
    return tuple(phase for phase in Phase if bits >> (phase - 1) & 1)


_PHASES = tuple(_phases(bits) for bits in range(1 << len(Phase)))
_BITS = {phases: bits for bits, phases in enumerate(_PHASES)}


def _refusal_fields(refused: RefusedScores) -> list[object]:
    scores = refused.signed.scores
    claim = [scores.base, scores.clients, scores.digest, refused.signed.signature]
    return [*claim, int(refused.reason), refused.client]


def _refused_scores(member: int, number: int, fields: list[Any]) -> RefusedScores:
    base, clients, digest, signature, reason, client = fields
    scores = Scores(number, ClientId(member), base, clients, digest)
    return RefusedScores(SignedScores(scores, signature), RefusalReason(reason), client)


def _event_fields(recorded: RecordedEvent) -> list[object]:
    position = [
        recorded.block_number,
        recorded.block_hash,
        recorded.transaction_hash,
        recorded.log_index,
    ]
    match recorded.event:
        case UpdatesCommitted(number, clients, commitments):
            return [1, position, number, clients, b"".join(commitments)]
        case ClientBanned(number, client, head):
            return [2, position, number, client, head]
        case RoundAbandoned(number, committee, seed, head):
            return [3, position, number, committee, seed, head]
        case RoundDecided() as event:
            return [4, position, *_decision_fields(event)]
        case _:
            raise TypeError(f"{type(recorded.event).__name__} is not an event of a round")


def _decision_fields(event: RoundDecided) -> list[object]:
    first, second = event.signers
    return [
        event.round,
        b"".join(word.to_bytes(_WORD.size) for word in event.ranking),
        event.accepted,
        event.next_committee,
        event.base,
        event.model,
        event.updates_root,
        event.scores_root,
        event.reveal,
        event.record,
        event.incidents,
        event.views,
        event.primaries,
        first.to_bytes(32) + second.to_bytes(32),
        event.next_seed,
        event.head,
    ]


def _recorded_event(value: list[Any]) -> RecordedEvent:
    kind, position, *fields = value
    return RecordedEvent(_EVENTS[kind](*fields), *position)


def _updates_committed(number: int, clients: list[ClientId], joined: bytes) -> UpdatesCommitted:
    commitments = tuple(Digest(digest) for (digest,) in struct.iter_unpack("32s", joined))
    return UpdatesCommitted(number, tuple(clients), commitments)


def _round_abandoned(
    number: int, committee: list[ClientId], seed: Digest, head: Digest
) -> RoundAbandoned:
    return RoundAbandoned(number, tuple(committee), seed, head)


def _round_decided(*fields: Any) -> RoundDecided:
    number, ranking, accepted, committee, *digests = fields
    base, model, updates, scores, reveal, record, incidents, *votes = digests
    views, primaries, signers, seed, head = votes
    return RoundDecided(
        number,
        tuple([bits << 32 | client for bits, client in _WORD.iter_unpack(ranking)]),
        tuple(accepted),
        tuple(committee),
        base,
        model,
        updates,
        scores,
        reveal,
        record,
        incidents,
        tuple(views),
        tuple(primaries),
        (int.from_bytes(signers[:32]), int.from_bytes(signers[32:])),
        seed,
        head,
    )


_EVENTS: dict[int, Callable[..., ActivityEvent]] = {
    1: _updates_committed,
    2: ClientBanned,
    3: _round_abandoned,
    4: _round_decided,
}


def _pack(value: list[Any]) -> bytes:
    body = bytes(msgpack.packb(value, use_bin_type=True))
    return body + _checksum(body)


def _checksum(body: bytes) -> bytes:
    return zlib.crc32(body).to_bytes(_CHECKSUM_BYTES, "big")


def _unpack(data: bytes, read: Callable[[Any], T]) -> T:
    try:
        body, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
        if checksum != _checksum(body):
            raise ValueError("another checksum")
        return read(msgpack.unpackb(body, raw=False))
    except (
        *(ValueError, TypeError, LookupError, EncodingError, struct.error),
        msgpack.UnpackException,
    ) as error:
        reason = f"{type(error).__name__} {error}"
        raise IndexDamagedError(
            f"the index holds a document of {len(data)} bytes that it has not written "
            f"({reason:.100}): run cmfl index rebuild"
        ) from error
