"""The embedded chain: an EVM in this process over one SQLite file, opened by its one writer.

A block holds one transaction, or none, and is on disk when `send` or `mine` returns: a process
killed at any moment loses nothing that it had acknowledged.

There is no consensus here, so a block proves no more than that somebody could write the file; what
the ledger's records prove rests on the clients' signatures and on the audit. `verify` says whether
the file still is what the EVM made.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from eth.exceptions import PyEVMError
from eth_hash.auto import keccak
from eth_keys.datatypes import PrivateKey
from eth_typing import Address
from rlp.exceptions import RLPException  # type: ignore[import-untyped]

from ledger.chain.addresses import to_canonical
from ledger.chain.embedded import evm, log_table
from ledger.chain.embedded.accounts import GENESIS_BALANCE_WEI, TEST_KEYS, address_of
from ledger.chain.embedded.evm_values import base_fee
from ledger.chain.embedded.reader import EmbeddedReader
from ledger.chain.embedded.store import SCHEMA_VERSION, Store, Synchronous
from ledger.chain.embedded.writer_lock import WriterLock
from ledger.chain.ports import (
    ChainDamagedError,
    Receipt,
    TransactionRefusedError,
    TransactionRevertedError,
    WrongChainIdError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from eth.abc import ComputationAPI, SignedTransactionAPI

DEFAULT_CHAIN_ID = 0x434D464C
"""The letters CMFL: of no public chain, so that no transaction can be replayed on one."""

SALT_BITS = 22

DEFAULT_GAS_LIMIT = 200_000_000

_MALFORMED = (TypeError, ValueError, RecursionError)
_TRANSACTION_TYPES = (1, 2)  # with an access list, and EIP-1559: both name their chain


def fresh_chain_id(salt: int) -> int:
    """Return the id of a chain that is to be told from all other embedded chains.

    Two runs of one configuration have the same contract address, so on chains of one id a
    signature of the one would be good on the other, and two honest votes a proof of equivocation.

    Args:
        salt: `SALT_BITS` random bits.

    Returns:
        The letters CMFL and the salt: below 2**53, as JavaScript's wallets need it.
    """
    return DEFAULT_CHAIN_ID << SALT_BITS | salt


class EmbeddedChain(EmbeddedReader):
    """A chain file and the right to write it. Safe to share between threads.

    Attributes:
        sender: the address that signs where `send` is given no other key.
    """

    def __init__(
        self, store: Store, lock: WriterLock, clock: Callable[[], float], key: bytes
    ) -> None:
        super().__init__(store)
        self._writer_lock = lock
        self._clock = clock
        self._key = key
        self.sender = address_of(key)

    @classmethod
    def create(
        cls,
        path: Path,
        *,
        chain_id: int = DEFAULT_CHAIN_ID,
        gas_limit: int = DEFAULT_GAS_LIMIT,
        key: bytes = TEST_KEYS[0],
        clock: Callable[[], float] = time.time,
        synchronous: Synchronous = "FULL",
    ) -> EmbeddedChain:
        """Return a new chain, with genesis on disk.

        Args:
            path: the SQLite file to make.
            chain_id: the chain's EIP-155 id.
            gas_limit: how much gas every block offers.
            key: the private key that signs; its account is funded at genesis.
            clock: Unix seconds, for the blocks' times.
            synchronous: how much a commit waits for the disk.

        Returns:
            The chain, open for writing.

        Raises:
            ChainError: there is a file already, or it cannot be made.
        """
        lock = WriterLock.acquire(path)
        try:
            store = Store.create(path, synchronous)
            try:
                _write_genesis(store, chain_id, gas_limit, int(clock()), key)
                return cls(store, lock, clock, key)
            except BaseException:
                store.close()
                raise
        except BaseException:
            lock.release()
            raise

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        chain_id: int | None = None,
        genesis_hash: bytes | None = None,
        key: bytes = TEST_KEYS[0],
        clock: Callable[[], float] = time.time,
        synchronous: Synchronous = "FULL",
    ) -> EmbeddedChain:
        """Return an existing chain, open for writing.

        Args:
            path: the SQLite file.
            chain_id: the expected id; None accepts any.
            genesis_hash: the expected block 0; None accepts any.
            key: the private key that signs.
            clock: Unix seconds, for the blocks' times.
            synchronous: how much a commit waits for the disk.

        Returns:
            The open chain.

        Raises:
            ChainLockedError: somebody else is writing.
            ChainError: there is no such file, or it is damaged or another chain.
        """
        lock = WriterLock.acquire(path)
        try:
            store = Store.open(path, read_only=False, synchronous=synchronous)
            try:
                chain = cls(store, lock, clock, key)
                chain.verify_identity(chain_id, genesis_hash)
            except BaseException:
                store.close()
                raise
        except BaseException:
            lock.release()
            raise
        return chain

    @classmethod
    def open_or_create(
        cls, path: Path, *, chain_id: int | None = None, new_chain_id: int = DEFAULT_CHAIN_ID
    ) -> EmbeddedChain:
        """Return the chain in a file, or a new one where there is none.

        A file without a single table is none: whoever was making it was killed before block 0.

        Args:
            path: the SQLite file.
            chain_id: the expected id, or the new chain's; None accepts any.
            new_chain_id: the new chain's id where none is expected.

        Returns:
            The chain, open for writing.

        Raises:
            ChainLockedError: somebody else is writing.
            ChainError: the file is damaged or another chain, or cannot be made.
        """
        if path.exists() and not Store.is_blank(path):
            return cls.open(path, chain_id=chain_id)
        return cls.create(path, chain_id=new_chain_id if chain_id is None else chain_id)

    def send(self, to: str | None, data: bytes, gas: int, *, key: bytes | None = None) -> Receipt:
        """Sign a transaction, run it and put it into a block of its own.

        Args:
            to: the contract; None creates one.
            data: call data, or the creation code.
            gas: the limit of gas; never estimated.
            key: the private key that signs; None for the chain's own.

        Returns:
            The receipt, with the block on disk.

        Raises:
            TransactionRevertedError: the block holds it, but it reverted.
            TransactionRefusedError: it cannot go into a block; nothing was written.
            ChainDamagedError: the chain cannot be read.
        """
        with self._lock:
            signed = self._sign(to, data, gas, self._key if key is None else key)
            [computation] = self._seal([signed])
            receipt = self.receipt(bytes(signed.hash))
        if receipt is None:
            raise ChainDamagedError(f"{self._store.path}: the block just written is not there")
        if receipt.status != 1:
            raise TransactionRevertedError(bytes(computation.output), receipt.transaction_hash)
        return receipt

    def submit(self, raw: bytes) -> bytes:
        """Run a transaction that somebody else signed and put it into a block of its own.

        Args:
            raw: its typed encoding (EIP-2718).

        Returns:
            Its hash; whether it reverted is in the receipt, as with any node.

        Raises:
            WrongChainIdError: it is signed for another chain.
            TransactionRefusedError: it is malformed, untyped, or cannot go into a block.
        """
        if raw[:1] not in {bytes([kind]) for kind in _TRANSACTION_TYPES}:
            raise TransactionRefusedError(
                "only EIP-1559 and access-list transactions are taken: others may name no chain"
            )
        with self._lock:
            builder = self._chain.get_vm().get_transaction_builder()
            try:
                signed = builder.decode(raw)
            except (RLPException, PyEVMError, *evm.REFUSALS, *_MALFORMED) as error:
                raise TransactionRefusedError("the transaction is malformed") from error
            self._seal([signed])
        return bytes(signed.hash)

    def mine(self, blocks: int) -> None:
        """Make empty blocks, each on disk before the next.

        Args:
            blocks: how many, at least 0.
        """
        with self._lock:
            for _ in range(blocks):
                self._seal([])

    def _sign(self, to: str | None, data: bytes, gas: int, key: bytes) -> SignedTransactionAPI:
        signer = PrivateKey(key)
        with evm.damage_translated(self._store):
            machine = self._chain.get_vm()
            nonce = machine.state.get_nonce(Address(signer.public_key.to_canonical_address()))
            builder = machine.get_transaction_builder()
            unsigned = builder.new_unsigned_dynamic_fee_transaction(  # type: ignore[attr-defined]
                chain_id=self.chain_id,
                nonce=nonce,
                max_priority_fee_per_gas=0,
                max_fee_per_gas=base_fee(
                    self._chain.header
                ),  # the next block's own, so it always suffices
                gas=gas,
                to=to_canonical(to) if to is not None else b"",
                value=0,
                data=data,
                access_list=(),
            )
            signed: SignedTransactionAPI = unsigned.as_signed_transaction(signer)
        return signed

    def _seal(self, transactions: Sequence[SignedTransactionAPI]) -> Sequence[ComputationAPI]:
        # py-evm never compares a transaction's chain id with the chain's (py-evm #1352).
        for transaction in transactions:
            if transaction.chain_id != self.chain_id:
                raise WrongChainIdError(
                    f"the transaction is signed for chain {transaction.chain_id}, "
                    f"this is {self.chain_id}"
                )
        try:
            return self._mine(transactions)
        except evm.REFUSALS as error:
            raise TransactionRefusedError(f"transaction refused: {error}") from error
        finally:
            # Whatever interrupted it, the chain goes on from what is on disk.
            if self._database.pending:
                self._rebuild()

    def _mine(self, transactions: Sequence[SignedTransactionAPI]) -> Sequence[ComputationAPI]:
        with evm.damage_translated(self._store, evm.REFUSALS):
            parent, header = self._chain.get_canonical_head(), self._chain.header
            self._chain.header = header.copy(
                timestamp=max(parent.timestamp + 1, int(self._clock())),
                # Not random, so that anyone can run the block again; nothing here draws on it.
                mix_hash=keccak(header.parent_hash),
            )
            result, receipts, computations = self._chain.mine_all(
                transactions, coinbase=evm.COINBASE
            )
            block = result.imported_block
            hashes = [bytes(transaction.hash) for transaction in transactions]
            rows = log_table.rows_of_block(block.number, hashes, receipts)
            self._store.commit(self._database.pending, rows)
            self._database.pending.clear()
        return computations

    def _rebuild(self) -> None:
        self._database.pending.clear()
        with evm.damage_translated(self._store):
            self._chain = type(self._chain)(self._database)

    def close(self) -> None:
        """Close the file and let another writer in."""
        with self._lock:
            super().close()
            self._writer_lock.release()


def _write_genesis(store: Store, chain_id: int, gas_limit: int, timestamp: int, key: bytes) -> None:
    balances = {
        PrivateKey(funded).public_key.to_canonical_address(): GENESIS_BALANCE_WEI
        for funded in {*TEST_KEYS, key}
    }
    genesis_hash, values = evm.make_genesis(chain_id, gas_limit, timestamp, balances)
    meta = {
        "schema": str(SCHEMA_VERSION),
        "chain_id": str(chain_id),
        "fork": evm.FORK,
        "genesis_hash": genesis_hash.hex(),
    }
    store.initialise(meta, values)
