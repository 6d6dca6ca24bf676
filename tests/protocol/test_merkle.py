"""Merkle trees: small trees by hand, and no way to pass off another leaf, proof or root."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from eth_abi.abi import encode
from hypothesis import given
from hypothesis import strategies as st

from ledger.protocol import encoding
from ledger.protocol.encoding import keccak256
from ledger.protocol.types import NO_DIGEST, Digest
from tests.protocol.support import digests

TYPES = encoding.SCORES_LEAF
LEAVES = (encoding.UPDATE_LEAF, encoding.SCORES_LEAF, encoding.DATA_LEAF)
leaves = st.lists(
    st.tuples(st.integers(0, 2**32 - 1), digests), min_size=1, max_size=12, unique_by=lambda x: x[0]
)
Leaves = list[tuple[int, Digest]]


def leaf(member: int) -> encoding.Leaf:
    return member, Digest(bytes([member]) * 32)


def pair(one: Digest, other: Digest) -> Digest:
    return keccak256(one + other if one < other else other + one)


def hashed(*members: int) -> list[Digest]:
    """Return the leaves' hashes in the tree's order, ascending."""
    return sorted(encoding.leaf_hash(TYPES, leaf(member)) for member in members)


def is_proven(proven: encoding.Leaf, siblings: Sequence[Digest], top: Digest) -> bool:
    return encoding.root_from_proof(TYPES, proven, siblings) == top


@given(st.data())
def test_every_kind_of_leaf_is_encoded_as_abi_has_it(data: st.DataObject) -> None:
    kinds = {
        "uint32": st.integers(0, 2**32 - 1),
        "uint64": st.integers(0, 2**64 - 1),
        "bool": st.booleans(),
        "bytes32": digests,
    }
    for types in LEAVES:
        values = tuple(data.draw(kinds[kind]) for kind in types)
        expected = keccak256(keccak256(encode(types, values)))
        assert encoding.leaf_hash(types, values) == expected


@pytest.mark.parametrize(
    ("types", "values"),
    [
        (("uint32", "bytes32"), (3, b"\1" * 31)),
        (("bytes32", "bytes32"), (b"\1" * 31, b"\1" * 33)),
        (("uint32", "bytes32"), (b"\1" * 32, b"\1" * 32)),
        (("uint32", "bytes32"), (2**32, b"\1" * 32)),
        (("uint64", "bytes32"), (-1, b"\1" * 32)),
        (("bool", "bytes32"), (2, b"\1" * 32)),
        (("bytes32",), (0,)),
    ],
)
def test_a_value_of_another_kind_is_no_leaf(
    types: tuple[str, ...], values: tuple[int | bytes, ...]
) -> None:
    with pytest.raises(ValueError, match="is not a "):
        encoding.leaf_hash(types, values)


@pytest.mark.parametrize("types", LEAVES, ids=str)
def test_a_leaf_with_a_value_too_many_or_few_is_none(types: tuple[str, ...]) -> None:
    values = tuple(bytes(32) if kind == "bytes32" else 0 for kind in types)
    for wrong in (values[:-1], (*values, 0)):
        with pytest.raises(ValueError, match="zip"):
            encoding.leaf_hash(types, wrong)


def test_no_leaf_has_no_root() -> None:
    assert encoding.merkle_root(TYPES, []) == NO_DIGEST


def test_a_leaf_outside_the_tree_has_no_proof() -> None:
    for tree in ([], [leaf(1)], [leaf(1), leaf(2), leaf(3)]):
        with pytest.raises(ValueError, match="not in list"):
            encoding.merkle_proof(TYPES, tree, leaf(4))


def test_an_inner_node_is_no_leaf() -> None:
    tree = [leaf(1), leaf(2), leaf(3)]
    a, b, c = hashed(1, 2, 3)
    assert is_proven(leaf(1), encoding.merkle_proof(TYPES, tree, leaf(1)), pair(pair(b, a), c))
    # The pair's 64 bytes as a leaf: one hash too many keeps it from being the pair.
    member, digest = int.from_bytes(b[:4]), Digest(a)
    assert not is_proven((member, digest), [c], encoding.merkle_root(TYPES, tree))


@given(tree=leaves, data=st.data())
def test_every_leaf_is_proven_in_any_tree_order(tree: Leaves, data: st.DataObject) -> None:
    top = encoding.merkle_root(TYPES, tree)
    assert encoding.merkle_root(TYPES, data.draw(st.permutations(tree))) == top
    for member in tree:
        siblings = encoding.merkle_proof(TYPES, tree, member)
        assert is_proven(member, siblings, top)
        assert len(siblings) <= len(tree).bit_length()


@given(tree=leaves, data=st.data())
def test_a_changed_leaf_is_not_proven(tree: Leaves, data: st.DataObject) -> None:
    member, digest = data.draw(st.sampled_from(tree))
    siblings = encoding.merkle_proof(TYPES, tree, (member, digest))
    other = data.draw(digests.filter(lambda value: value != digest))
    top = encoding.merkle_root(TYPES, tree)
    assert not is_proven((member, other), siblings, top)
    assert not is_proven((member ^ 1, digest), siblings, top)


@given(tree=leaves, data=st.data())
def test_a_changed_root_proves_nothing(tree: Leaves, data: st.DataObject) -> None:
    member = data.draw(st.sampled_from(tree))
    place, flip = data.draw(st.integers(0, 31)), data.draw(st.integers(1, 255))
    top = bytearray(encoding.merkle_root(TYPES, tree))
    top[place] ^= flip
    assert not is_proven(member, encoding.merkle_proof(TYPES, tree, member), Digest(bytes(top)))


@given(tree=leaves.filter(lambda tree: len(tree) > 1), data=st.data())
def test_a_changed_shortened_or_lengthened_proof_proves_nothing(
    tree: Leaves, data: st.DataObject
) -> None:
    member, top = data.draw(st.sampled_from(tree)), encoding.merkle_root(TYPES, tree)
    siblings = encoding.merkle_proof(TYPES, tree, member)
    place = data.draw(st.integers(0, len(siblings) - 1))
    other = data.draw(digests.filter(lambda value: value != siblings[place]))
    changed = (*siblings[:place], other, *siblings[place + 1 :])
    assert not is_proven(member, changed, top)
    assert not is_proven(member, siblings[:place] + siblings[place + 1 :], top)
    assert not is_proven(member, (*siblings, other), top)
    assert not is_proven(member, (*siblings, top), top)
