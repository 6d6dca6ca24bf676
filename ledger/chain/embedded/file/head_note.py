"""The newest block that a home has acknowledged, noted beside the chain in `<file>.head`.

A damaged write-ahead log and a restored backup both read as a shorter, valid chain: SQLite drops
what does not fit, and a hash chain cut at its end is whole. The note is what says otherwise.

Two slots of one disk sector each are written in turn, after the block is durable and without
waiting for the disk: a power cut leaves an older note or the newest one, never one ahead of the
chain, and a slot that was torn leaves the other. The file has its name only once both are durable,
so that no power cut leaves an empty one, or zeros: such a note is a damaged one.
"""

from __future__ import annotations

import hashlib
import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from ledger.chain.ports import ChainDamagedError
from ledger.io.home import DISK, read_file
from ledger.protocol.errors import ChainError

if TYPE_CHECKING:
    from pathlib import Path

SLOT_BYTES = 512
_DIGEST_BYTES = 32
_BODY = struct.Struct(f">8sQ32sQ32s{SLOT_BYTES - _DIGEST_BYTES - 88}x")
_MAGIC = b"cmflhead"
_READINGS = 5  # A slot that is being written looks damaged; it is whole a moment later.


@dataclass(frozen=True, slots=True)
class AcknowledgedBlock:
    """A block that a writer of this home has called durable.

    Attributes:
        genesis_hash: of its chain.
        number: the block's.
        hash: the block's.
    """

    genesis_hash: bytes
    number: int
    hash: bytes


@dataclass(frozen=True, slots=True)
class _Slot:
    sequence: int
    acknowledged: AcknowledgedBlock


class HeadNote:
    """The note, open for writing."""

    def __init__(self, path: Path, descriptor: int, sequence: int) -> None:
        self._path = path
        self._descriptor: int | None = descriptor
        self._sequence = sequence

    @classmethod
    def begin(cls, chain: Path, acknowledged: AcknowledgedBlock) -> Self:
        """Return the note with this block in both slots, on the disk, whatever it said before.

        Args:
            chain: the chain file.
            acknowledged: a block of it that is durable.

        Raises:
            ChainError: the note cannot be written.
        """
        path = note_path(chain)
        try:
            # The second belongs into the first slot, as `write` goes on.
            DISK.write_whole(path, _encode(2, acknowledged) + _encode(1, acknowledged))
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise ChainError(f"{path}: {error.strerror}") from error
        return cls(path, descriptor, 2)

    def write(self, acknowledged: AcknowledgedBlock) -> None:
        """Note a newer block.

        Args:
            acknowledged: it is durable.

        Raises:
            ChainError: it cannot be written; the block itself is on disk.
        """
        if self._descriptor is None:
            return
        self._sequence += 1
        slot = _encode(self._sequence, acknowledged)
        try:
            os.pwrite(self._descriptor, slot, self._sequence % 2 * SLOT_BYTES)
        except OSError as error:
            raise ChainError(
                f"block {acknowledged.number} is on disk, but not noted: "
                f"{self._path}: {error.strerror}"
            ) from error

    def close(self) -> None:
        """Close the file; doing so twice does no harm."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def note_path(chain: Path) -> Path:
    """Return where the note of a chain file lies.

    Args:
        chain: the chain file, or a link to it.
    """
    whole = chain.resolve()
    return whole.with_name(f"{whole.name}.head")


def read_note(chain: Path) -> AcknowledgedBlock | None:
    """Return the newest block that a home has acknowledged; None where none is noted.

    Args:
        chain: the chain file.

    Raises:
        ChainDamagedError: there is a note, but none that was ever written.
        ChainError: it cannot be read.
    """
    path = note_path(chain)
    for _ in range(_READINGS):
        content = _content(path)
        if content is None:
            return None
        slots = [
            slot
            for start in (0, SLOT_BYTES)
            if (slot := _decode(content[start : start + SLOT_BYTES])) is not None
        ]
        if slots:
            return max(slots, key=lambda slot: slot.sequence).acknowledged
    raise ChainDamagedError(
        f"{path}: the note of the newest acknowledged block is damaged, so that nobody can say "
        "whether the chain was rolled back; --accept-rollback goes on from the chain as it is"
    )


def _content(path: Path) -> bytes | None:
    try:
        return read_file(path, 2 * SLOT_BYTES)[: 2 * SLOT_BYTES]
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ChainError(f"{path}: {error.strerror}") from error


def _encode(sequence: int, acknowledged: AcknowledgedBlock) -> bytes:
    body = _BODY.pack(
        _MAGIC, sequence, acknowledged.genesis_hash, acknowledged.number, acknowledged.hash
    )
    return body + hashlib.sha256(body).digest()


def _decode(slot: bytes) -> _Slot | None:
    body, digest = slot[:-_DIGEST_BYTES], slot[-_DIGEST_BYTES:]
    if len(slot) != SLOT_BYTES or hashlib.sha256(body).digest() != digest:
        return None
    magic, sequence, genesis_hash, number, block_hash = _BODY.unpack(body)
    if magic != _MAGIC:
        return None
    return _Slot(sequence, AcknowledgedBlock(genesis_hash, number, block_hash))
