"""Walking the whole state of a block: every account, every storage word, every contract's code.

Nodes are filed under their own hash, so what is there is what the EVM wrote; what this finds out
is whether all of it is there. The walk reads nodes itself instead of through py-evm, level by
level with many nodes to a query, so that opening a chain can afford it.
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
class _Found:
    """What the nodes of the accounts' trie lead to."""

    storage_roots: set[bytes] = field(default_factory=set)
    codes: set[bytes] = field(default_factory=set)


def verify_state(store: ChainStore, state_root: bytes) -> None:
    """Accept a state of which nothing is missing.

    Args:
        store: the chain file.
        state_root: of the block.

    Raises:
        ChainDamagedError: names what is missing, or no node of a state.
    """
    found = _Found()
    for leaf in _leaves(store, {state_root}, "the accounts of the newest block"):
        account = _decoded(leaf, store)
        if len(account) != _ACCOUNT_ITEMS:
            raise ChainDamagedError(f"{store.path}: the state holds what is no account")
        found.storage_roots.add(bytes(account[2]))
        found.codes.add(bytes(account[3]))
    storage = found.storage_roots - {BLANK_ROOT_HASH}
    for _ in _leaves(store, storage, "the contracts' storage at the newest block"):
        pass
    for _ in _read(store, found.codes - {EMPTY_SHA3}, "the contracts' code"):
        pass


def _leaves(store: ChainStore, roots: set[bytes], whose: str) -> Iterator[bytes]:
    """Yield the values of tries, after reading all of their nodes."""
    level, seen = roots, set(roots)
    while level:
        children: set[bytes] = set()
        for value in _read(store, level, whose):
            yield from _values(_decoded(value, store), children)
        level = children - seen
        seen |= level


def _values(node: list[Any], children: set[bytes]) -> Iterator[bytes]:
    """Yield a node's values, its short children's too; add the hashes of the others."""
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
        raise ChainDamagedError(f"{store.path}: the state holds what is no node") from error
    if not isinstance(node, list):
        raise ChainDamagedError(f"{store.path}: the state holds what is no node")
    return node


def _read(store: ChainStore, hashes: set[bytes], whose: str) -> Iterator[bytes]:
    wanted = sorted(hashes)
    for first in range(0, len(wanted), _NODES_AT_ONCE):
        keys = wanted[first : first + _NODES_AT_ONCE]
        places = ", ".join("?" * len(keys))
        found = dict(store.rows(f"SELECT key, value FROM kv WHERE key IN ({places})", keys))  # noqa: S608
        for key in keys:
            value = found.get(key)
            if value is None:
                raise ChainDamagedError(f"{store.path}: 0x{key.hex()} is missing, part of {whose}")
            if not isinstance(value, bytes) or keccak(value) != key:
                raise ChainDamagedError(
                    f"{store.path}: what is filed under 0x{key.hex()} has another hash, "
                    f"part of {whose}"
                )
            yield value
