"""The state is read through cached nodes as py-evm's tries read it."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest
from eth.db.atomic import AtomicDB
from eth_typing import Address
from hypothesis import given
from hypothesis import strategies as st
from trie import HexaryTrie  # type: ignore[attr-defined]
from trie.exceptions import MissingTrieNode

from ledger.chain.addresses import to_canonical
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.embedded_reader import EmbeddedReader
from ledger.chain.embedded.engine import trie_nodes
from ledger.chain.embedded.engine.trie_nodes import FastAccountDB, TrieNodes
from ledger.chain.ports import ChainDamagedError
from tests.chain.probe import deploy, words

if TYPE_CHECKING:
    from pathlib import Path

# Few and similar bytes, so that keys share long prefixes, and short values, so that nodes lie
# within their parents.
similar = st.tuples(
    st.sampled_from([b"\0", b"\x10", b"\x01"]),
    st.integers(0, 30),
    st.sampled_from([b"\0", b"\x01", b"\x10", b"\x11", b"\xff"]),
).map(lambda parts: (parts[0] * parts[1] + parts[2]).ljust(32, b"\0"))
keys = st.one_of(similar, st.binary(min_size=32, max_size=32))
values = st.one_of(st.binary(min_size=1, max_size=2), st.binary(min_size=30, max_size=40))


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


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trie_nodes, "MOST_NODES", 5)
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
        state = chain._state(None)._account_db  # type: ignore[attr-defined]
        root = state._get_storage_root(to_canonical(probe))
        assert chain.storage(probe, 0) == 7
    connection = sqlite3.connect(path)
    with connection:
        assert connection.execute("DELETE FROM kv WHERE key = ?", (bytes(root),)).rowcount == 1
    connection.close()
    with EmbeddedReader.open(path) as reader, pytest.raises(ChainDamagedError, match="damaged"):
        reader.storage(probe, 0)
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
