"""Blocks made by the faster parts are executed again by py-evm's own."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
import rlp  # type: ignore[import-untyped]
from coincurve import PublicKey
from eth.db.atomic import AtomicDB
from eth.db.backends.memory import MemoryDB
from eth.db.batch import BatchDB
from eth.vm import opcode_values as op
from eth_keys.datatypes import PrivateKey
from eth_typing import Address
from hypothesis import example, given, settings
from hypothesis import strategies as st
from trie import HexaryTrie  # type: ignore[attr-defined]
from trie.exceptions import MissingTrieNode

from benchmarks.ledger import deployment_of
from ledger.chain.contract.rehearsal import RecordedRounds
from ledger.chain.embedded import chain_store, engine, evm
from ledger.chain.embedded.chain_store import TrieNodes
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.engine import FastAccountDB, LazyTrie
from ledger.chain.embedded.reader import EmbeddedReader
from ledger.chain.ports import BlockDamagedError, ChainDamagedError
from ledger.protocol.encoding import keccak, to_canonical
from tests.chain.embedded.engine.programs import SENDER, Arena, call
from tests.chain.probe import deploy, words
from tests.faults import times


def test_a_wrong_opcode_of_the_faster_loop_is_found_by_verify(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddedChain.create(tmp_path / "chain.sqlite", synchronous="NORMAL") as chain:
        probe = deploy(chain)
        chain.send(probe, words(7, 1), 200_000)
        chain.verify(execute=True)
        monkeypatch.setitem(engine._UNARY, op.ISZERO, lambda _: 0)
        engine.decoded.cache_clear()
        chain.send(probe, words(0, 1), 200_000)  # the probe refuses a 0
        engine.decoded.cache_clear()
        chain.verify()
        with pytest.raises(BlockDamagedError) as caught:
            chain.verify(execute=True)
        assert caught.value.block_number == 3


def test_rounds_of_the_contract_make_the_same_blocks(tmp_path: Path) -> None:
    made = []
    for is_reference in (False, True):
        path = tmp_path / f"{is_reference}.sqlite"
        with EmbeddedChain.create(path, synchronous="NORMAL", clock=lambda: 1.7e9) as chain:
            if is_reference:
                machine = evm.chain_class(chain.chain_id, is_reference=True)
                chain._chain = machine(chain._database)
            run = RecordedRounds(chain, deployment_of((), 4, 6, clients=20))
            for others in (False, True):
                run.commit(run.signed_commitments(run.active))
                run.decide(run.certified(other_repliers=others))
            run.commit(run.signed_commitments(run.active[::2]))
            run.abandon()
            made.append(list(chain._store.scan("SELECT key, value FROM kv ORDER BY key")))
    assert made[0] == made[1]


def test_the_reference_has_none_of_the_faster_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddedChain.create(tmp_path / "chain.sqlite", synchronous="NORMAL") as chain:
        chain.send(deploy(chain), words(7, 1), 200_000)

        def refuse(*_: object) -> None:
            raise AssertionError("a faster part is in use")

        for part in (
            engine.FastComputation,
            engine.BlockStream,
            engine.FastAccountDB,
        ):
            monkeypatch.setattr(part, "__init__", refuse)
        chain.verify(execute=True)
        with pytest.raises(AssertionError, match="a faster part is in use"):
            chain.call(chain.sender, b"")


ORDER = 0xFFFFFFFF_FFFFFFFF_FFFFFFFF_FFFFFFFE_BAAEDCE6_AF48A03B_BFD25E8C_D0364141
HALF = ORDER // 2
EDGES = st.sampled_from([0, 1, 2, HALF, HALF + 1, ORDER - 1, ORDER, ORDER + 1, 2**256 - 1])


def recovered(arena: Arena, data: bytes, gas: int = 3_000) -> bytes:
    """Call the contract with these bytes on both machines; return its answer."""
    code = COPIED + call(op.STATICCALL, 1, gas, 0, (0, len(data), 0x200, 32))
    return bytes(arena.compare(code, 50_000, data=data)["return data"])


COPIED = bytes([op.CALLDATASIZE, op.PUSH0, op.PUSH0, op.CALLDATACOPY])
"""It copies the message's data to the start of the memory."""

