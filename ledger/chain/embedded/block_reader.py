"""Blocks of a chain file: headers, transactions, receipts, logs.

Every lookup is indexed, so its cost does not grow with the chain.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ledger.chain.addresses import to_canonical
from ledger.chain.embedded import evm, evm_values, integrity
from ledger.chain.embedded.file import log_table
from ledger.chain.embedded.file.chain_store import HEAD_KEY, ChainStore
from ledger.chain.ports import (
    Block,
    ChainDamagedError,
    Log,
    Receipt,
    TopicFilter,
    Transaction,
    WrongChainIdError,
    WrongGenesisError,
)
from ledger.protocol.errors import ChainError

if TYPE_CHECKING:
    from eth.abc import BlockHeaderAPI, ReceiptAPI, SignedTransactionAPI


class BlockReader:
    """The blocks of an open chain file. Safe to share between threads.

    Attributes:
        chain_id: the chain's EIP-155 id.
    """

    def __init__(self, store: ChainStore) -> None:
        evm.verify_fast_signatures()
        self._store = store
        self._lock = threading.RLock()
        meta = store.meta()
        with evm.damage_translated(store):
            self.chain_id = int(meta["chain_id"])
            self.genesis_hash = bytes.fromhex(meta["genesis_hash"])
            for name, written in (
                ("chain_id", str(self.chain_id)),
                ("genesis_hash", self.genesis_hash.hex()),
            ):
                if meta[name] != written:
                    what = name.replace("_", " ")
                    raise ChainDamagedError(
                        f"{store.path}: {meta[name][:80]!r} is not a canonical {what}"
                    )
            if meta["fork"] != evm.FORK:
                raise ChainError(f"{store.path}: runs {meta['fork']}, not {evm.FORK}")
            self._database = evm.OverlayDatabase(store)
            integrity.verify_head(self._database, self.genesis_hash)
            self._chain = evm.chain_class(self.chain_id)(self._database)
            self._newest_header = self._chain.get_canonical_head()

    @property
    def node(self) -> str | None:
        """None: no node answers."""
        return None

    def verify_identity(self, chain_id: int | None, genesis_hash: bytes | None) -> None:
        """Accept the expected chain; None accepts any id or block 0."""
        if chain_id is not None and chain_id != self.chain_id:
            raise WrongChainIdError(
                f"{self._store.path}: has chain id {self.chain_id}, expected {chain_id}"
            )
        if genesis_hash is not None and genesis_hash != self.genesis_hash:
            raise WrongGenesisError(
                f"{self._store.path}: begins with block 0x{self.genesis_hash.hex()}, "
                f"expected 0x{genesis_hash.hex()}"
            )

    def head(self) -> Block:
        with self._lock, evm.damage_translated(self._store):
            return evm_values.block(self._canonical_head())

    def finalized(self) -> int:
        """Return the head's number: blocks of this file are never reverted."""
        return self.head().number

    def block(self, number: int) -> Block:
        return evm_values.block(self.header(number))

    def header(self, number: int | None = None) -> BlockHeaderAPI:
        """Return the full header of a block, None for the head."""
        with self._lock, evm.damage_translated(self._store):
            head = self._canonical_head()
            if number is None or number == head.block_number:
                return head
            if not 0 <= number < head.block_number:
                raise ChainError(f"no block {number}; the head is {head.block_number}")
            header = self._chain.get_canonical_block_header_by_number(number)  # type: ignore[arg-type]
            if header.block_number != number:
                raise ChainDamagedError(
                    f"{self._store.path}: block {number} is filed as {header.block_number}"
                )
            return header

    def _canonical_head(self) -> BlockHeaderAPI:
        # Another process may have added blocks.
        if self._database.get(HEAD_KEY) != self._newest_header.hash:
            self._newest_header = self._chain.get_canonical_head()
        return self._newest_header

    def block_number_of(self, block_hash: bytes) -> int | None:
        """Return the number of the block with a hash; None if the chain has none."""
        with self._lock, evm.damage_translated(self._store):
            if not self._database.exists(block_hash):
                return None
            number = self._chain.get_block_header_by_hash(block_hash).block_number  # type: ignore[arg-type]
            return number if self.header(number).hash == block_hash else None

    def logs(
        self,
        address: str | None,
        topics: Sequence[TopicFilter],
        from_block: int,
        to_block: int,
        limit: int | None = None,
        *,
        descending: bool = False,
    ) -> list[Log]:
        """Return the logs that match, by an index; see `ChainReader.logs`."""
        contract = to_canonical(address) if address is not None else None
        query = log_table.select(
            contract, topics, from_block, to_block, limit=limit, descending=descending
        )
        if query is None:
            return []
        with self._lock, evm.damage_translated(self._store):
            rows = self._store.rows(*query)
            numbers = {log_table.position(row[0])[0] for row in rows}
            hashes = {number: self._hash(number) for number in numbers}
            return [evm_values.log_of_row(row, hashes) for row in rows]

    def _hash(self, number: int) -> bytes:
        return bytes(self._chain.get_canonical_block_hash(number))  # type: ignore[arg-type]

    def transaction(self, transaction_hash: bytes) -> Transaction:
        entry = self.find(transaction_hash)
        if entry is None:
            raise ChainError(f"there is no mined transaction 0x{transaction_hash.hex()}")
        header, _, signed = entry
        with evm.damage_translated(self._store):
            return evm_values.transaction(header, signed)

    def find(
        self, transaction_hash: bytes
    ) -> tuple[BlockHeaderAPI, int, SignedTransactionAPI] | None:
        """Return a transaction's header, index and EVM form; None until it is mined."""
        with self._lock, evm.damage_translated(self._store):
            key = integrity.transaction_key(transaction_hash)
            if not self._database.exists(key):
                return None
            number, index = self._chain.get_canonical_transaction_index(transaction_hash)  # type: ignore[arg-type]
            header = self.header(number)
            signed = self.transactions(header)[index]
            if signed.hash != transaction_hash:
                raise ChainDamagedError(
                    f"{self._store.path}: 0x{transaction_hash.hex()} leads to another transaction"
                )
            return header, index, signed

    def transaction_index(self, transaction_hash: bytes) -> int:
        """Return the index of a mined transaction in its block."""
        with self._lock, evm.damage_translated(self._store):
            return self._chain.get_canonical_transaction_index(transaction_hash)[1]  # type: ignore[arg-type]

    def transactions(self, header: BlockHeaderAPI) -> tuple[SignedTransactionAPI, ...]:
        """Return a block's transactions."""
        with self._lock, evm.damage_translated(self._store):
            builder = self._chain.get_vm_class(header).get_transaction_builder()
            return self._chain.chaindb.get_block_transactions(header, builder)

    def receipt(self, transaction_hash: bytes) -> Receipt | None:
        entry = self.find(transaction_hash)
        if entry is None:
            return None
        header, index, signed = entry
        with self._lock, evm.damage_translated(self._store):
            return evm_values.receipt(header, index, signed, self.receipts(header))

    def receipts(self, header: BlockHeaderAPI) -> tuple[ReceiptAPI, ...]:
        """Return a block's receipts."""
        with self._lock, evm.damage_translated(self._store):
            builder = self._chain.get_vm_class(header).get_receipt_builder()
            return self._chain.chaindb.get_receipts(header, builder)

    def close(self) -> None:
        """Close the file."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
