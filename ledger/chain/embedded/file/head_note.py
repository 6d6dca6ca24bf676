"""The note of the newest acknowledged block, and the rejection of a chain that lacks the block.

The note is in `<file>.head` next to the chain.

A damaged write-ahead log and a restored backup both look like a shorter, valid chain: SQLite drops
what does not fit, and a truncated hash chain is consistent. The note reveals the difference.

Two slots of one disk sector each are written in turn, after the block is durable and without
waiting for the disk. A power cut leaves an older note or the newest one, never one ahead of the
chain; a torn slot leaves the other one. The file gets its name only when both slots are durable, so
a power cut cannot leave an empty file: such a note is damaged.
"""

from __future__ import annotations

import hashlib
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ledger.chain.embedded.file.chain_store import ChainStore
from ledger.chain.ports import ChainDamagedError, ChainReader, ChainRolledBackError
from ledger.io.home import DISK, read_file
from ledger.protocol.errors import ChainError

SLOT_BYTES = 512
_DIGEST_BYTES = 32
_BODY = struct.Struct(f">8sQ32sQ32s{SLOT_BYTES - _DIGEST_BYTES - 88}x")
_MAGIC = b"cmflhead"
_READINGS = 5  # A slot that is being written looks damaged for a moment.


@dataclass(frozen=True, slots=True)
class AcknowledgedBlock:
    """A block that a writer of this home has reported as durable."""

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
        """Return the note with this block in both slots, durable, replacing any older note."""
        path = note_path(chain)
        try:
            # Sequence 2 goes into the first slot, as `write` expects.
            DISK.write_whole(path, _encode(2, acknowledged) + _encode(1, acknowledged))
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise ChainError(f"{path}: {error.strerror}") from error
        return cls(path, descriptor, 2)

    def write(self, acknowledged: AcknowledgedBlock) -> None:
        """Note a newer durable block."""
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
        """Close the file; idempotent."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def note_path(chain: Path) -> Path:
    """Return the path of a chain file's note, next to the file that a link leads to."""
    whole = chain.resolve()
    return whole.with_name(f"{whole.name}.head")


def read_note(chain: Path) -> AcknowledgedBlock | None:
    """Return the newest acknowledged block; None if there is no note."""
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
        f"{path}: the note of the newest acknowledged block is damaged, so it is unknown "
        "whether the chain was rolled back; --accept-rollback continues from the chain as it is"
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


_MEANING = (
    "a backup was restored, the file was replaced, or its write-ahead log is damaged or missing. "
    "Put back the newer files, or continue from the present state with --accept-rollback"
)


def verify_not_behind(chain: ChainReader, noted: AcknowledgedBlock, path: Path) -> None:
    """Verify that a chain has the newest block acknowledged here."""
    head = chain.head()
    if noted.genesis_hash != chain.genesis_hash:
        finding = f"this is another chain, of genesis 0x{chain.genesis_hash.hex()}"
    elif noted.number > head.number:
        finding = f"the chain ends with block {head.number} 0x{head.hash.hex()}"
    elif (other := chain.block(noted.number).hash) != noted.hash:
        finding = f"the chain has another block {noted.number}, 0x{other.hex()}"
    else:
        return
    raise ChainRolledBackError(
        f"{path}: block {noted.number} 0x{noted.hash.hex()} was acknowledged here, but {finding}: "
        f"{_MEANING}"
    )


def verify_nothing_acknowledged(path: Path) -> None:
    """Verify that no chain was acknowledged where a new one is to be created."""
    noted = read_note(path)
    if noted is not None and (not path.exists() or ChainStore.is_blank(path)):
        raise ChainRolledBackError(
            f"{path}: block {noted.number} 0x{noted.hash.hex()} was acknowledged here, but there "
            f"is no chain: {_MEANING}"
        )