SIGNED = PrivateKey(b"\x05" * 32).sign_msg_hash(b"\x11" * 32)
SIGNED_INPUT = b"\x11" * 32 + words(SIGNED.v + 27, SIGNED.r, SIGNED.s)
CALLS = (op.CALL, op.CALLCODE, op.DELEGATECALL, op.STATICCALL)


@settings(max_examples=times(60, 5_000), deadline=None)
@given(
    calls=st.lists(
        st.builds(
            call,
            st.sampled_from([op.STATICCALL, *CALLS]),
            st.sampled_from([1, 1, 1, 2**160 + 1, 2]),
            st.sampled_from([0, 2_999, 3_000, 3_001, 2**256 - 1]),
            st.sampled_from([0, 0, 1, 3]),
            st.tuples(
                st.sampled_from([0, 0, 1, 2**255]),
                st.sampled_from([128, 128, 0, 127, 129, 500]),
                st.sampled_from([0, 0x80, 0x200, 2**255]),
                st.sampled_from([32, 32, 0, 1, 31, 33, 64]),
            ),
        ),
        min_size=1,
        max_size=4,
    ),
    v=st.sampled_from([SIGNED.v + 27, 28 - SIGNED.v + 27, 0, 29]),
    gas=st.one_of(st.just(90_000), st.integers(3_000, 13_000)),
    is_static=st.booleans(),
    depth=st.sampled_from([0, 0, 1023, 1024]),
)
def test_every_call_of_ecrecover_has_the_same_outcome(
    arena: Arena, calls: list[bytes], v: int, gas: int, is_static: bool, depth: int
) -> None:
    data = SIGNED_INPUT[:32] + words(v) + SIGNED_INPUT[64:]
    size = bytes([op.RETURNDATASIZE, op.MSIZE, op.GAS])
    code = COPIED + b"".join(each + size for each in calls)
    arena.compare(code, gas, data=data, is_static=is_static, depth=depth)


def test_gas_that_ends_within_ecrecover_has_the_same_outcome(arena: Arena) -> None:
    code = COPIED + call(op.STATICCALL, 1, 2**256 - 1, 0, (0, 128, 0x200, 32))
    used = arena.compare(code, 50_000, data=SIGNED_INPUT)["gas used"]
    # A call may spend 63 of 64 parts of the gas.
    for gas in (*range(used - 4, used + 4), *range(used + 40, used + 52)):
        arena.compare(code, gas, data=SIGNED_INPUT)


def test_a_plain_call_of_ecrecover_makes_no_computation(arena: Arena) -> None:
    state = arena.state(is_reference=False)
    context = state.get_transaction_context_class()(gas_price=1, origin=SENDER)

    def children(*opcodes: int) -> int:
        calls = (call(each, 1, 3_000, 0, (0, 128, 0x200, 32)) for each in opcodes)
        message = arena.message(COPIED + b"".join(calls), 50_000, data=SIGNED_INPUT)
        return len(state.computation_class.apply_message(state, message, context).children)

    assert children(op.STATICCALL, op.STATICCALL) == 0
    # The first call has touched the empty account.
    assert children(op.CALL, op.STATICCALL) == 2


def test_a_signature_gives_its_signers_address(arena: Arena) -> None:
    key, digest = PrivateKey(b"\x05" * 32), b"\x11" * 32
    signature = key.sign_msg_hash(digest)
    data = digest + words(signature.v + 27, signature.r, signature.s)
    address = key.public_key.to_canonical_address()
    assert recovered(arena, data) == address.rjust(32, b"\0")
    assert recovered(arena, data, 2_999) == b""
    # What is missing is zeros: of a truncated s it makes another signature.
    for length in (100, 120, 127):
        assert recovered(arena, data[:length]) not in {b"", address.rjust(32, b"\0")}
    # A high s is another signature of the same message; the contract takes it.
    other = digest + words(28 - signature.v, signature.r, ORDER - signature.s)
    assert recovered(arena, other) == address.rjust(32, b"\0")


