"""Verification of the data that the next block needs.

In addition to the blocks py-evm stores a score for each block, the numbers that are missing, and
hashes by number. Readers of the ledger never look at these; altered ones would make a writer fail
inside the library. The state of the newest block is walked completely, as the next transaction may
touch any of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import rlp  # type: ignore[import-untyped]
from eth.db.schema import SchemaV1
from eth.rlp.sedes import chain_gaps
from rlp.exceptions import RLPException  # type: ignore[import-untyped]

from ledger.chain.embedded.checks.state_walk import verify_state
from ledger.chain.embedded.file import log_table
from ledger.chain.ports import BlockDamagedError, ChainDamagedError
from ledger.protocol.keccak import keccak

if TYPE_CHECKING:
    from eth.abc import BlockHeaderAPI

    from ledger.chain.embedded.file.chain_store import ChainStore

ANCESTORS = 256
"""Blocks whose hashes a contract may request."""

_GAPS = {
    SchemaV1.make_header_chain_gaps_lookup_key(): "headers",
    SchemaV1.make_chain_gaps_lookup_key(): "blocks",
}


def verify_can_extend(store: ChainStore, head: BlockHeaderAPI) -> None:
    """Verify that everything the next block needs is there.

    Raises:
        ChainDamagedError: names what is missing or wrong.
    """
    verify_score(store, head.block_number, head.hash)
    _verify_gaps(store, head.block_number)
    _verify_ancestors(store, head)
    verify_no_logs_beyond(store, head.block_number)
    verify_state(store, head.state_root)


def verify_score(store: ChainStore, number: int, block_hash: bytes) -> None:
    """Verify a block's score: since the merge, the sum of all block numbers up to its own.

    Raises:
        BlockDamagedError: it is missing or wrong.
    """
    score = store.get(SchemaV1.make_block_hash_to_score_lookup_key(block_hash))  # type: ignore[arg-type]
    if score != rlp.encode(number * (number + 1) // 2):
        raise BlockDamagedError(number, f"has {'no' if score is None else 'a wrong'} score")


def verify_no_logs_beyond(store: ChainStore, head: int) -> None:
    """Verify that the log table has no block after the newest.

    Raises:
        BlockDamagedError: names such a block.
    """
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
    """Verify that the newest blocks are stored under their numbers and hashes.

    Raises:
        BlockDamagedError: names one that is not.
    """
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
