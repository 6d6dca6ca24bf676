"""Search for the block that created a contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.chain.contract import abi
from ledger.chain.ports import ChainUnreachableError, NotServedError, TransactionRevertedError

if TYPE_CHECKING:
    from ledger.chain.ports import ChainReader


def creation_block(chain: ChainReader, address: str, newest: int) -> int | None:
    """Return the number of the first block after which a contract exists.

    A binary search, one request per halving: the contract cannot be destroyed, so it exists after
    every later block.

    Args:
        chain: the chain.
        address: EIP-55.
        newest: number of a final block.

    Returns:
        The number; None if the contract does not exist after `newest`, or the node has pruned old
        states.

    Raises:
        ChainUnreachableError: the node does not answer.
    """
    try:
        return _search(chain, address, newest)
    except ChainUnreachableError:
        raise
    except NotServedError:
        return None


def _search(chain: ChainReader, address: str, newest: int) -> int | None:
    if not _exists(chain, address, newest):
        return None
    before, after = -1, newest
    while after - before > 1:
        middle = (before + after) // 2
        if _exists(chain, address, middle):
            after = middle
        else:
            before = middle
    return after


def _exists(chain: ChainReader, address: str, block_number: int) -> bool:
    # Another contract reverts; an address without code gives an empty answer.
    try:
        return bool(chain.call(address, abi.call_data("deployment"), block_number))
    except TransactionRevertedError:
        return True
