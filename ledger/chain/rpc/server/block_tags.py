"""Blocks in requests: by number, by hash, or the newest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.chain.rpc import wire

if TYPE_CHECKING:
    from eth.abc import BlockHeaderAPI

    from ledger.chain.embedded.embedded_reader import EmbeddedReader

# Every block is final here, and none is pending.
_NEWEST = (None, "latest", "pending", "safe", "finalized")


def number_of(chain: EmbeddedReader, tag: object) -> int | None:
    """Return the number of an existing block; None for the newest.

    Args:
        chain: the chain.
        tag: a number or name, or an object (EIP-1898).

    Raises:
        RpcFault: there is no such block.
    """
    if isinstance(tag, dict) and "blockHash" in tag:
        number = chain.block_number_of(wire.data(tag["blockHash"], 32))
    else:
        number = requested_number(tag)
        if number is None or number <= chain.head().number:
            return number
        number = None
    if number is None:
        raise wire.RpcFault(wire.SERVER_ERROR, "header not found")
    return number


def requested_number(tag: object) -> int | None:
    """Return the number in a tag, whether or not the block exists; None for the newest.

    Raises:
        RpcFault: an object (EIP-1898) without a number.
    """
    if isinstance(tag, dict):
        if tag.get("blockNumber") is None:
            raise wire.RpcFault(wire.INVALID_PARAMETERS, "an object here needs a blockNumber")
        return requested_number(tag["blockNumber"])
    if tag in _NEWEST:
        return None
    return 0 if tag == "earliest" else wire.quantity(tag)


def header_at(chain: EmbeddedReader, tag: object) -> BlockHeaderAPI | None:
    """Return the header of a block by number or name; None if there is none."""
    number = requested_number(tag)
    if number is not None and number > chain.head().number:
        return None
    return chain.header(number)


def header_with(chain: EmbeddedReader, block_hash: object) -> BlockHeaderAPI | None:
    """Return the header of a block by hash; None if there is none."""
    number = chain.block_number_of(wire.data(block_hash, 32))
    return None if number is None else chain.header(number)
