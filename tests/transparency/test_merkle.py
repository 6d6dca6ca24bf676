"""Trees: roots, proofs, tiles and bundles, and files that lie."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.protocol.encoding import sha256
from ledger.protocol.types import Digest
from ledger.transparency import tree
from ledger.transparency.notes import Checkpoint, ProofError, TileError
from ledger.transparency.tree import (
    EMPTY_ROOT,
    MAX_ENTRIES,
    bundles_of,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    node_hash,
    read_entries,
    root_of,
    tiles_of,
    verify_consistency,
    verify_inclusion,
)
from tests.transparency.support import ORIGIN, checkpoint, entries

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


def paths_of(size: int) -> list[str]:
    leaf = leaf_hash(b"")
    return [path for path, _ in tiles_of([leaf] * size)]


def test_the_specifications_seventy_thousand_entries_have_its_tiles() -> None:
    paths = paths_of(70_000)
    level0 = [path for path in paths if path.startswith("tile/0/")]
    assert (len(level0), level0[-1]) == (274, "tile/0/273.p/112")
    assert [path for path in paths if path.startswith("tile/1/")] == [
        "tile/1/000",
        "tile/1/001.p/17",
    ]
    assert [path for path in paths if path.startswith("tile/2/")] == ["tile/2/000.p/1"]
    assert not [path for path in paths if path.startswith("tile/3/")]


def test_a_full_tile_is_a_hash_of_the_level_above() -> None:
    assert paths_of(256) == ["tile/0/000", "tile/1/000.p/1"]
    leaves = [leaf_hash(bytes([number])) for number in range(256)]
    (_, low), (_, high) = tiles_of(leaves)
    assert low == b"".join(leaves)
    assert high == root_of(leaves)
    assert paths_of(0) == []
    assert paths_of(1) == ["tile/0/000.p/1"]


def test_a_bundle_has_each_entry_after_its_length() -> None:
    [bundle] = bundles_of([b"", b"abc"])
    assert bundle == ("tile/entries/000.p/2", b"\x00\x00\x00\x03abc")


def files(count: int) -> dict[str, bytes]:
    own = entries(count)
    hashes = tiles_of([leaf_hash(entry) for entry in own])
    return dict([*hashes, *bundles_of(own)])


@pytest.mark.parametrize("count", [0, 1, 5, 256, 257, 600])
def test_the_entries_of_a_whole_log_are_read(count: int) -> None:
    assert read_entries(checkpoint(count).checkpoint, files(count).__getitem__) == entries(count)


@pytest.mark.parametrize("path", sorted(files(600)))
def test_a_file_that_does_not_hash_is_named(path: str) -> None:
    changed = files(600)
    changed[path] = changed[path][:-1] + bytes([changed[path][-1] ^ 1])
    with pytest.raises(TileError) as error:
        read_entries(checkpoint(600).checkpoint, changed.__getitem__)
    # Where an entry was changed, its tile is the first that it contradicts.
    assert path.replace("entries", "0") in str(error.value)


@pytest.mark.parametrize("damage", [b"", b"\x00", b"\xff\xff", b"\x00\x01", bytes(2 * 600)])
def test_what_is_no_bundle_is_named(damage: bytes) -> None:
    changed = files(5) | {"tile/entries/000.p/5": damage}
    with pytest.raises(TileError, match="entries/000"):
        read_entries(checkpoint(5).checkpoint, changed.__getitem__)


def test_a_log_of_huge_entries_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "MAX_LOG_BYTES", 100_000)
    held = files(1_000)
    asked: list[str] = []

    def read(path: str) -> bytes:
        asked.append(path)
        return held[path]

    with pytest.raises(TileError, match="over 100000 bytes"):
        read_entries(checkpoint(1_000).checkpoint, read)
    assert len(asked) < len([path for path in held if "entries" in path])


def test_a_log_of_huge_size_is_not_read() -> None:
    huge = Checkpoint(ORIGIN, MAX_ENTRIES + 1, checkpoint(1).checkpoint.root)
    with pytest.raises(TileError):
        read_entries(huge, lambda _: pytest.fail("it was read"))


def test_files_of_another_history_do_not_have_the_root() -> None:
    with pytest.raises(TileError, match="root"):
        read_entries(checkpoint(5, fork=3).checkpoint, files(5).__getitem__)
