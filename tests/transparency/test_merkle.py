"""Roots and proofs: the examples of RFC 6962 by hand, every pair of small sizes, and damage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.protocol.encoding import sha256
from ledger.protocol.types import Digest
from ledger.transparency.errors import ProofError
from ledger.transparency.merkle import (
    EMPTY_ROOT,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    node_hash,
    root_of,
    verify_consistency,
    verify_inclusion,
)

LARGEST = 64
LEAVES = [leaf_hash(bytes([number])) for number in range(LARGEST)]
ROOTS = [root_of(LEAVES[:size]) for size in range(LARGEST + 1)]


def test_the_smallest_trees_are_hashed_by_hand() -> None:
    a, b, c = LEAVES[:3]
    assert a == sha256(b"\x00\x00")
    assert root_of([]) == EMPTY_ROOT == sha256(b"")
    assert root_of([a]) == a
    assert root_of([a, b]) == sha256(b"\x01" + a + b)
    assert root_of([a, b, c]) == node_hash(node_hash(a, b), c)


def test_certificate_transparencys_eight_leaves_have_their_roots() -> None:
    """The leaves and roots that implementations of RFC 6962 are compared by."""
    data = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657"]
    leaves = [leaf_hash(bytes.fromhex(each)) for each in [*data, bytes(range(96, 112)).hex()]]
    assert [root_of(leaves[:size]).hex()[:16] for size in range(1, 9)] == [
        "6e340b9cffb37a98",
        "fac54203e7cc696c",
        "aeb6bcfe274b70a1",
        "d37ee418976dd957",
        "4e3bbb1f7b478dcf",
        "76e67dadbcdf1e10",
        "ddb89be403809e32",
        "5dc9da79a70659a9",
    ]


def test_the_seven_leaves_of_the_rfc_have_its_proofs() -> None:
    """RFC 6962, section 2.1.3: the tree of d0 to d6, its paths and its consistency proofs."""
    a, b, c, d, e, f, j = LEAVES[:7]
    g, h, i = node_hash(a, b), node_hash(c, d), node_hash(e, f)
    k, l_ = node_hash(g, h), node_hash(i, j)
    seven = LEAVES[:7]
    assert root_of(seven) == node_hash(k, l_)
    assert inclusion_proof(0, seven) == (b, h, l_)
    assert inclusion_proof(3, seven) == (c, g, l_)
    assert inclusion_proof(4, seven) == (f, j, k)
    assert inclusion_proof(6, seven) == (i, k)
    assert consistency_proof(3, seven) == (c, d, g, l_)
    assert consistency_proof(4, seven) == (l_,)
    assert consistency_proof(6, seven) == (i, j, k)


def test_every_leaf_of_every_small_tree_is_proven_and_no_other() -> None:
    for size in range(1, LARGEST + 1):
        for index in range(size):
            proof = inclusion_proof(index, LEAVES[:size])
            verify_inclusion(index, size, LEAVES[index], proof, ROOTS[size])
            with pytest.raises(ProofError):
                verify_inclusion(index, size, LEAVES[(index + 1) % LARGEST], proof, ROOTS[size])


def test_every_small_tree_continues_every_smaller_one() -> None:
    for size in range(LARGEST + 1):
        for old in range(size + 1):
            proof = consistency_proof(old, LEAVES[:size])
            verify_consistency(old, ROOTS[old], size, ROOTS[size], proof)


@given(st.integers(1, LARGEST), st.integers(1, LARGEST), st.data())
def test_a_fork_has_no_consistency_proof(old: int, size: int, data: st.DataObject) -> None:
    """Of a tree that differs in one old leaf, neither its own proof nor the true one leads on."""
    old, size = min(old, size), max(old, size)
    changed = data.draw(st.integers(0, old - 1))
    forked = [*LEAVES[:changed], leaf_hash(b"another"), *LEAVES[changed + 1 : size]]
    for proof in (consistency_proof(old, forked), consistency_proof(old, LEAVES[:size])):
        with pytest.raises(ProofError):
            verify_consistency(old, ROOTS[old], size, root_of(forked), proof)


@given(st.integers(1, LARGEST), st.integers(1, LARGEST), st.data())
def test_a_changed_proof_is_refused(old: int, size: int, data: st.DataObject) -> None:
    old, size = min(old, size), max(old, size)
    proof = list(consistency_proof(old, LEAVES[:size]))
    change = data.draw(st.sampled_from(["longer", "shorter", "swapped", "flipped"]))
    at = data.draw(st.integers(0, max(0, len(proof) - 1)))
    if change == "longer":
        proof.insert(at, LEAVES[0])
    elif not proof:
        return
    elif change == "shorter":
        del proof[at]
    elif change == "flipped":
        proof[at] = Digest(bytes([proof[at][0] ^ 1]) + proof[at][1:])
    elif proof[at] != proof[-1]:
        proof[at], proof[-1] = proof[-1], proof[at]
    else:
        return
    with pytest.raises(ProofError):
        verify_consistency(old, ROOTS[old], size, ROOTS[size], proof)


@pytest.mark.parametrize(("old", "size"), [(-1, 4), (5, 4), (3, 2**63), (2**200, 2**200)], ids=str)
def test_sizes_that_no_tree_has_are_refused_at_once(old: int, size: int) -> None:
    with pytest.raises(ProofError):
        verify_consistency(old, ROOTS[3], size, ROOTS[4], [])
    with pytest.raises(ProofError):
        verify_inclusion(old, min(old, size), ROOTS[3], [], ROOTS[4])


def test_an_empty_old_tree_has_the_empty_root() -> None:
    verify_consistency(0, EMPTY_ROOT, 4, ROOTS[4], [])
    with pytest.raises(ProofError):
        verify_consistency(0, ROOTS[1], 4, ROOTS[4], [])
    with pytest.raises(ProofError):
        verify_consistency(0, EMPTY_ROOT, 0, ROOTS[1], [])
