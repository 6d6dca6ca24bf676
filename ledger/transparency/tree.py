"""The log of a run's heads: its Merkle tree, its entries, and the tiles that serve both.

Roots and proofs follow RFC 6962, section 2.1; leaves are given as leaf hashes. Proofs are
made by the recursion of RFC 6962 and verified by the loops of RFC 9162, sections 2.1.3.2 and
2.1.4.2, so that one does not repeat a mistake of the other.

Entry t - 1 names contract, chain, round t and the head that the end of round t led to, as text
(`HeadEntry`). The head commits to everything before it (docs/reference/protocol/contract.md,
"Head"); a ban after the newest end is under the next entry. The salt comes from the
contract's EIP-712 domain: a restarted chain has the same chain id and addresses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ledger.protocol.encoding import sha256, to_hex
from ledger.protocol.ledger_state import Event, RoundAbandoned, RoundDecided
from ledger.protocol.types import Address, Digest, Domain
from ledger.transparency.notes import (
    MAX_SIZE,
    Checkpoint,
    NoteError,
    ProofError,
    TileError,
    require_key_name,
)

EMPTY_ROOT = sha256(b"")


def leaf_hash(entry: bytes) -> Digest:
    """Return the hash of an entry as a leaf."""
    return sha256(b"\x00" + entry)


def node_hash(left: bytes, right: bytes) -> Digest:
    """Return the hash of two subtrees side by side."""
    return sha256(b"\x01" + left + right)


def root_of(leaves: Sequence[Digest]) -> Digest:
    """Return the root of a tree, by its leaf hashes."""
    peaks: list[Digest] = []
    for index, leaf in enumerate(leaves):
        peak = leaf
        for _ in range(_trailing_ones(index)):
            peak = node_hash(peaks.pop(), peak)
        peaks.append(peak)
    if not peaks:
        return EMPTY_ROOT
    root = peaks.pop()
    while peaks:
        root = node_hash(peaks.pop(), root)
    return root


def inclusion_proof(index: int, leaves: Sequence[Digest]) -> tuple[Digest, ...]:
    """Return the audit path of a leaf, from the leaf up."""
    if len(leaves) == 1:
        return ()
    split = _split(len(leaves))
    left, right = leaves[:split], leaves[split:]
    if index < split:
        return (*inclusion_proof(index, left), root_of(right))
    return (*inclusion_proof(index - split, right), root_of(left))


def consistency_proof(old_size: int, leaves: Sequence[Digest]) -> tuple[Digest, ...]:
    """Return the proof that the first `old_size` leaves of a tree were a tree of their own."""
    return () if old_size in {0, len(leaves)} else _subproof(old_size, leaves, is_whole=True)


def verify_inclusion(
    index: int, size: int, leaf: Digest, proof: Sequence[Digest], root: Digest
) -> None:
    """Accept a leaf of a tree by its index, from 0."""
    if not 0 <= index < size <= MAX_SIZE:
        raise ProofError(f"leaf {index} is not in a tree of {size} leaves")
    computed = leaf
    for sibling, is_left in _siblings(index, size - 1, proof):
        computed = node_hash(sibling, computed) if is_left else node_hash(computed, sibling)
    if computed != root:
        raise ProofError(f"leaf {index} is not under the root {to_hex(root)} of {size} leaves")


def verify_consistency(
    old_size: int, old_root: Digest, size: int, root: Digest, proof: Sequence[Digest]
) -> None:
    """Accept a tree as a continuation of an older one; sizes are numbers of leaves."""
    if not 0 <= old_size <= size <= MAX_SIZE:
        raise ProofError(f"a tree of {size} leaves does not extend a tree of {old_size}")
    if old_size == 0:
        _require_root(old_root, EMPTY_ROOT, 0)
    if old_size in {0, size}:
        if proof:
            raise ProofError(f"a consistency proof from {old_size} to {size} leaves is empty")
        if old_size == size:
            _require_root(root, old_root, size)
        return
    # The old tree is a whole subtree of the new one if its size is a power of two.
    path = [old_root, *proof] if old_size & (old_size - 1) == 0 else list(proof)
    shift = _trailing_ones(old_size - 1)
    before = after = next(iter(path), EMPTY_ROOT)
    for sibling, is_left in _siblings((old_size - 1) >> shift, (size - 1) >> shift, path[1:]):
        if is_left:
            before, after = node_hash(sibling, before), node_hash(sibling, after)
        else:
            after = node_hash(after, sibling)
    _require_root(before, old_root, old_size)
    _require_root(after, root, size)


def _siblings(node: int, last: int, proof: Sequence[Digest]) -> Iterator[tuple[Digest, bool]]:
    """Yield the hashes of a proof, and whether each is of the subtree to the left."""
    for sibling in proof:
        if last == 0:
            raise ProofError("the proof has more hashes than the tree has levels")
        is_left = bool(node & 1) or node == last
        yield sibling, is_left
        while is_left and node and not node & 1:
            node, last = node >> 1, last >> 1
        node, last = node >> 1, last >> 1
    if last:
        raise ProofError("the proof has fewer hashes than the tree has levels")


def _subproof(size: int, leaves: Sequence[Digest], *, is_whole: bool) -> tuple[Digest, ...]:
    if size == len(leaves):
        return () if is_whole else (root_of(leaves),)
    split = _split(len(leaves))
    left, right = leaves[:split], leaves[split:]
    if size <= split:
        return (*_subproof(size, left, is_whole=is_whole), root_of(right))
    return (*_subproof(size - split, right, is_whole=False), root_of(left))


def _split(size: int) -> int:
    """Return the largest power of two below a size of at least 2."""
    return 1 << ((size - 1).bit_length() - 1)


def _trailing_ones(number: int) -> int:
    return (~number & (number + 1)).bit_length() - 1


def _require_root(computed: Digest, root: Digest, size: int) -> None:
    if computed != root:
        raise ProofError(f"{size} leaves have the root {to_hex(root)}, not {to_hex(computed)}")


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
    """The head at the end of round t, from 1."""

    domain: Domain
    round: int
    head: Digest

    def encoded(self) -> bytes:
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
        raise NoteError("the entry is not a head of a run")
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
    """Return the origin of a run's log; the prefix names its publisher, as `example.org/cmfl`."""
    publisher = require_key_name(prefix.rstrip("/"))
    return require_key_name(f"{publisher}{run_suffix(domain.chain_id, domain.contract)}")