def test_only_two_of_the_four_recovery_ids_are_taken(arena: Arena) -> None:
    signatures = (words(r, 1) for r in range(1, 50))
    signature = next(each for each in signatures if _recovers(each + b"\x02"))
    for v in (29, 30):
        assert recovered(arena, bytes(32) + words(v) + signature) == b""


def _recovers(signature: bytes) -> bool:
    try:
        PublicKey.from_signature_and_message(signature, bytes(32), hasher=None)
    except ValueError:
        return False
    return True


@settings(max_examples=times(60, 5_000), deadline=None)
@given(
    digest=st.binary(min_size=32, max_size=32),
    v=st.one_of(st.sampled_from([27, 28]), st.sampled_from([0, 1, 26, 29, 256 + 27, 2**255])),
    r=st.one_of(EDGES, st.integers(0, 2**256 - 1)),
    s=st.one_of(EDGES, st.integers(0, 2**256 - 1)),
    length=st.one_of(st.just(128), st.integers(0, 160)),
)
@example(digest=bytes(32), v=27, r=0, s=0, length=128)
@example(digest=bytes(32), v=27, r=1, s=1, length=128)
@example(digest=b"\xff" * 32, v=28, r=ORDER, s=1, length=128)
def test_any_input_gives_py_evms_answer(
    arena: Arena, digest: bytes, v: int, r: int, s: int, length: int
) -> None:
    recovered(arena, (digest + words(v, r, s)).ljust(160, b"\x07")[:length])


# Few and similar bytes, so that keys share long prefixes, and short values, so that nodes lie
# within their parents.
similar = st.tuples(
    st.sampled_from([b"\0", b"\x10", b"\x01"]),
    st.integers(0, 30),
    st.sampled_from([b"\0", b"\x01", b"\x10", b"\x11", b"\xff"]),
).map(lambda parts: (parts[0] * parts[1] + parts[2]).ljust(32, b"\0"))
keys = st.one_of(similar, st.binary(min_size=32, max_size=32))
values = st.one_of(st.binary(min_size=1, max_size=2), st.binary(min_size=30, max_size=40))


@settings(max_examples=times(100, 1_000), deadline=None)
@given(
    contents=st.dictionaries(keys, values, max_size=30),
    blocks=st.lists(
        st.lists(st.tuples(keys, st.one_of(st.just(b""), values)), max_size=12), max_size=3
    ),
    data=st.data(),
)
def test_changes_hashed_at_once_store_what_py_evms_trie_stores(
    contents: dict[bytes, bytes],
    blocks: list[list[tuple[bytes, bytes]]],
    data: st.DataObject,
) -> None:
    plain, lazy = MemoryDB(), MemoryDB()
    with HexaryTrie(plain, prune=True).squash_changes() as filled:
        for key, value in contents.items():
            filled[key] = value
    root = filled.root_hash
    lazy.kv_store.update(plain.kv_store)
    for changes in blocks:
        expected = HexaryTrie(plain, root)
        batch = BatchDB(lazy, read_through_deletes=True)
        trie = LazyTrie(TrieNodes(lazy), batch, root)
        # An earlier root leaves no node behind, as py-evm's pruning leaves none.
        early = data.draw(st.integers(0, len(changes)))
        with expected.squash_changes() as squashed:
            for number, (key, value) in enumerate(changes):
                if number == early:
                    assert trie.root_hash == squashed.root_hash
                squashed[key] = value
                if value or number % 2:
                    trie[key] = value
                else:
                    trie.delete(key)
            assert trie.root_hash == squashed.root_hash
        for key in (*contents, *(key for key, _ in changes)):
            assert trie[key] == expected[key]
        root = trie.root_hash
        batch.commit_to(lazy, apply_deletes=False)
        assert lazy.kv_store == plain.kv_store


def test_a_missing_node_fails_a_change() -> None:
    database = MemoryDB()
    trie = HexaryTrie(database)
    for number in range(40):
        trie[bytes([number] * 32)] = bytes([number]) * 33
    kept = {trie.root_hash: database[trie.root_hash]}
    for value in (b"", b"\x01"):
        rest = MemoryDB(dict(kept))
        batch = BatchDB(rest, read_through_deletes=True)
        lazy = LazyTrie(TrieNodes(rest), batch, trie.root_hash)
        with pytest.raises(MissingTrieNode):
            lazy[bytes([7] * 32)] = value


