"""Verification of a chain file: a quick one on opening, a full one for audits.

The full verification walks from genesis to the head and recomputes what a forger would have to
change. For each block it checks the header's hash, the link to its parent, and lookups by number
and by transaction. It also checks the transactions' root and signatures, the receipts' root, gas
and bloom, and the rows of the log table. A forger could rebuild all of this consistently. `execute`
finds such a forgery by executing the transactions again: no transaction leads to the forged state.

In addition to the blocks py-evm stores a score for each block, the numbers that are missing, and
hashes by number. Readers of the ledger never look at these; altered ones would make a writer fail
inside the library. The state of the newest block is walked completely, as the next transaction may
touch any of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import rlp  # type: ignore[import-untyped]
from eth.constants import BLANK_ROOT_HASH, EMPTY_SHA3
from eth.db.schema import SchemaV1
from eth.db.trie import make_trie_root_and_nodes
from eth.exceptions import PyEVMError
from eth.rlp.sedes import chain_gaps
from eth_bloom.bloom import BloomFilter
from eth_utils.exceptions import ValidationError
from rlp.exceptions import RLPException  # type: ignore[import-untyped]
from trie.exceptions import MissingTrieNode

from ledger.chain.embedded import chain_store, evm
from ledger.chain.embedded.chain_store import ChainStore, Overlay, TrieNodes
from ledger.chain.ports import BlockDamagedError, ChainDamagedError
from ledger.protocol.encoding import keccak

if TYPE_CHECKING:
    from eth import abc
    from eth.abc import BlockHeaderAPI as Header
    from eth.abc import SignedTransactionAPI as Signed


ANCESTORS = 256  # blocks whose hashes a contract may request

_GAPS = {
    SchemaV1.make_header_chain_gaps_lookup_key(): "headers",
    SchemaV1.make_chain_gaps_lookup_key(): "blocks",
}


def verify_can_extend(store: ChainStore, head: Header) -> None:
    """Verify that everything the next block needs is there."""
    _verify_score(store, head.block_number, head.hash)
    for key, kind in _GAPS.items():
        # py-evm writes the lists with block 1.
        number: int = head.block_number
        expected = rlp.encode(((), number + 1), sedes=chain_gaps) if number else None
        if store.get(key) != expected:
            fact = f"the list of missing {kind} is not that of a chain of {number} blocks"
            raise ChainDamagedError(f"{store.path}: {fact}")
    _verify_ancestors(store, head)
    end = chain_store.row_id(head.block_number + 1, 0)
    if beyond := store.rows("SELECT id FROM logs WHERE id >= ? OR id < 0 LIMIT 1", (end,)):
        number = chain_store.position(beyond[0][0])[0]
        raise BlockDamagedError(number, "has logs but is not in the chain")
    _verify_state(store, head.state_root)


def _verify_score(store: ChainStore, number: int, block_hash: bytes) -> None:
    """Verify a block's score: since the merge, the sum of all block numbers up to its own."""
    score = store.get(SchemaV1.make_block_hash_to_score_lookup_key(block_hash))  # type: ignore[arg-type]
    if score != rlp.encode(number * (number + 1) // 2):
        raise BlockDamagedError(number, f"has {'no' if score is None else 'a wrong'} score")


def _verify_ancestors(store: ChainStore, head: Header) -> None:
    expected: bytes = head.hash
    for number in range(head.block_number, max(head.block_number - ANCESTORS, -1), -1):
        stored = store.get(SchemaV1.make_block_number_to_hash_lookup_key(number))  # type: ignore[arg-type]
        if stored != rlp.encode(expected):
            fact = "is missing" if stored is None else "is filed under another hash"
            raise BlockDamagedError(number, fact)
        header = store.get(expected)
        if header is None or keccak(header) != expected:
            raise BlockDamagedError(number, f"lacks its header 0x{expected.hex()}")
        try:
            expected = bytes(rlp.decode(header)[0])
        except (RLPException, TypeError, IndexError) as error:
            raise BlockDamagedError(number, "has no header that can be read") from error
    following = SchemaV1.make_block_number_to_hash_lookup_key(head.block_number + 1)  # type: ignore[arg-type]
    if store.get(following) is not None:
        raise BlockDamagedError(head.block_number + 1, "is filed, but after the newest")


def _verify_state(store: ChainStore, state_root: bytes) -> None:
    values = Overlay(store)
    nodes = TrieNodes(values)
    roots, codes = set[bytes](), set[bytes]()
    with _part_named(store, "the accounts of the newest block"):
        for leaf in nodes.leaves(state_root):
            _, _, root, code = rlp.decode(leaf)
            roots.add(root)
            codes.add(code)
    with _part_named(store, "the contracts' storage at the newest block"):
        for root in roots - {BLANK_ROOT_HASH}:
            for _ in nodes.leaves(root):
                pass
    with _part_named(store, "the contracts' code"):
        for code in codes - {EMPTY_SHA3}:
            _ = values[code]


@contextlib.contextmanager
def _part_named(store: ChainStore, subject: str) -> Iterator[None]:
    try:
        yield
    except ChainDamagedError as error:
        raise ChainDamagedError(f"{error}, part of {subject}") from error
    except (KeyError, MissingTrieNode) as error:
        key: bytes = getattr(error, "missing_node_hash", error.args[0])
        fact = f"{store.path}: 0x{key.hex()} is missing, part of {subject}"
        raise ChainDamagedError(fact) from error
    except (RLPException, ValueError, TypeError, AttributeError, IndexError) as error:
        raise ChainDamagedError(f"{store.path}: invalid node, part of {subject}") from error


def verify_chain(
    store: ChainStore,
    chain_id: int,
    genesis_hash: bytes,
    *,
    execute: bool,
    progress: Callable[[int], None] | None,
) -> None:
    """Verify a whole chain; the writes of its blocks are never committed."""
    database = evm.OverlayDatabase(store)
    chain = evm.chain_class(chain_id, is_reference=True)(database)
    head = chain.get_canonical_head()
    parent: Header | None = None
    transactions = 0
    for number in range(head.block_number + 1):
        with _block_named(number):
            header = _header(chain, number)
            if parent is None and header.hash != genesis_hash:
                raise BlockDamagedError(0, "is not the recorded genesis")
            if parent is not None and header.parent_hash != parent.hash:
                raise BlockDamagedError(number, f"does not follow block {parent.block_number}")
            transactions += _verify_body(store, chain, header)
            _verify_score(store, number, header.hash)
            if execute and parent is not None:
                _verify_execution(store, database.pending, chain, header, parent)
        parent = header
        if progress is not None:
            progress(number)
    if parent is None or parent.hash != head.hash:
        raise BlockDamagedError(head.block_number, "is the head, but not filed under its number")
    verify_can_extend(store, head)
    _verify_remainder(store, head.block_number, transactions)


def _verify_remainder(store: ChainStore, head: int, transactions: int) -> None:
    for prefix, kind, expected in (
        (b"transaction-hash-to-block:", "transactions", transactions),
        (b"block-number-to-hash:", "block numbers", head + 1),
        (b"block-hash-to-score:", "scores", head + 1),
    ):
        bounds = (prefix, prefix[:-1] + b";")
        [(count,)] = store.rows("SELECT COUNT(*) FROM kv WHERE key >= ? AND key < ?", bounds)
        if count != expected:
            raise ChainDamagedError(f"{count} {kind} can be looked up, the blocks hold {expected}")
    for key, value in store.scan("SELECT key, value FROM kv WHERE length(key) = 32"):
        if not isinstance(value, bytes) or keccak(value) != key:
            raise ChainDamagedError(f"the value stored under 0x{bytes(key).hex()} has another hash")
    [(first,), *_] = store.rows("PRAGMA integrity_check(1)")
    if first != "ok":  # a page, or an index that disagrees with its table
        raise ChainDamagedError(f"{store.path}: {' '.join(str(first).split())[:200]}")


@contextlib.contextmanager
def _block_named(number: int) -> Iterator[None]:
    try:
        yield
    except BlockDamagedError:
        raise
    except ChainDamagedError as error:
        raise BlockDamagedError(number, str(error)) from error
    except evm.DAMAGE as error:
        summary = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        raise BlockDamagedError(number, f"cannot be read ({summary})") from error


def _header(chain: abc.MiningChainAPI, number: int) -> Header:
    try:
        header = chain.get_canonical_block_header_by_number(number)  # type: ignore[arg-type]
    except PyEVMError as error:
        raise BlockDamagedError(number, "is missing") from error
    if header.block_number != number:
        raise BlockDamagedError(number, f"is filed as block {header.block_number}")
    return header


def _verify_body(store: ChainStore, chain: abc.MiningChainAPI, header: Header) -> int:
    number = header.block_number
    machine = chain.get_vm_class(header)
    transactions = chain.chaindb.get_block_transactions(header, machine.get_transaction_builder())
    receipts = chain.chaindb.get_receipts(header, machine.get_receipt_builder())
    if make_trie_root_and_nodes(transactions)[0] != header.transaction_root:
        raise BlockDamagedError(number, "has other transactions than its header")
    if make_trie_root_and_nodes(receipts)[0] != header.receipt_root:
        raise BlockDamagedError(number, "has other receipts than its header")
    if len(transactions) != len(receipts):
        fact = f"has {len(transactions)} transactions, {len(receipts)} receipts"
        raise BlockDamagedError(number, fact)
    for index, transaction in enumerate(transactions):
        _verify_transaction(store, chain, (number, index), transaction)
    if header.gas_used != (receipts[-1].gas_used if receipts else 0):
        raise BlockDamagedError(number, "used other gas than its receipts")
    bloom = BloomFilter()
    for receipt in receipts:
        bloom |= receipt.bloom_filter
    if int(bloom) != header.bloom:
        raise BlockDamagedError(number, "has another bloom than its receipts")
    hashes = [bytes(transaction.hash) for transaction in transactions]
    _verify_logs(store, number, chain_store.rows_of_block(number, hashes, receipts))
    return len(transactions)


def _verify_transaction(
    store: ChainStore, chain: abc.MiningChainAPI, place: tuple[int, int], transaction: Signed
) -> None:
    number, shown = place[0], f"transaction 0x{transaction.hash.hex()}"
    if getattr(transaction, "chain_id", None) != chain.chain_id:
        raise BlockDamagedError(number, f"{shown} is signed for another chain")
    if not transaction.is_signature_valid:
        raise BlockDamagedError(number, f"{shown} has an invalid signature")
    # Compared as bytes: the decoder accepts an empty list as the number 0.
    position = store.get(SchemaV1.make_transaction_hash_to_block_lookup_key(transaction.hash))
    if position is None:
        raise BlockDamagedError(number, f"{shown} cannot be looked up")
    if position != rlp.encode(place):
        raise BlockDamagedError(number, f"{shown} is looked up elsewhere")


def _verify_logs(store: ChainStore, number: int, expected: Sequence[chain_store.LogRow]) -> None:
    query = f"SELECT {chain_store.COLUMNS} FROM logs WHERE id >= ? AND id < ? ORDER BY id"  # noqa: S608
    stored = store.rows(query, (chain_store.row_id(number, 0), chain_store.row_id(number + 1, 0)))
    for index, (row, expected_row) in enumerate(zip(stored, expected, strict=False)):
        if row != expected_row:
            raise BlockDamagedError(number, f"log {index} in the log table is not the receipt's")
    if len(stored) != len(expected):
        raise BlockDamagedError(number, f"has {len(expected)} logs, the log table {len(stored)}")


def _verify_execution(
    store: ChainStore,
    pending: dict[bytes, bytes | None],
    chain: abc.MiningChainAPI,
    header: Header,
    parent: Header,
) -> None:
    block = chain.get_block_by_header(header)
    fresh = chain.create_header_from_parent(parent).copy(gas_used=header.gas_used)
    try:
        executed = chain.get_vm(fresh).import_block(block).block.header
    except ValidationError as error:
        raise BlockDamagedError(header.block_number, "has content that the EVM rejects") from error
    fields = executed.as_dict()
    wrong = [str(name) for name, value in header.as_dict().items() if value != fields.get(name)]
    if wrong:
        fact = f"does not follow from its transactions: other {', '.join(wrong)}"
        raise BlockDamagedError(header.block_number, fact)
    for key, value in pending.items():
        if store.get(key) != value:
            raise BlockDamagedError(header.block_number, f"lacks its state 0x{key.hex()}")
    pending.clear()
