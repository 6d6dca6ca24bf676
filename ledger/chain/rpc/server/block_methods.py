"""Methods that show blocks, their transactions and receipts, and what gas costs."""

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
# No transaction with blobs is taken, so that their gas stays at its least price.
_BLOB_BASE_FEE = "0x1"


class BlockMethods:
    """Answers about blocks.

    Args:
        chain: the chain.
        pool: transactions that wait for a block; None where none waits.

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
        """Return the methods that name their block in one of two ways."""

        def block(where: object, whole: object = False) -> object:
            found = find(self._chain, where)
            if found is None:
                return None
            return block_json(found, self._chain.transactions(found), whole=whole is True)

        def count(where: object) -> object:
            found = find(self._chain, where)
            return None if found is None else hex(len(self._chain.transactions(found)))

        def transaction(where: object, index: object) -> object:
            found, place = find(self._chain, where), wire.quantity(index)
            held = () if found is None else self._chain.transactions(found)
            if found is None or place >= len(held):
                return None
            return transaction_json(found, place, held[place])

        def uncles(where: object) -> object:
            return None if find(self._chain, where) is None else "0x0"

        return {
            f"eth_getBlockBy{name}": block,
            f"eth_getBlockTransactionCountBy{name}": count,
            f"eth_getTransactionByBlock{name}AndIndex": transaction,
            f"eth_getUncleCountByBlock{name}": uncles,
        }

    def _transaction(self, transaction_hash: object) -> object:
        asked = wire.data(transaction_hash, 32)
        # The pool first: what it has no more, a block holds by then.
        waiting = None if self._pool is None else self._pool.find(asked)
        if waiting is not None:
            return transaction_json(None, None, waiting)
        found = self._chain.find(asked)
        return None if found is None else transaction_json(*found)

    def _receipt(self, transaction_hash: object) -> object:
        found = self._chain.find(wire.data(transaction_hash, 32))
        if found is None:
            return None
        header, index, _ = found
        return self._receipts_of(header)[index]

    def _block_receipts(self, tag: object) -> object:
        if isinstance(tag, dict) and "blockHash" in tag:
            header = block_tags.header_with(self._chain, tag["blockHash"])
        else:
            header = block_tags.header_at(self._chain, tag)
        return None if header is None else self._receipts_of(header)

    def _receipts_of(self, header: BlockHeaderAPI) -> list[dict[str, Any]]:
        held, raw = self._chain.transactions(header), self._chain.receipts(header)
        shown = (self._chain.receipt(bytes(signed.hash)) for signed in held)
        return [
            receipt_json(header, index, signed, (raw[index], receipt))
            for index, (signed, receipt) in enumerate(zip(held, shown, strict=True))
            if receipt is not None
        ]

    def _fee_history(self, count: object, newest: object, percentiles: object = None) -> object:
        blocks = count if type(count) is int else wire.quantity(count)
        last = block_tags.number_of(self._chain, newest)
        end = self._chain.header(last)
        shares = _read_percentiles(percentiles)
        number = min(max(blocks, 0), _MOST_BLOCKS_OF_FEES, end.block_number + 1)
        first = end.block_number - number + 1
        headers = [self._chain.header(one) for one in range(first, end.block_number + 1)]
        history: dict[str, Any] = {
            "oldestBlock": hex(first),
            "baseFeePerGas": [hex(base_fee(one)) for one in headers] + [hex(next_base_fee(end))],
            "gasUsedRatio": [one.gas_used / one.gas_limit for one in headers],
            "baseFeePerBlobGas": [_BLOB_BASE_FEE] * (number + 1),
            "blobGasUsedRatio": [0.0] * number,
        }
        if shares:
            history["reward"] = [
                [hex(tip) for tip in self._tips(header, shares)] for header in headers
            ]
        return history

    def _tips(self, header: BlockHeaderAPI, shares: Sequence[float]) -> list[int]:
        """Return the tip up to which so many percent of a block's gas were paid, for each share."""
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
    """Return the percentiles that are asked for, ascending.

    Raises:
        RpcFault: they are no ascending numbers from 0 to 100, or too many.
    """
    shares = wire.items([] if percentiles is None else percentiles)
    numbers = [share for share in shares if type(share) in {int, float} and 0 <= share <= 100]
    if len(numbers) < len(shares) or numbers != sorted(numbers):
        raise wire.RpcFault(wire.INVALID_PARAMETERS, "percentiles ascend from 0 to 100")
    if len(numbers) > _MOST_PERCENTILES:
        raise wire.RpcFault(wire.INVALID_PARAMETERS, f"over {_MOST_PERCENTILES} percentiles")
    return numbers