@given(contents=st.dictionaries(keys, values, max_size=30), absent=st.lists(keys, max_size=10))
def test_every_key_has_the_value_that_the_trie_says(
    contents: dict[bytes, bytes], absent: list[bytes]
) -> None:
    database: dict[bytes, bytes] = {}
    trie, nodes = HexaryTrie(database), TrieNodes(database)
    for key, value in contents.items():
        trie[key] = value
    for _ in range(2):
        for key in (*contents, *absent):
            assert nodes.value(trie.root_hash, key) == contents.get(key, b"") == trie[key]


@given(contents=st.dictionaries(keys, values, min_size=1, max_size=30))
def test_the_leaves_are_all_values_of_the_trie(contents: dict[bytes, bytes]) -> None:
    database: dict[bytes, bytes] = {}
    trie = HexaryTrie(database)
    for key, value in contents.items():
        trie[key] = value
    assert set(TrieNodes(database).leaves(trie.root_hash)) == set(contents.values())


def test_a_forgers_node_that_is_its_branchs_only_child_is_read_once() -> None:
    database: dict[bytes, bytes] = {}
    child: bytes = rlp.encode([b"\x20", b"leaf" * 10])
    for _ in range(60):
        database[keccak(child)] = child
        child = rlp.encode([keccak(child)] * 16 + [b""])
    database[keccak(child)] = child
    assert list(TrieNodes(database).leaves(keccak(child))) == [b"leaf" * 10]


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain_store, "MOST_NODES", 5)
    database: dict[bytes, bytes] = {}
    trie, nodes = HexaryTrie(database), TrieNodes(database)
    contents = {bytes([number] * 32): bytes([number]) * 33 for number in range(1, 60)}
    for key, value in contents.items():
        trie[key] = value
    for key, value in contents.items():
        assert nodes.value(trie.root_hash, key) == value
        assert 0 < len(nodes._nodes) <= 5


def test_a_missing_node_is_no_absent_value() -> None:
    database: dict[bytes, bytes] = {}
    trie = HexaryTrie(database)
    for number in range(40):
        trie[bytes([number] * 32)] = bytes([number]) * 33
    kept = trie.root_hash, database[trie.root_hash]
    database.clear()
    with pytest.raises(MissingTrieNode):
        TrieNodes(database).value(trie.root_hash, bytes(32))
    database[kept[0]] = kept[1]
    with pytest.raises(MissingTrieNode):
        TrieNodes(database).value(trie.root_hash, bytes([7] * 32))


def test_a_contracts_missing_storage_is_damage_and_no_zero(tmp_path: Path) -> None:
    path = tmp_path / "chain.sqlite"
    with EmbeddedChain.create(path, synchronous="NORMAL") as chain:
        probe = deploy(chain)
        chain.send(probe, words(7, 0), 200_000)
        root = chain._account(probe, None).storage_root
        assert chain._chain.get_vm().state.get_storage(to_canonical(probe), 0) == 7
    connection = sqlite3.connect(path)
    with connection:
        assert connection.execute("DELETE FROM kv WHERE key = ?", (bytes(root),)).rowcount == 1
    connection.close()
    with EmbeddedReader.open(path) as reader, pytest.raises(ChainDamagedError, match="damaged"):
        reader.call(probe, b"")


def test_a_block_in_progress_is_read_from_its_own_tries() -> None:
    account, slot = Address(b"\x05" * 20), 3
    database = AtomicDB()
    before = FastAccountDB(database)
    before.set_balance(account, 1)
    before.set_storage(account, slot, 2)
    before.persist()
    assert (before.get_balance(account), before.get_storage(account, slot)) == (1, 2)
    accounts = FastAccountDB(database, before.state_root)
    accounts.set_balance(account, 7)
    accounts.set_storage(account, slot, 8)
    accounts.make_state_root()
    accounts.discard(accounts.record())  # it empties py-evm's own caches
    assert (accounts.get_balance(account), accounts.get_storage(account, slot)) == (7, 8)
