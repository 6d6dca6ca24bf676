"""The block that created a contract, found where nobody has kept it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.chain.contract import abi
from ledger.chain.ports import ChainUnreachableError, NotServedError, TransactionRevertedError

if TYPE_CHECKING:
    from ledger.chain.ports import ChainReader


def creation_block(chain: ChainReader, address: str, newest: int) -> int | None:
    """Return the first block after which a contract is there.

    About one request for each doubling of the number of blocks. No contract of ours ever goes away
    again, so that it is there after every later block.

    Args:
        chain: where it is.
        address: EIP-55.
        newest: a final block; what is created later may still be created elsewhere.

    Returns:
        Its number; None if the contract is not there after `newest`, or if the node does not keep
        the state of blocks that are long past.

    Raises:
        ChainUnreachableError: nobody answers.
    """
    try:
        return _found(chain, address, newest)
    except ChainUnreachableError:
        raise
    except NotServedError:
        return None


def _found(chain: ChainReader, address: str, newest: int) -> int | None:
    if not _is_there(chain, address, newest):
        return None
    before, after = -1, newest
    while after - before > 1:
        middle = (before + after) // 2
        if _is_there(chain, address, middle):
            after = middle
        else:
            before = middle
    return after


def _is_there(chain: ChainReader, address: str, block_number: int) -> bool:
    # A contract that does not know the call reverts; where none is, the answer is empty.
    try:
        return bool(chain.call(address, abi.call_data("deployment"), block_number))
    except TransactionRevertedError:
        return True
