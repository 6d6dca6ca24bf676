"""Conversion of py-evm's values to port values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from eth.exceptions import Revert, VMError
from eth.vm.forks.london.headers import calculate_expected_base_fee_per_gas

from ledger.chain.addresses import checksum, contract_created_by
from ledger.chain.embedded.file import log_table
from ledger.chain.embedded.file.log_table import LogRow
from ledger.chain.ports import Block, Log, Receipt, Transaction

if TYPE_CHECKING:
    from eth.abc import BlockHeaderAPI, ReceiptAPI, SignedTransactionAPI


def revert_data(error: VMError) -> bytes:
    """Return a contract's revert data; empty for any other error."""
    argument = error.args[0] if isinstance(error, Revert) and error.args else b""
    return argument if isinstance(argument, bytes) else b""


def base_fee(header: BlockHeaderAPI) -> int:
    """Return the base fee of a block, in wei per gas."""
    return header.base_fee_per_gas or 0


def next_base_fee(header: BlockHeaderAPI) -> int:
    """Return the base fee of the next block, in wei per gas."""
    return int(calculate_expected_base_fee_per_gas(header))


def block(header: BlockHeaderAPI) -> Block:
    """Return a header as a port value."""
    return Block(
        number=header.block_number,
        hash=bytes(header.hash),
        parent_hash=bytes(header.parent_hash),
        timestamp=header.timestamp,
    )


def log_of_row(row: LogRow, block_hashes: Mapping[int, bytes]) -> Log:
    """Return a row of the log table as a port value."""
    identifier, transaction_hash, address, *topics, data = row
    block_number, log_index = log_table.position(identifier)
    return Log(
        address=checksum(address),
        topics=tuple(topic for topic in topics if topic is not None),
        data=data,
        block_number=block_number,
        block_hash=block_hashes[block_number],
        transaction_hash=transaction_hash,
        log_index=log_index,
    )


def receipt(
    header: BlockHeaderAPI,
    index: int,
    signed: SignedTransactionAPI,
    receipts: Sequence[ReceiptAPI],
) -> Receipt:
    """Return a receipt as a port value.

    Args:
        receipts: of the whole block, as each counts gas and logs from the block's start.
    """
    first = sum(len(earlier.logs) for earlier in receipts[:index])
    rows = log_table.rows_of_receipt(
        header.block_number, first, bytes(signed.hash), receipts[index]
    )
    hashes: dict[int, bytes] = {header.block_number: bytes(header.hash)}
    contract = None if signed.to else contract_created_by(bytes(signed.sender), signed.nonce)
    return Receipt(
        transaction_hash=bytes(signed.hash),
        block_number=header.block_number,
        status=1 if receipts[index].state_root == b"\x01" else 0,
        gas_used=receipts[index].gas_used - (receipts[index - 1].gas_used if index else 0),
        contract_address=checksum(contract) if contract else None,
        logs=tuple(log_of_row(row, hashes) for row in rows),
    )


def transaction(header: BlockHeaderAPI, signed: SignedTransactionAPI) -> Transaction:
    """Return a transaction as a port value."""
    return Transaction(
        hash=bytes(signed.hash),
        sender=checksum(bytes(signed.sender)),
        to=checksum(bytes(signed.to)) if signed.to else None,
        input=bytes(signed.data),
        block_number=header.block_number,
        nonce=signed.nonce,
    )
