"""JSON-RPC methods about blocks, transactions, receipts and gas prices."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, TypeAlias

from ledger.chain.embedded.machine.evm_values import base_fee, next_base_fee
from ledger.chain.rpc import wire
from ledger.chain.rpc.server import block_tags
from ledger.chain.rpc.server.block_json import (
    block_json,
    paid_price,
    receipt_json,
    transaction_json,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eth.abc import BlockHeaderAPI

    from ledger.chain.embedded.embedded_reader import EmbeddedReader
    from ledger.chain.rpc.server.transaction_pool import TransactionPool

Methods: TypeAlias = "dict[str, Callable[..., object]]"

_MOST_BLOCKS_OF_FEES = 1024
_MOST_PERCENTILES = 100
# Blob transactions are not accepted, so blob gas keeps its minimum price.
_BLOB_BASE_FEE = "0x1"


class BlockMethods:
    """Methods about blocks.

    Args:
        chain: the chain.
        pool: pending transactions; None if each transaction is mined at once.

    Attributes:
        table: the methods by name.
    """

    def __init__(self, chain: EmbeddedReader, pool: TransactionPool | None = None) -> None:
        self._chain = chain
        self._pool = pool
        self.table: Methods = {
            "eth_blockNumber": lambda: hex(chain.head().number),
            "eth_getTransactionByHash": self._transaction,
            "eth_getTransactionReceipt": self._receipt,
            "eth_getBlockReceipts": self._block_receipts,
            "eth_gasPrice": lambda: hex(next_base_fee(chain.header())),
            "eth_maxPriorityFeePerGas": lambda: "0x0",
            "eth_blobBaseFee": lambda: _BLOB_BASE_FEE,
            "eth_feeHistory": self._fee_history,
        }
        for name, find in (("Number", block_tags.header_at), ("Hash", block_tags.header_with)):
            self.table |= self._of_block(name, find)

    def _of_block(
        self, name: str, find: Callable[[EmbeddedReader, object], BlockHeaderAPI | None]
    ) -> Methods:
        """Return the methods whose name ends in one of two ways to address a block."""

        def block(where: object, whole: object = False) -> object:
            header = find(self._chain, where)
            if header is None:
                return None
            return block_json(header, self._chain.transactions(header), whole=whole is True)

        def count(where: object) -> object:
            header = find(self._chain, where)
            return None if header is None else hex(len(self._chain.transactions(header)))

        def transaction(where: object, index: object) -> object:
            header, position = find(self._chain, where), wire.quantity(index)
            transactions = () if header is None else self._chain.transactions(header)
            if header is None or position >= len(transactions):
                return None
            return transaction_json(header, position, transactions[position])

        def uncles(where: object) -> object:
            return None if find(self._chain, where) is None else "0x0"

        return {
            f"eth_getBlockBy{name}": block,
            f"eth_getBlockTransactionCountBy{name}": count,
            f"eth_getTransactionByBlock{name}AndIndex": transaction,
            f"eth_getUncleCountByBlock{name}": uncles,
        }

    def _transaction(self, transaction_hash: object) -> object:
        hash_ = wire.data(transaction_hash, 32)
        # The pool first: a transaction that has left it is mined by then.
        pending = None if self._pool is None else self._pool.find(hash_)
        if pending is not None:
            return transaction_json(None, None, pending)
        entry = self._chain.find(hash_)
        return None if entry is None else transaction_json(*entry)

    def _receipt(self, transaction_hash: object) -> object:
        entry = self._chain.find(wire.data(transaction_hash, 32))
        if entry is None:
            return None
        header, index, _ = entry
        return self._receipts_of(header)[index]

    def _block_receipts(self, tag: object) -> object:
        if isinstance(tag, dict) and "blockHash" in tag:
            header = block_tags.header_with(self._chain, tag["blockHash"])
        else:
            header = block_tags.header_at(self._chain, tag)
        return None if header is None else self._receipts_of(header)

    def _receipts_of(self, header: BlockHeaderAPI) -> list[dict[str, Any]]:
        transactions, raw = self._chain.transactions(header), self._chain.receipts(header)
        receipts = (self._chain.receipt(bytes(signed.hash)) for signed in transactions)
        return [
            receipt_json(header, index, signed, (raw[index], receipt))
            for index, (signed, receipt) in enumerate(zip(transactions, receipts, strict=True))
            if receipt is not None
        ]

    def _fee_history(self, count: object, newest: object, percentiles: object = None) -> object:
        blocks = count if type(count) is int else wire.quantity(count)
        last = block_tags.number_of(self._chain, newest)
        end = self._chain.header(last)
        shares = _read_percentiles(percentiles)
        number = min(max(blocks, 0), _MOST_BLOCKS_OF_FEES, end.block_number + 1)
        first = end.block_number - number + 1
        headers = [self._chain.header(height) for height in range(first, end.block_number + 1)]
        history: dict[str, Any] = {
            "oldestBlock": hex(first),
            "baseFeePerGas": [hex(base_fee(header)) for header in headers]
            + [hex(next_base_fee(end))],
            "gasUsedRatio": [header.gas_used / header.gas_limit for header in headers],
            "baseFeePerBlobGas": [_BLOB_BASE_FEE] * (number + 1),
            "blobGasUsedRatio": [0.0] * number,
        }
        if shares:
            history["reward"] = [
                [hex(tip) for tip in self._tips(header, shares)] for header in headers
            ]
        return history

    def _tips(self, header: BlockHeaderAPI, shares: Sequence[float]) -> list[int]:
        """Return the tip at each percentile of a block's gas."""
        paid: list[tuple[int, int]] = []
        before = 0
        for signed, receipt in zip(
            self._chain.transactions(header), self._chain.receipts(header), strict=True
        ):
            paid.append((paid_price(header, signed) - base_fee(header), receipt.gas_used - before))
            before = receipt.gas_used
        tips, sums = [0], [0]
        for tip, gas in sorted(paid):
            tips.append(tip)
            sums.append(sums[-1] + gas)
        last = len(tips) - 1
        return [
            tips[min(last, max(min(1, last), bisect_left(sums, share * before / 100)))]
            for share in shares
        ]


def _read_percentiles(percentiles: object) -> list[float]:
    """Return the requested percentiles, ascending.

    Raises:
        RpcFault: they are not ascending numbers from 0 to 100, or too many.
    """
    shares = wire.items([] if percentiles is None else percentiles)
    numbers = [share for share in shares if type(share) in {int, float} and 0 <= share <= 100]
    if len(numbers) < len(shares) or numbers != sorted(numbers):
        raise wire.RpcFault(wire.INVALID_PARAMETERS, "percentiles ascend from 0 to 100")
    if len(numbers) > _MOST_PERCENTILES:
        raise wire.RpcFault(wire.INVALID_PARAMETERS, f"over {_MOST_PERCENTILES} percentiles")
    return numbers