CHECKPOINT = "checkpoint"
WIDTH = 256  # hashes of a full tile, and entries of a full bundle
MAX_ENTRIES = 1_000_000  # that are read: far more rounds than any run has had
MAX_LOG_BYTES = 1 << 29  # of bundles that are read: those of heads have less
MAX_ENTRY_BYTES = 0xFFFF
MAX_FILE_BYTES = WIDTH * (MAX_ENTRY_BYTES + 2)
_LENGTH_BYTES = 2
Item = TypeVar("Item", bound=bytes)


def tiles_of(leaves: Sequence[Digest]) -> Iterator[tuple[str, bytes]]:
    """Yield path and bytes of each tile of a tree, level by level from the leaves up."""
    level, hashes = 0, list(leaves)
    while hashes:
        for index, chunk in enumerate(_chunks(hashes)):
            yield _path(str(level), index, len(chunk)), b"".join(chunk)
        hashes = [root_of(chunk) for chunk in _chunks(hashes) if len(chunk) == WIDTH]
        level += 1


def bundles_of(entries: Sequence[bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield path and bytes of each bundle of entries, each entry with its length before it."""
    for index, chunk in enumerate(_chunks(entries)):
        data = b"".join(len(entry).to_bytes(_LENGTH_BYTES) + entry for entry in chunk)
        yield _path("entries", index, len(chunk)), data


def read_entries(checkpoint: Checkpoint, read: Callable[[str], bytes]) -> list[bytes]:
    """Return the entries of a log, held against every tile and the root of a checkpoint."""
    if checkpoint.size > MAX_ENTRIES:
        raise TileError(f"a log has {checkpoint.size} entries; at most {MAX_ENTRIES} are read")
    entries: list[bytes] = []
    left = MAX_LOG_BYTES
    for index, start in enumerate(range(0, checkpoint.size, WIDTH)):
        width = min(WIDTH, checkpoint.size - start)
        path = _path("entries", index, width)
        bundle = read(path)
        left -= len(bundle)
        if left < 0:
            raise TileError(f"{path}: the log has over {MAX_LOG_BYTES} bytes")
        entries += _entries_in(path, bundle, width)
    leaves = [leaf_hash(entry) for entry in entries]
    for path, tile in tiles_of(leaves):
        if read(path) != tile:
            raise TileError(f"{path} does not match the log's entries")
    root = root_of(leaves)
    if root != checkpoint.root:
        raise TileError(f"{checkpoint.origin}: the entries have a different root, {to_hex(root)}")
    return entries


def _entries_in(path: str, bundle: bytes, width: int) -> list[bytes]:
    entries: list[bytes] = []
    at = 0
    while at + _LENGTH_BYTES <= len(bundle) and len(entries) < width:
        start = at + _LENGTH_BYTES
        at = start + int.from_bytes(bundle[at:start])
        entries.append(bundle[start:at])
    if at != len(bundle) or len(entries) != width:
        raise TileError(f"{path} is not a bundle of {width} entries")
    return entries


def _chunks(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), WIDTH):
        yield items[start : start + WIDTH]


def _path(kind: str, index: int, width: int) -> str:
    """Return the path of a tile or bundle; one that is not full has its width in it."""
    parts = [f"{index % 1000:03}"]
    while index := index // 1000:
        parts.insert(0, f"x{index % 1000:03}")
    partial = "" if width == WIDTH else f".p/{width}"
    return f"tile/{kind}/{'/'.join(parts)}{partial}"
