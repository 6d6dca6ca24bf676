"""Verification of the data that the next block needs.

In addition to the blocks py-evm stores a score for each block, the numbers that are missing, and
hashes by number. Readers of the ledger never look at these; altered ones would make a writer fail
inside the library. The state of the newest block is walked completely, as the next transaction may
touch any of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import rlp  # type: ignore[import-untyped]
from eth.constants import BLANK_ROOT_HASH, EMPTY_SHA3
from eth.db.schema import SchemaV1
from eth.rlp.sedes import chain_gaps
from rlp.exceptions import RLPException  # type: ignore[import-untyped]

from ledger.chain.embedded.file import log_table
from ledger.chain.embedded.file.chain_store import ChainStore
from ledger.chain.ports import BlockDamagedError, ChainDamagedError
from ledger.protocol.keccak import keccak

if TYPE_CHECKING:
    from eth.abc import BlockHeaderAPI

ANCESTORS = 256
"""Blocks whose hashes a contract may request."""

_GAPS = {
    SchemaV1.make_header_chain_gaps_lookup_key(): "headers",
    SchemaV1.make_chain_gaps_lookup_key(): "blocks",
}


def verify_can_extend(store: ChainStore, head: BlockHeaderAPI) -> None:
    """Verify that everything the next block needs is there."""
    verify_score(store, head.block_number, head.hash)
    _verify_gaps(store, head.block_number)
    _verify_ancestors(store, head)
    verify_no_logs_beyond(store, head.block_number)
    verify_state(store, head.state_root)


def verify_score(store: ChainStore, number: int, block_hash: bytes) -> None:
    """Verify a block's score: since the merge, the sum of all block numbers up to its own."""
    score = store.get(SchemaV1.make_block_hash_to_score_lookup_key(block_hash))  # type: ignore[arg-type]
    if score != rlp.encode(number * (number + 1) // 2):
        raise BlockDamagedError(number, f"has {'no' if score is None else 'a wrong'} score")


def verify_no_logs_beyond(store: ChainStore, head: int) -> None:
    """Verify that the log table has no block after the newest."""
    beyond = store.rows(
        "SELECT id FROM logs WHERE id >= ? OR id < 0 LIMIT 1", (log_table.row_id(head + 1, 0),)
    )
    if beyond:
        raise BlockDamagedError(
            log_table.position(beyond[0][0])[0], "has logs but is not in the chain"
        )


def _verify_gaps(store: ChainStore, head: int) -> None:
    for key, kind in _GAPS.items():
        gaps = store.get(key)
        # py-evm writes the lists with block 1.
        if gaps != (rlp.encode(((), head + 1), sedes=chain_gaps) if head else None):
            raise ChainDamagedError(
                f"{store.path}: the list of missing {kind} is not that of a chain of {head} blocks"
            )


def _verify_ancestors(store: ChainStore, head: BlockHeaderAPI) -> None:
    """Verify that the newest blocks are stored under their numbers and hashes."""
    expected: bytes = head.hash
    for number in range(head.block_number, max(head.block_number - ANCESTORS, -1), -1):
        stored = store.get(SchemaV1.make_block_number_to_hash_lookup_key(number))  # type: ignore[arg-type]
        if stored != rlp.encode(expected):
            raise BlockDamagedError(
                number, "is missing" if stored is None else "is filed under another hash"
            )
        header = store.get(expected)
        if header is None or keccak(header) != expected:
            raise BlockDamagedError(number, f"lacks its header 0x{expected.hex()}")
        expected = _parent_hash(number, header)
    following = SchemaV1.make_block_number_to_hash_lookup_key(head.block_number + 1)  # type: ignore[arg-type]
    if store.get(following) is not None:
        raise BlockDamagedError(head.block_number + 1, "is filed, but after the newest")


def _parent_hash(number: int, header: bytes) -> bytes:
    try:
        return bytes(rlp.decode(header)[0])
    except (RLPException, TypeError, IndexError) as error:
        raise BlockDamagedError(number, "has no header that can be read") from error


_NODES_AT_ONCE = 500
_BRANCH_ITEMS = 17
_ACCOUNT_ITEMS = 4


@dataclass(slots=True)
class _References:
    """References that the nodes of the account trie contain."""

    storage_roots: set[bytes] = field(default_factory=set)
    codes: set[bytes] = field(default_factory=set)


def verify_state(store: ChainStore, state_root: bytes) -> None:
    """Verify that no part of a state is missing."""
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
