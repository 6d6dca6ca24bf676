"""JSON-RPC methods about blocks, transactions, receipts and gas prices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import rlp  # type: ignore[import-untyped]

from ledger.chain.addresses import checksum
from ledger.chain.embedded.evm_values import base_fee, next_base_fee
from ledger.chain.rpc import wire
from ledger.chain.rpc.server import block_tags

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eth.abc import BlockHeaderAPI, ReceiptAPI, SignedTransactionAPI

    from ledger.chain.embedded.embedded_reader import EmbeddedReader
    from ledger.chain.ports import Receipt
    from ledger.chain.rpc.server.transaction_pool import TransactionPool

Methods: TypeAlias = "dict[str, Callable[..., object]]"


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
            "eth_gasPrice": lambda: hex(next_base_fee(chain.header())),
            "eth_maxPriorityFeePerGas": lambda: "0x0",
            "eth_feeHistory": self._fee_history,
            "eth_getBlockByNumber": lambda tag, whole=False: self._block(
                block_tags.header_at(chain, tag), whole=whole is True
            ),
            "eth_getBlockByHash": lambda block_hash, whole=False: self._block(
                block_tags.header_with(chain, block_hash), whole=whole is True
            ),
        }

    def _block(self, header: BlockHeaderAPI | None, *, whole: bool) -> object:
        if header is None:
            return None
        return block_json(header, self._chain.transactions(header), whole=whole)

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
        header, index, signed = entry
        receipt = self._chain.receipt(bytes(signed.hash))
        if receipt is None:
            return None
        raw = self._chain.receipts(header)[index]
        return receipt_json(header, index, signed, (raw, receipt))

    def _fee_history(self, *_: object) -> object:
        """Return the newest block alone, with no tips: wallets estimate the next fee from it."""
        end = self._chain.header()
        return {
            "oldestBlock": hex(end.block_number),
            "baseFeePerGas": [hex(base_fee(end)), hex(next_base_fee(end))],
            "gasUsedRatio": [end.gas_used / end.gas_limit],
            "reward": [["0x0"]],
        }


_ACCESS_LIST_TYPE = 1


def block_json(
    header: BlockHeaderAPI, transactions: Sequence[SignedTransactionAPI], *, whole: bool
) -> dict[str, Any]:
    """Return a block, with whole transactions or only their hashes."""
    return {
        **header_json(header),
        "size": hex(_size(header, transactions)),
        "uncles": [],
        "withdrawals": [],
        "transactions": [
            transaction_json(header, index, signed) if whole else wire.to_hex(signed.hash)
            for index, signed in enumerate(transactions)
        ],
    }


def header_json(header: BlockHeaderAPI) -> dict[str, Any]:
    """Return a header with all 21 fields of its hash."""
    h: Any = header  # py-evm's interface ends at an older fork
    return {
        "number": hex(h.block_number),
        "hash": wire.to_hex(h.hash),
        "parentHash": wire.to_hex(h.parent_hash),
        "sha3Uncles": wire.to_hex(h.uncles_hash),
        "miner": checksum(h.coinbase),
        "stateRoot": wire.to_hex(h.state_root),
        "transactionsRoot": wire.to_hex(h.transaction_root),
        "receiptsRoot": wire.to_hex(h.receipt_root),
        "logsBloom": wire.to_hex(h.bloom.to_bytes(256, "big")),
        "difficulty": hex(h.difficulty),
        "gasLimit": hex(h.gas_limit),
        "gasUsed": hex(h.gas_used),
        "timestamp": hex(h.timestamp),
        "extraData": wire.to_hex(h.extra_data),
        "mixHash": wire.to_hex(h.mix_hash),
        "nonce": wire.to_hex(h.nonce),
        "baseFeePerGas": hex(h.base_fee_per_gas),
        "withdrawalsRoot": wire.to_hex(h.withdrawals_root),
        "blobGasUsed": hex(h.blob_gas_used),
        "excessBlobGas": hex(h.excess_blob_gas),
        "parentBeaconBlockRoot": wire.to_hex(h.parent_beacon_block_root),
        "requestsHash": wire.to_hex(h.requests_hash),
    }


def transaction_json(
    header: BlockHeaderAPI | None, index: int | None, signed: SignedTransactionAPI
) -> dict[str, Any]:
    """Return a transaction; header and index are None while it is pending."""
    fees = {
        "maxFeePerGas": hex(signed.max_fee_per_gas),
        "maxPriorityFeePerGas": hex(signed.max_priority_fee_per_gas),
    }
    return {
        "hash": wire.to_hex(signed.hash),
        "type": hex(signed.type_id or 0),
        "chainId": hex(signed.chain_id or 0),
        "nonce": hex(signed.nonce),
        "blockHash": None if header is None else wire.to_hex(header.hash),
        "blockNumber": None if header is None else hex(header.block_number),
        "transactionIndex": None if index is None else hex(index),
        "from": checksum(bytes(signed.sender)),
        "to": checksum(bytes(signed.to)) if signed.to else None,
        "value": hex(signed.value),
        "gas": hex(signed.gas),
        "gasPrice": hex(signed.max_fee_per_gas if header is None else paid_price(header, signed)),
        **({} if signed.type_id == _ACCESS_LIST_TYPE else fees),
        "input": wire.to_hex(signed.data),
        "accessList": [
            {
                "address": checksum(bytes(address)),
                "storageKeys": [wire.to_hex(slot.to_bytes(32, "big")) for slot in slots],
            }
            for address, slots in signed.access_list
        ],
        "yParity": hex(signed.y_parity),
        "v": hex(signed.y_parity),
        "r": hex(signed.r),
        "s": hex(signed.s),
    }


def receipt_json(
    header: BlockHeaderAPI,
    index: int,
    signed: SignedTransactionAPI,
    receipts: tuple[ReceiptAPI, Receipt],
) -> dict[str, Any]:
    """Return a transaction's receipt.

    Args:
        header: the block's.
        index: of the transaction in the block.
        signed: the transaction.
        receipts: its receipt from the EVM, and as a port value.
    """
    raw, receipt = receipts
    return {
        "transactionHash": wire.to_hex(receipt.transaction_hash),
        "transactionIndex": hex(index),
        "blockHash": wire.to_hex(header.hash),
        "blockNumber": hex(receipt.block_number),
        "from": checksum(bytes(signed.sender)),
        "to": checksum(bytes(signed.to)) if signed.to else None,
        "cumulativeGasUsed": hex(raw.gas_used),
        "gasUsed": hex(receipt.gas_used),
        "effectiveGasPrice": hex(paid_price(header, signed)),
        "contractAddress": receipt.contract_address,
        "logs": [wire.log_json(entry, index) for entry in receipt.logs],
        "logsBloom": wire.to_hex(raw.bloom.to_bytes(256, "big")),
        "status": hex(receipt.status),
        "type": hex(signed.type_id or 0),
    }


def paid_price(header: BlockHeaderAPI, signed: SignedTransactionAPI) -> int:
    """Return the price that a transaction paid per gas, in wei."""
    return min(base_fee(header) + signed.max_priority_fee_per_gas, signed.max_fee_per_gas)


def _size(header: BlockHeaderAPI, transactions: Sequence[SignedTransactionAPI]) -> int:
    """Return the RLP length of the whole block."""
    fields = rlp.decode(rlp.encode(header))
    return len(rlp.encode([fields, [signed.encode() for signed in transactions], [], []]))
