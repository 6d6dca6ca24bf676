"""The files that a chain's writer holds: the note of its newest block, its lock, its log.

A damaged write-ahead log and a restored backup both look like a shorter, valid chain. The note of
the newest block in `<file>.head` reveals the difference. Two slots of one disk sector each are
written in turn, after the block is durable and without waiting for the disk. A power cut leaves an
older note or the newest one, never one ahead of the chain; a torn slot leaves the other one. The
file gets its name only when both slots are durable: an empty note is damaged.

The lock is on a side file, as locking the SQLite file itself would interfere with SQLite's locks.
The operating system releases it when the process ends, so a stale lock file has no effect.

SQLite moves the write-ahead log into the file by itself, except for what a reader's view needs: an
audit that runs for an hour lets the log grow by an hour of blocks.
"""

from __future__ import annotations

import hashlib
import logging
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

from ledger.chain import ports
from ledger.chain.embedded.chain_store import ChainStore
from ledger.io.home import DISK, HeldError, read_file, take_lock
from ledger.protocol.errors import ChainError

SLOT_BYTES = 512
_DIGEST_BYTES = 32
_BODY = struct.Struct(f">8sQ32sQ32s{SLOT_BYTES - _DIGEST_BYTES - 88}x")
_MAGIC = b"cmflhead"


@dataclass(frozen=True, slots=True)
class AcknowledgedBlock:
    """A block that a writer of this home has reported as durable."""

    genesis_hash: bytes
    number: int
    hash: bytes


class HeadNote:
    """The note, open for writing."""

    def __init__(self, chain: Path, acknowledged: AcknowledgedBlock) -> None:
        self._path, self._sequence = note_path(chain), 2
        try:
            # Sequence 2 goes into the first slot, as `write` expects.
            DISK.write_whole(self._path, _encode(2, acknowledged) + _encode(1, acknowledged))
            self._descriptor: int | None = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise ChainError(f"{self._path}: {error.strerror}") from error

    def write(self, acknowledged: AcknowledgedBlock) -> None:
        if self._descriptor is None:
            return
        self._sequence += 1
        slot = _encode(self._sequence, acknowledged)
        try:
            os.pwrite(self._descriptor, slot, self._sequence % 2 * SLOT_BYTES)
        except OSError as error:
            fact = f"block {acknowledged.number} is on disk, but not noted"
            raise ChainError(f"{fact}: {error.strerror} ({self._path})") from error

    def close(self) -> None:
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
    for _ in range(5):  # a slot that is being written looks damaged for a moment
        try:
            content = read_file(path, 2 * SLOT_BYTES)[: 2 * SLOT_BYTES]
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ChainError(f"{path}: {error.strerror}") from error
        slots = filter(None, (_decode(content[:SLOT_BYTES]), _decode(content[SLOT_BYTES:])))
        newest = max(slots, key=itemgetter(0), default=None)
        if newest is not None:
            return newest[1]
    raise ports.ChainDamagedError(
        f"{path}: the note of the newest acknowledged block is damaged, so a rollback would "
        "go unnoticed; to continue anyway: cmfl run --resume --accept-rollback"
    )


def _encode(sequence: int, acknowledged: AcknowledgedBlock) -> bytes:
    place = acknowledged.genesis_hash, acknowledged.number, acknowledged.hash
    body = _BODY.pack(_MAGIC, sequence, *place)
    return body + hashlib.sha256(body).digest()


def _decode(slot: bytes) -> tuple[int, AcknowledgedBlock] | None:
    body, digest = slot[:-_DIGEST_BYTES], slot[-_DIGEST_BYTES:]
    if len(slot) != SLOT_BYTES or hashlib.sha256(body).digest() != digest:
        return None
    magic, sequence, genesis_hash, number, block_hash = _BODY.unpack(body)
    if magic != _MAGIC:
        return None
    return sequence, AcknowledgedBlock(genesis_hash, number, block_hash)


def _rolled_back(path: Path, noted: AcknowledgedBlock, finding: str) -> ports.ChainRolledBackError:
    return ports.ChainRolledBackError(
        f"{path}: block {noted.number} 0x{noted.hash.hex()} was acknowledged here, but "
        f"{finding}: a backup was restored, the file was replaced, or its write-ahead log is "
        "damaged or missing. Put back the newer files, or continue from the present state: "
        "cmfl run --resume --accept-rollback"
    )


def verify_not_behind(chain: ports.ChainReader, noted: AcknowledgedBlock, path: Path) -> None:
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
    raise _rolled_back(path, noted, finding)


def verify_nothing_acknowledged(path: Path) -> None:
    """Verify that no chain was acknowledged where a new one is to be created."""
    noted = read_note(path)
    if noted is not None and (not path.exists() or ChainStore.is_blank(path)):
        raise _rolled_back(path, noted, "there is no chain")


@contextmanager
def writer_lock(chain: Path) -> Iterator[None]:
    """Hold `<chain>.lock`, next to the file that a link leads to; never wait."""
    whole = chain.resolve()
    path = whole.with_name(f"{whole.name}.lock")
    try:
        descriptor = take_lock(path)
    except OSError as error:
        raise ChainError(f"{path}: {error.strerror}") from error
    except HeldError as error:
        raise ports.ChainLockedError(f"{chain}: {error} writes to this chain") from error
    try:
        yield
    finally:
        os.close(descriptor)


_log = logging.getLogger(__name__)


class WriteAheadLog:
    """The write-ahead log of a chain open for writing; its readers are named over `max_bytes`."""

    def __init__(self, store: ChainStore, max_bytes: int = 64 * 2**20) -> None:
        self._store = store
        self._most_bytes = max_bytes
        self._has_warned = False

    def empty(self) -> None:
        """Make the log's content durable, and empty it unless a reader needs it."""
        if self._store.wal_bytes:
            self._store.checkpoint()

    def bound(self) -> None:
        """Checkpoint a log that is too long; only warn, once, as its blocks are durable."""
        if self._store.wal_bytes <= self._most_bytes:
            return
        hindrance: str | None = None
        try:
            if not self._store.checkpoint():
                readers = [f"process {process}" for process in readers_of(self._store.path)]
                hindrance = (
                    f"a reader holds an old view of the chain "
                    f"({', '.join(readers) or 'in this process'}); it shrinks when the reader ends"
                )
        except ChainError as error:
            hindrance = str(error)
        if hindrance is not None and not self._has_warned:
            size = self._store.wal_bytes >> 20
            _log.warning("%s-wal has grown to %d MiB: %s", self._store.path, size, hindrance)
        self._has_warned = hindrance is not None


def readers_of(chain: Path) -> list[int]:
    """Return the ids of other processes that read a chain now, as far as the system shows them."""
    try:
        inode = Path(f"{os.path.realpath(chain)}-shm").stat().st_ino
        locks = Path("/proc/locks").read_text("ascii")
    except (OSError, UnicodeError):
        return []
    readers = {_reader(line.split(), inode) for line in locks.splitlines()}
    return sorted(readers - {0, os.getpid()})


def _reader(fields: list[str], inode: int) -> int:
    """Return the process in `3: POSIX ADVISORY READ 1234 fd:01:5678 123 127`; 0 for other locks."""
    if len(fields) != 8 or fields[1] != "POSIX" or not fields[5].endswith(f":{inode}"):
        return 0
    process, first, last = fields[4], fields[6], fields[7]
    if not (process.isdigit() and first.isdigit() and last.isdigit()):
        return 0
    # SQLite's readers lock the bytes 123 to 127 of `-shm`.
    return int(process) if int(first) <= 127 and int(last) >= 123 else 0
