"""Whether a chain can go on: what the next block will look up, checked before it does.

py-evm keeps beside the blocks what it needs to put the next one on top: a score for each block, the
numbers that it lacks, hashes by number. Nobody who reads a record looks at these, and altered they
end a writer in the middle of a library. The state of the newest block is walked whole, since the
next transaction may touch any of it.
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
"""So many blocks back a contract may ask for a hash."""

_GAPS = {
    SchemaV1.make_header_chain_gaps_lookup_key(): "headers",
    SchemaV1.make_chain_gaps_lookup_key(): "blocks",
}


def verify_can_extend(store: ChainStore, head: BlockHeaderAPI) -> None:
    """Accept a chain if all that its next block needs is there.

    Args:
        store: the chain file.
        head: its newest block.

    Raises:
        ChainDamagedError: names what is missing or wrong.
    """
    verify_score(store, head.block_number, head.hash)
    _verify_gaps(store, head.block_number)
    _verify_ancestors(store, head)
    verify_no_logs_beyond(store, head.block_number)
    verify_state(store, head.state_root)


def verify_score(store: ChainStore, number: int, block_hash: bytes) -> None:
    """Accept the score of a block: after the merge, the sum of all numbers up to its own.

    Args:
        store: the chain file.
        number: the block's.
        block_hash: the block's.

    Raises:
        BlockDamagedError: it is missing or another.
    """
    found = store.get(SchemaV1.make_block_hash_to_score_lookup_key(block_hash))  # type: ignore[arg-type]
    if found != rlp.encode(number * (number + 1) // 2):
        raise BlockDamagedError(number, f"has {'no' if found is None else 'a wrong'} score")


def verify_no_logs_beyond(store: ChainStore, head: int) -> None:
    """Accept a log table that knows no block after the newest.

    Args:
        store: the chain file.
        head: the newest block's number.

    Raises:
        BlockDamagedError: names a block that is not there.
    """
    beyond = store.rows(
        "SELECT id FROM logs WHERE id >= ? OR id < 0 LIMIT 1", (log_table.row_id(head + 1, 0),)
    )
    if beyond:
        raise BlockDamagedError(
            log_table.position(beyond[0][0])[0], "has logs but is not in the chain"
        )


def _verify_gaps(store: ChainStore, head: int) -> None:
    for key, what in _GAPS.items():
        found = store.get(key)
        # py-evm writes the first of them with block 1.
        if found != (rlp.encode(((), head + 1), sedes=chain_gaps) if head else None):
            raise ChainDamagedError(
                f"{store.path}: the list of missing {what} is not that of a chain of {head} blocks"
            )


def _verify_ancestors(store: ChainStore, head: BlockHeaderAPI) -> None:
    """Accept the newest blocks if each is filed under its number and its hash.

    Raises:
        BlockDamagedError: names one that is not.
    """
    expected: bytes = head.hash
    for number in range(head.block_number, max(head.block_number - ANCESTORS, -1), -1):
        found = store.get(SchemaV1.make_block_number_to_hash_lookup_key(number))  # type: ignore[arg-type]
        if found != rlp.encode(expected):
            raise BlockDamagedError(
                number, "is missing" if found is None else "is filed under another hash"
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
