"""Merkle trees: small trees by hand, and no way to pass off another leaf, proof or root."""

from __future__ import annotations

import pytest
from eth_abi.abi import encode
from hypothesis import given
from hypothesis import strategies as st

from ledger.protocol import merkle
from ledger.protocol.encoding import keccak256
from ledger.protocol.types import NO_DIGEST, Digest
from tests.protocol.support import digests

TYPES = merkle.SCORES_LEAF
LEAVES = (merkle.UPDATE_LEAF, merkle.SCORES_LEAF, merkle.DATA_LEAF)
leaves = st.lists(
    st.tuples(st.integers(0, 2**32 - 1), digests), min_size=1, max_size=12, unique_by=lambda x: x[0]
)
Leaves = list[tuple[int, Digest]]


def leaf(member: int) -> merkle.Leaf:
    return member, Digest(bytes([member]) * 32)


def pair(one: Digest, other: Digest) -> Digest:
    return keccak256(one + other if one < other else other + one)


def hashed(*members: int) -> list[Digest]:
    """Return the leaves' hashes in the tree's order, ascending."""
    return sorted(merkle.leaf_hash(TYPES, leaf(member)) for member in members)


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
        assert merkle.leaf_hash(types, values) == expected


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
    with pytest.raises(ValueError, match="is no "):
        merkle.leaf_hash(types, values)


@pytest.mark.parametrize("types", LEAVES, ids=str)
def test_a_leaf_with_a_value_too_many_or_few_is_none(types: tuple[str, ...]) -> None:
    values = tuple(bytes(32) if kind == "bytes32" else 0 for kind in types)
    for wrong in (values[:-1], (*values, 0)):
        with pytest.raises(ValueError, match="zip"):
            merkle.leaf_hash(types, wrong)


def test_no_leaf_has_no_root() -> None:
    assert merkle.root(TYPES, []) == NO_DIGEST


def test_a_leaf_outside_the_tree_has_no_proof() -> None:
    for tree in ([], [leaf(1)], [leaf(1), leaf(2), leaf(3)]):
        with pytest.raises(ValueError, match="not in list"):
            merkle.proof(TYPES, tree, leaf(4))


def test_an_inner_node_is_no_leaf() -> None:
    tree = [leaf(1), leaf(2), leaf(3)]
    a, b, c = hashed(1, 2, 3)
    assert merkle.is_proven(TYPES, leaf(1), merkle.proof(TYPES, tree, leaf(1)), pair(pair(b, a), c))
    # The pair's 64 bytes as a leaf: one hash too many keeps it from being the pair.
    member, digest = int.from_bytes(b[:4]), Digest(a)
    assert not merkle.is_proven(TYPES, (member, digest), [c], merkle.root(TYPES, tree))


@given(tree=leaves, data=st.data())
def test_every_leaf_is_proven_in_any_tree_order(tree: Leaves, data: st.DataObject) -> None:
    top = merkle.root(TYPES, tree)
    assert merkle.root(TYPES, data.draw(st.permutations(tree))) == top
    for member in tree:
        siblings = merkle.proof(TYPES, tree, member)
        assert merkle.is_proven(TYPES, member, siblings, top)
        assert len(siblings) <= len(tree).bit_length()


@given(tree=leaves, data=st.data())
def test_a_changed_leaf_is_not_proven(tree: Leaves, data: st.DataObject) -> None:
    member, digest = data.draw(st.sampled_from(tree))
    siblings = merkle.proof(TYPES, tree, (member, digest))
    other = data.draw(digests.filter(lambda value: value != digest))
    top = merkle.root(TYPES, tree)
    assert not merkle.is_proven(TYPES, (member, other), siblings, top)
    assert not merkle.is_proven(TYPES, (member ^ 1, digest), siblings, top)


@given(tree=leaves, data=st.data())
def test_a_changed_root_proves_nothing(tree: Leaves, data: st.DataObject) -> None:
    member = data.draw(st.sampled_from(tree))
    place, flip = data.draw(st.integers(0, 31)), data.draw(st.integers(1, 255))
    top = bytearray(merkle.root(TYPES, tree))
    top[place] ^= flip
    assert not merkle.is_proven(
        TYPES, member, merkle.proof(TYPES, tree, member), Digest(bytes(top))
    )


@given(tree=leaves.filter(lambda tree: len(tree) > 1), data=st.data())
def test_a_changed_shortened_or_lengthened_proof_proves_nothing(
    tree: Leaves, data: st.DataObject
) -> None:
    member, top = data.draw(st.sampled_from(tree)), merkle.root(TYPES, tree)
    siblings = merkle.proof(TYPES, tree, member)
    place = data.draw(st.integers(0, len(siblings) - 1))
    other = data.draw(digests.filter(lambda value: value != siblings[place]))
    changed = (*siblings[:place], other, *siblings[place + 1 :])
    assert not merkle.is_proven(TYPES, member, changed, top)
    assert not merkle.is_proven(TYPES, member, siblings[:place] + siblings[place + 1 :], top)
    assert not merkle.is_proven(TYPES, member, (*siblings, other), top)
    assert not merkle.is_proven(TYPES, member, (*siblings, top), top)
