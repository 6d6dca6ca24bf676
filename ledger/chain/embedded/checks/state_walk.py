"""A walk of a block's whole state: every account, every storage word, every contract's code.

Nodes are stored under their own hashes, so existing nodes are what the EVM wrote; the walk finds
missing ones. It reads the nodes itself, level by level with many per query, which is fast enough to
run whenever a chain is opened.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import rlp  # type: ignore[import-untyped]
from eth.constants import BLANK_ROOT_HASH, EMPTY_SHA3
from rlp.exceptions import RLPException  # type: ignore[import-untyped]

from ledger.chain.ports import ChainDamagedError
from ledger.protocol.keccak import keccak

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.chain.embedded.file.chain_store import ChainStore

_NODES_AT_ONCE = 500
_BRANCH_ITEMS = 17
_ACCOUNT_ITEMS = 4


@dataclass(slots=True)
class _References:
    """References that the nodes of the account trie contain."""

    storage_roots: set[bytes] = field(default_factory=set)
    codes: set[bytes] = field(default_factory=set)


def verify_state(store: ChainStore, state_root: bytes) -> None:
    """Verify that no part of a state is missing.

    Raises:
        ChainDamagedError: names what is missing or malformed.
    """
    references = _References()
    for leaf in _leaves(store, {state_root}, "the accounts of the newest block"):
        account = _decoded(leaf, store)
        if len(account) != _ACCOUNT_ITEMS:
            raise ChainDamagedError(f"{store.path}: the state has an invalid account")
        references.storage_roots.add(bytes(account[2]))
        references.codes.add(bytes(account[3]))
    storage = references.storage_roots - {BLANK_ROOT_HASH}
    for _ in _leaves(store, storage, "the contracts' storage at the newest block"):
        pass
    for _ in _read(store, references.codes - {EMPTY_SHA3}, "the contracts' code"):
        pass


def _leaves(store: ChainStore, roots: set[bytes], subject: str) -> Iterator[bytes]:
    """Yield the values of tries, after reading all of their nodes."""
    level, visited = roots, set(roots)
    while level:
        children: set[bytes] = set()
        for value in _read(store, level, subject):
            yield from _values(_decoded(value, store), children)
        level = children - visited
        visited |= level


def _values(node: list[Any], children: set[bytes]) -> Iterator[bytes]:
    """Yield the values of a node and its embedded children; add the hashes of the others."""
    if len(node) == _BRANCH_ITEMS:
        below, own = node[:-1], node[-1]
    elif _is_leaf(node):
        below, own = [], node[1]
    else:
        below, own = node[1:], b""
    for child in below:
        if isinstance(child, list):
            yield from _values(child, children)
        elif child:
            children.add(bytes(child))
    if own:
        yield bytes(own)


def _is_leaf(node: list[Any]) -> bool:
    path = node[0] if node else b""
    return isinstance(path, bytes) and bool(path) and path[0] & 0x20 != 0


def _decoded(encoded: bytes, store: ChainStore) -> list[Any]:
    try:
        node = rlp.decode(encoded)
    except RLPException as error:
        raise ChainDamagedError(f"{store.path}: the state has an invalid node") from error
    if not isinstance(node, list):
        raise ChainDamagedError(f"{store.path}: the state has an invalid node")
    return node


def _read(store: ChainStore, hashes: set[bytes], subject: str) -> Iterator[bytes]:
    ordered = sorted(hashes)
    for first in range(0, len(ordered), _NODES_AT_ONCE):
        keys = ordered[first : first + _NODES_AT_ONCE]
        placeholders = ", ".join("?" * len(keys))
        stored = dict(store.rows(f"SELECT key, value FROM kv WHERE key IN ({placeholders})", keys))  # noqa: S608
        for key in keys:
            value = stored.get(key)
            if value is None:
                raise ChainDamagedError(
                    f"{store.path}: 0x{key.hex()} is missing, part of {subject}"
                )
            if not isinstance(value, bytes) or keccak(value) != key:
                raise ChainDamagedError(
                    f"{store.path}: the value stored under 0x{key.hex()} has another hash, "
                    f"part of {subject}"
                )
            yield value
