"""Blocks, transactions and receipts of the embedded chain in the form of JSON-RPC."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rlp  # type: ignore[import-untyped]
from eth.abc import BlockHeaderAPI, ReceiptAPI, SignedTransactionAPI

from ledger.chain.addresses import checksum
from ledger.chain.embedded.evm import base_fee
from ledger.chain.ports import Receipt
from ledger.chain.rpc import wire

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
    """Return a transaction's receipt, given the receipt of the EVM and the port's value."""
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
    fields = rlp.decode(rlp.encode(header))
    return len(rlp.encode([fields, [signed.encode() for signed in transactions], [], []]))
