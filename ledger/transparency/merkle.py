"""Merkle trees of RFC 6962, section 2.1: roots, and proofs of inclusion and of consistency.

Leaves are given as leaf hashes. Proofs are made by the recursion of RFC 6962 and verified by the
loops of RFC 9162, sections 2.1.3.2 and 2.1.4.2, so that one does not repeat a mistake of the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ledger.protocol.encoding import sha256, to_hex
from ledger.protocol.types import Digest
from ledger.transparency.notes import ProofError

EMPTY_ROOT = sha256(b"")
MAX_SIZE = 2**63 - 1
MAX_PROOF = 63
"""Hashes of a proof in a tree of at most `MAX_SIZE` leaves."""


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
    """Return the proof that the first leaves of a tree were a tree of `old_size` leaves.

    Args:
        old_size: 0 to the number of leaves; of both the proof is empty.
    """
    if old_size in {0, len(leaves)}:
        return ()
    return _subproof(old_size, leaves, is_whole=True)


def verify_inclusion(
    index: int, size: int, leaf: Digest, proof: Sequence[Digest], root: Digest
) -> None:
    """Accept a leaf of a tree.

    Args:
        index: of the leaf, from 0.
    """
    if not 0 <= index < size <= MAX_SIZE:
        raise ProofError(f"leaf {index} is not in a tree of {size} leaves")
    computed = leaf
    for sibling, is_left in _path(index, size - 1, proof):
        computed = node_hash(sibling, computed) if is_left else node_hash(computed, sibling)
    if computed != root:
        raise ProofError(f"leaf {index} is not under the root {to_hex(root)} of {size} leaves")


def verify_consistency(
    old_size: int, old_root: Digest, size: int, root: Digest, proof: Sequence[Digest]
) -> None:
    """Accept a tree as a continuation of an older one.

    Args:
        old_size: number of leaves of the older tree.
        size: number of leaves of the newer tree.
    """
    if not 0 <= old_size <= size <= MAX_SIZE:
        raise ProofError(f"a tree of {size} leaves continues none of {old_size}")
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
    for sibling, is_left in _path((old_size - 1) >> shift, (size - 1) >> shift, path[1:]):
        if is_left:
            before, after = node_hash(sibling, before), node_hash(sibling, after)
        else:
            after = node_hash(after, sibling)
    _require_root(before, old_root, old_size)
    _require_root(after, root, size)


def _path(node: int, last: int, proof: Sequence[Digest]) -> Iterator[tuple[Digest, bool]]:
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
        raise ProofError(f"{size} leaves have the root {to_hex(root)}, and not {to_hex(computed)}")
