"""Decoded nodes of a chain's tries, cached by hash, and reads of the state through them.

A node's hash is that of its content, so a cached node is right for every block and both tries. Only
reads of the state as the last block left it go through the cache: py-evm's journals are in front of
it, and py-evm's tries write.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import rlp  # type: ignore[import-untyped]
from eth.constants import BLANK_ROOT_HASH
from eth.db.accesslog import KeyAccessLoggerDB
from eth.db.account import AccountDB
from eth.db.cache import CacheDB
from eth.db.journal import JournalDB
from eth.db.storage import AccountStorageDB, StorageLookup
from trie.exceptions import MissingTrieNode

from ledger.protocol.keccak import keccak

if TYPE_CHECKING:
    from eth.abc import AccountStorageDatabaseAPI, AtomicDatabaseAPI
    from eth.db.hash_trie import HashTrie
    from eth_typing import Address, Hash32

MOST_NODES = 8192
"""Nodes in a cache; one more empties it. At most some 20 MB."""

_BRANCH_ITEMS = 17

Node = tuple[Any, ...]


class TrieNodes:
    """The nodes of all tries of a database."""

    def __init__(self, database: Mapping[bytes, bytes]) -> None:
        """Begin with an empty cache.

        Args:
            database: encoded nodes by hash; it verifies them.
        """
        self._database = database
        self._nodes: dict[bytes, Node] = {}

    def value(self, root: bytes, key: bytes) -> bytes:
        """Return the value of a key; empty if there is none.

        Args:
            key: 32 bytes, as all keys of the trie.
        """
        path, depth = key.hex(), 0
        child: Any = b"" if root == BLANK_ROOT_HASH else root
        while child:
            node = child
            if isinstance(child, bytes):
                node = self._nodes.get(child) or self._read(child, root, key)
            if len(node) == _BRANCH_ITEMS:
                child = node[int(path[depth], 16)]
                depth += 1
                continue
            nibbles, is_leaf, child = node
            if is_leaf:
                return bytes(child) if path[depth:] == nibbles else b""
            if not path.startswith(nibbles, depth):
                return b""
            depth += len(nibbles)
        return b""

    def _read(self, hash_: bytes, root: bytes, key: bytes) -> Node:
        try:
            encoded = self._database[hash_]
        except KeyError as error:
            raise MissingTrieNode(hash_, root, key) from error  # type: ignore[arg-type]
        if len(self._nodes) >= MOST_NODES:
            self._nodes.clear()
        node = self._nodes[hash_] = _decoded(rlp.decode(encoded))
        return node


def _decoded(node: list[Any]) -> Node:
    """Return a branch as its 17 items, another node as (nibbles, whether it is a leaf, item).

    A child is a hash, or a short node itself.
    """
    if len(node) == _BRANCH_ITEMS:
        return tuple(_decoded(item) if isinstance(item, list) else item for item in node)
    path, item = node
    flags, digits = int(path.hex()[0], 16), path.hex()
    nibbles = digits[1:] if flags & 1 else digits[2:]
    return nibbles, bool(flags & 2), _decoded(item) if isinstance(item, list) else item


class FastAccountDB(AccountDB):
    """py-evm's accounts, of which those that no transaction has changed are read by the cache."""

    def __init__(self, db: AtomicDatabaseAPI, state_root: Hash32 = BLANK_ROOT_HASH) -> None:
        super().__init__(db, state_root)
        self._nodes: TrieNodes = getattr(db, "nodes", None) or TrieNodes(db)
        self._trie_logger = _Accounts(self._trie, self._nodes)
        self._trie_cache = CacheDB(self._trie_logger)
        self._journaltrie = JournalDB(self._trie_cache)

    def _get_address_store(self, address: Address) -> AccountStorageDatabaseAPI:
        if address not in self._account_stores:
            root = self._get_storage_root(address)
            store = _AccountStorage(self._raw_store_db, root, address, self._nodes)
            self._account_stores[address] = store
        return self._account_stores[address]


class _Accounts(KeyAccessLoggerDB):
    """The accounts' trie."""

    def __init__(self, trie: HashTrie, nodes: TrieNodes) -> None:
        super().__init__(trie, log_missing_keys=False)
        self._root = trie.root_hash
        self._nodes = nodes

    def __getitem__(self, key: bytes) -> bytes:
        # Another root is that of a block in progress, whose nodes are not in the database yet.
        if self.wrapped_db.root_hash == self._root:  # type: ignore[attr-defined]
            return self._nodes.value(self._root, keccak(key))
        return super().__getitem__(key)


class _AccountStorage(AccountStorageDB):
    def __init__(
        self, db: AtomicDatabaseAPI, storage_root: Hash32, address: Address, nodes: TrieNodes
    ) -> None:
        super().__init__(db, storage_root, address)
        self._storage_lookup = _Slots(db, storage_root, address, nodes)
        self._storage_cache = CacheDB(self._storage_lookup)
        self._locked_changes = JournalDB(self._storage_cache)
        self._journal_storage = JournalDB(self._locked_changes)


class _Slots(StorageLookup):
    def __init__(
        self, db: AtomicDatabaseAPI, storage_root: Hash32, address: Address, nodes: TrieNodes
    ) -> None:
        super().__init__(db, storage_root, address)
        self._nodes = nodes

    def __getitem__(self, key: bytes) -> bytes:
        if self.has_changed_root:
            return super().__getitem__(key)
        return self._nodes.value(self._starting_root_hash, self._decode_key(key))
