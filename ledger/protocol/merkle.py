"""Merkle trees in the format of OpenZeppelin's StandardMerkleTree.

Leaves are hashed twice over their ABI encoding, sorted by hash, and laid out from the end of the
tree's array; an inner node hashes its two children in sorted order. Verifiers in Solidity and
JavaScript accept these proofs as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ledger.protocol.encoding import keccak256, words
from ledger.protocol.types import NO_DIGEST, Digest

UPDATE_LEAF = ("uint32", "bytes32", "uint32", "uint64", "bool")
"""client, payload digest, rank from 0, distance bits, accepted."""

SCORES_LEAF = ("uint32", "bytes32")  # member, digest of its score vector
DATA_LEAF = ("uint32", "uint64", "bytes32")  # client, number and digest of its training samples
_BELOW = {"uint32": 2**32, "uint64": 2**64, "bool": 2}

Leaf = tuple[Any, ...]


def leaf_hash(types: Sequence[str], leaf: Leaf) -> Digest:
    """Return the double hash of a leaf's ABI encoding."""
    for kind, value in zip(types, leaf, strict=True):
        if kind == "bytes32":
            is_kind = isinstance(value, bytes) and len(value) == 32
        else:
            is_kind = isinstance(value, int) and 0 <= value < _BELOW[kind]
        if not is_kind:
            raise ValueError(f"{value!r:.80} is no {kind}")
    return keccak256(keccak256(words(*leaf)))


def root(types: Sequence[str], leaves: Sequence[Leaf]) -> Digest:
    """Return the root of the tree over these leaves; 32 zero bytes if there are none."""
    return _layers(types, leaves)[0] if leaves else NO_DIGEST


def proof(types: Sequence[str], leaves: Sequence[Leaf], leaf: Leaf) -> tuple[Digest, ...]:
    """Return the sibling hashes from a leaf up to the root, lowest first."""
    tree = _layers(types, leaves)
    position = tree.index(leaf_hash(types, leaf), len(leaves) - 1)
    siblings = []
    while position > 0:
        siblings.append(tree[position + 1 if position % 2 else position - 1])
        position = (position - 1) // 2
    return tuple(siblings)


def is_proven(types: Sequence[str], leaf: Leaf, siblings: Sequence[Digest], top: Digest) -> bool:
    """Say whether the siblings, lowest first, lead from the leaf to the root."""
    return root_from_proof(types, leaf, siblings) == top


def root_from_proof(types: Sequence[str], leaf: Leaf, siblings: Sequence[Digest]) -> Digest:
    """Return the root to which the siblings, lowest first, lead from a leaf."""
    node = leaf_hash(types, leaf)
    for sibling in siblings:
        node = _parent(node, sibling)
    return node


def _layers(types: Sequence[str], leaves: Sequence[Leaf]) -> list[Digest]:
    """Return the whole tree as an array: root first, the sorted leaves at the end, reversed."""
    hashes = sorted(leaf_hash(types, leaf) for leaf in leaves)
    tree = [NO_DIGEST] * (len(hashes) - 1) + hashes[::-1]
    for node in range(len(hashes) - 2, -1, -1):
        tree[node] = _parent(tree[2 * node + 1], tree[2 * node + 2])
    return tree


def _parent(one: Digest, other: Digest) -> Digest:
    return keccak256(min(one, other) + max(one, other))
