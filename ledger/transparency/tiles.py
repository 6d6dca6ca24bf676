"""Entries and tiles of a log (c2sp.org/tlog-tiles).

Entry t - 1 names contract, chain, round t and the head that the end of round t led to, as text:

    cmfl-ledger/head/v1
    chain 31337
    contract 0x...
    salt 0x...
    round 1
    head 0x...

The head commits to everything before it (docs/protocol.md, "Head"), bans included; a ban after the
newest end is under the next entry. The salt is that of the contract's EIP-712 domain: on a chain
that begins anew, chain id and address come again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from ledger.protocol.encoding import to_hex
from ledger.protocol.ledger_state import Event, RoundAbandoned, RoundDecided
from ledger.protocol.types import Address, Digest, Domain
from ledger.transparency.merkle import leaf_hash, root_of
from ledger.transparency.notes import NoteError, TileError, require_key_name

if TYPE_CHECKING:
    from ledger.transparency.checkpoints import Checkpoint


_ENTRY = re.compile(
    b"cmfl-ledger/head/v1\n"
    b"chain (0|[1-9][0-9]{0,19})\n"
    b"contract 0x([0-9a-f]{40})\n"
    b"salt 0x([0-9a-f]{64})\n"
    b"round ([1-9][0-9]{0,9})\n"
    b"head 0x([0-9a-f]{64})\n"
)


@dataclass(frozen=True, slots=True)
class HeadEntry:
    """The head at the end of a round.

    Attributes:
        round: t, from 1.
    """

    domain: Domain
    round: int
    head: Digest

    def encoded(self) -> bytes:
        """Return the entry's bytes, which the log's leaf is the hash of."""
        return (
            f"cmfl-ledger/head/v1\n"
            f"chain {self.domain.chain_id}\n"
            f"contract {to_hex(self.domain.contract)}\n"
            f"salt {to_hex(self.domain.salt)}\n"
            f"round {self.round}\n"
            f"head {to_hex(self.head)}\n"
        ).encode()


def parse_entry(data: bytes) -> HeadEntry:
    """Return an entry from its bytes."""
    match = _ENTRY.fullmatch(data)
    if match is None:
        raise NoteError("the entry is no head of a run")
    chain, contract, salt, round_, head = (group.decode() for group in match.groups())
    domain = Domain(int(chain), Address(bytes.fromhex(contract)), Digest(bytes.fromhex(salt)))
    return HeadEntry(domain, int(round_), Digest(bytes.fromhex(head)))


def head_entries(domain: Domain, events: Iterable[Event]) -> list[HeadEntry]:
    """Return the entries of a contract's events, in their order."""
    return [
        HeadEntry(domain, event.round, event.head)
        for event in events
        if isinstance(event, RoundDecided | RoundAbandoned)
    ]


def run_suffix(chain_id: int, contract: Address) -> str:
    """Return how the origin of every log of a run ends: its chain and contract."""
    return f"/{chain_id}/{to_hex(contract)}"


def origin_of(prefix: str, domain: Domain) -> str:
    """Return the origin of a run's log.

    Args:
        prefix: name of its publisher, such as `example.org/cmfl`.
    """
    publisher = require_key_name(prefix.rstrip("/"))
    return require_key_name(f"{publisher}{run_suffix(domain.chain_id, domain.contract)}")


CHECKPOINT = "checkpoint"
WIDTH = 256
"""Hashes of a full tile, and entries of a full bundle."""
MAX_ENTRIES = 1_000_000
"""Entries of a log that are read: more rounds than any run has had by orders of magnitude."""
MAX_LOG_BYTES = 1 << 29
"""Of a log's bundles that are read: those of heads have less, and others' entries may be longer."""
MAX_ENTRY_BYTES = 0xFFFF
MAX_FILE_BYTES = WIDTH * (MAX_ENTRY_BYTES + 2)
_LENGTH_BYTES = 2
Item = TypeVar("Item", bound=bytes)


@dataclass(frozen=True, slots=True)
class LogFile:
    """A tile or a bundle."""

    path: str
    data: bytes


def tiles_of(leaves: Sequence[Digest]) -> Iterator[LogFile]:
    """Yield the tiles of a tree, level by level from the leaves up."""
    level, hashes = 0, list(leaves)
    while hashes:
        for index, chunk in enumerate(_chunks(hashes)):
            yield LogFile(_path(str(level), index, len(chunk)), b"".join(chunk))
        full = len(hashes) // WIDTH
        hashes = [root_of(hashes[n * WIDTH : (n + 1) * WIDTH]) for n in range(full)]
        level += 1


def bundles_of(entries: Sequence[bytes]) -> Iterator[LogFile]:
    """Yield the bundles of a log's entries, each entry with its length before it."""
    for index, chunk in enumerate(_chunks(entries)):
        data = b"".join(len(entry).to_bytes(_LENGTH_BYTES) + entry for entry in chunk)
        yield LogFile(_path("entries", index, len(chunk)), data)


def read_entries(checkpoint: Checkpoint, read: Callable[[str], bytes]) -> list[bytes]:
    """Return the entries of a log, held against every tile and the root of a checkpoint.

    Args:
        read: returns the file at a path below the log's prefix.
    """
    if checkpoint.size > MAX_ENTRIES:
        raise TileError(f"a log of {checkpoint.size} entries is not read: at most {MAX_ENTRIES}")
    entries: list[bytes] = []
    left = MAX_LOG_BYTES
    for path, width in _paths("entries", checkpoint.size):
        bundle = LogFile(path, read(path))
        left -= len(bundle.data)
        if left < 0:
            raise TileError(f"{path}: a log of over {MAX_LOG_BYTES} bytes is not read")
        entries += _entries_in(bundle, width)
    leaves = [leaf_hash(entry) for entry in entries]
    for tile in tiles_of(leaves):
        if read(tile.path) != tile.data:
            raise TileError(f"{tile.path} does not hash: it is not the tile of the log's entries")
    root = root_of(leaves)
    if root != checkpoint.root:
        raise TileError(
            f"the {len(entries)} entries of {checkpoint.origin} have the root {to_hex(root)}, and "
            f"its checkpoint says {to_hex(checkpoint.root)}"
        )
    return entries


def _entries_in(bundle: LogFile, width: int) -> list[bytes]:
    """Return the entries of a bundle."""
    entries: list[bytes] = []
    at = 0
    while at + _LENGTH_BYTES <= len(bundle.data) and len(entries) < width:
        start = at + _LENGTH_BYTES
        at = start + int.from_bytes(bundle.data[at:start])
        entries.append(bundle.data[start:at])
    if at != len(bundle.data) or len(entries) != width:
        raise TileError(f"{bundle.path} is no bundle of {width} entries")
    return entries


def _chunks(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), WIDTH):
        yield items[start : start + WIDTH]


def _paths(kind: str, size: int) -> Iterator[tuple[str, int]]:
    for index, start in enumerate(range(0, size, WIDTH)):
        width = min(WIDTH, size - start)
        yield _path(kind, index, width), width


def _path(kind: str, index: int, width: int) -> str:
    """Return the path of a tile or bundle; one that is not full has its width in it."""
    parts = [f"{index % 1000:03}"]
    while index := index // 1000:
        parts.insert(0, f"x{index % 1000:03}")
    partial = "" if width == WIDTH else f".p/{width}"
    return f"tile/{kind}/{'/'.join(parts)}{partial}"
