"""What the index keeps of events as bytes, so that a round comes back as the chain tells it.

Lists of numbers, of 32 bytes and of lists, as msgpack with a checksum behind: what is packed here
is read by this program only, and a file that was altered is refused, not trusted.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import astuple
from typing import TYPE_CHECKING, Any, TypeVar

import msgpack

from ledger.chain.contract.event_logs import RecordedEvent
from ledger.index.errors import IndexDamagedError
from ledger.protocol.errors import EncodingError
from ledger.protocol.fold import RoundStart
from ledger.protocol.ledger_state import (
    ClientBanned,
    Deployment,
    RoundAbandoned,
    RoundDecided,
    UpdatesCommitted,
)
from ledger.protocol.types import AcceptanceForm, Beacon, ClientId, Digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")
RoundEvent = UpdatesCommitted | ClientBanned | RoundDecided | RoundAbandoned

_CHECKSUM_BYTES = 4
_WORD = struct.Struct(">QI")
"""A ranking word: 63 bits of a finite distance, and 32 of a client."""


def pack_opening(opening: RoundStart, trainers: Iterable[ClientId]) -> bytes:
    """Return the bytes of an opening, with the trainers that its seed draws."""
    return _packed(
        [opening.round, opening.committee, opening.seed, opening.opened_block, list(trainers)]
    )


def unpack_opening(data: bytes) -> tuple[RoundStart, tuple[ClientId, ...]]:
    """Return an opening and the trainers that its seed draws.

    Raises:
        IndexDamagedError: the bytes are none of these.
    """

    def read(value: list[Any]) -> tuple[RoundStart, tuple[ClientId, ...]]:
        number, committee, seed, block, trainers = value
        return RoundStart(number, tuple(committee), seed, block), tuple(trainers)

    return _unpacked(data, read)


def pack_events(events: Iterable[RecordedEvent]) -> bytes:
    """Return the bytes of events of one round, with their places."""
    return _packed([_from_recorded(one) for one in events])


def unpack_events(data: bytes) -> list[RecordedEvent]:
    """Return events of one round.

    Raises:
        IndexDamagedError: the bytes are none of these.
    """
    return _unpacked(data, lambda value: [_recorded(one) for one in value])


def pack_fixed(fixed: Deployment) -> bytes:
    """Return the bytes of what was fixed at deployment."""
    return _packed([v.value if isinstance(v, Beacon) else v for v in astuple(fixed)])


def unpack_fixed(data: bytes) -> Deployment:
    """Return what was fixed at deployment.

    Raises:
        IndexDamagedError: the bytes are none of these.
    """

    def read(value: list[Any]) -> Deployment:
        found = Deployment(*value)
        fields = [*value]
        fields[6], fields[11] = AcceptanceForm(found.form), Beacon(found.beacon)
        return Deployment(*fields)

    return _unpacked(data, read)


def pack_plain(value: list[object]) -> bytes:
    """Return the bytes of a list of plain data."""
    return _packed(value)


def unpack_plain(data: bytes, read: Callable[[list[Any]], T]) -> T:
    """Return what a list of plain data stands for.

    Args:
        data: the bytes.
        read: makes it of the list.

    Raises:
        IndexDamagedError: the bytes are no such list.
    """
    return _unpacked(data, read)


def _from_recorded(one: RecordedEvent) -> list[object]:
    place = [one.block_number, one.block_hash, one.transaction_hash, one.log_index]
    match one.event:
        case UpdatesCommitted(number, clients, commitments):
            return [1, place, number, clients, b"".join(commitments)]
        case ClientBanned(number, client, head):
            return [2, place, number, client, head]
        case RoundAbandoned(number, committee, seed, head):
            return [3, place, number, committee, seed, head]
        case RoundDecided() as event:
            return [4, place, *_from_decision(event)]
        case _:
            raise TypeError(f"{type(one.event).__name__} is no event of a round")


def _from_decision(event: RoundDecided) -> list[object]:
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
        event.threshold_bits,
        event.reveal,
        event.record,
        event.incidents,
        event.views,
        event.primaries,
        first.to_bytes(32) + second.to_bytes(32),
        event.next_seed,
        event.head,
    ]


def _recorded(value: list[Any]) -> RecordedEvent:
    kind, place, *fields = value
    return RecordedEvent(_BUILD[kind](*fields), *place)


def _committed(number: int, clients: list[ClientId], joined: bytes) -> UpdatesCommitted:
    commitments = tuple(Digest(one) for (one,) in struct.iter_unpack("32s", joined))
    return UpdatesCommitted(number, tuple(clients), commitments)


def _abandoned(number: int, committee: list[ClientId], seed: Digest, head: Digest) -> RoundEvent:
    return RoundAbandoned(number, tuple(committee), seed, head)


def _decided(*fields: Any) -> RoundDecided:
    number, ranking, accepted, committee, *digests = fields
    base, model, updates, scores, threshold, reveal, record, incidents, *votes = digests
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
        threshold,
        reveal,
        record,
        incidents,
        tuple(views),
        tuple(primaries),
        (int.from_bytes(signers[:32]), int.from_bytes(signers[32:])),
        seed,
        head,
    )


_BUILD: dict[int, Callable[..., RoundEvent]] = {
    1: _committed,
    2: ClientBanned,
    3: _abandoned,
    4: _decided,
}


def _packed(value: list[Any]) -> bytes:
    body = bytes(msgpack.packb(value, use_bin_type=True))
    return body + _checksum(body)


def _checksum(body: bytes) -> bytes:
    return zlib.crc32(body).to_bytes(_CHECKSUM_BYTES, "big")


def _unpacked(data: bytes, read: Callable[[Any], T]) -> T:
    try:
        body, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
        if checksum != _checksum(body):
            raise ValueError("another checksum")
        return read(msgpack.unpackb(body, raw=False))
    except (
        *(ValueError, TypeError, KeyError, EncodingError, struct.error),
        msgpack.UnpackException,
    ) as error:
        what = f"{type(error).__name__} {error}"
        raise IndexDamagedError(
            f"the index holds {len(data)} bytes that are nothing it has written ({what:.100}): "
            "drop it and build it again"
        ) from error
