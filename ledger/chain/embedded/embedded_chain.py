"""The embedded chain: an EVM in this process over one SQLite file, opened by its one writer.

A block is on disk when what made it returns: a process killed at any moment loses nothing that it
had acknowledged. `send` and `submit` make one for each transaction, `mine_waiting` one for many.

There is no consensus here, so a block proves no more than that somebody could write the file; what
the ledger's records prove rests on the clients' signatures and on the audit. `verify` says whether
the file still is what the EVM made.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from eth.exceptions import PyEVMError
from eth_keys.datatypes import PrivateKey
from eth_keys.exceptions import BadSignature
from eth_typing import Address
from rlp.exceptions import RLPException  # type: ignore[import-untyped]

from ledger.chain.addresses import to_canonical
from ledger.chain.embedded.embedded_reader import EmbeddedReader
from ledger.chain.embedded.file import log_table, rollback
from ledger.chain.embedded.file.chain_store import SCHEMA_VERSION, ChainStore
from ledger.chain.embedded.file.head_note import AcknowledgedBlock, HeadNote
from ledger.chain.embedded.file.write_ahead import WriteAheadLog
from ledger.chain.embedded.file.writer_lock import WriterLock
from ledger.chain.embedded.identity import DEFAULT_CHAIN_ID
from ledger.chain.embedded.machine import evm
from ledger.chain.embedded.machine.accounts import GENESIS_BALANCE_WEI, TEST_KEYS, address_of
from ledger.chain.embedded.machine.evm_values import base_fee
from ledger.chain.ports import (
    ChainDamagedError,
    ChainLockedError,
    Receipt,
    TransactionRefusedError,
    TransactionRevertedError,
    WrongChainIdError,
)
from ledger.protocol.errors import ChainError
from ledger.protocol.keccak import keccak

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from eth.abc import BlockAPI, ComputationAPI, SignedTransactionAPI

    from ledger.chain.embedded.file.sqlite_file import Synchronous

DEFAULT_GAS_LIMIT = 200_000_000

_MOST_SECONDS_AHEAD = 1
_MALFORMED = (TypeError, ValueError, RecursionError)
_TRANSACTION_TYPES = (1, 2)  # with an access list, and EIP-1559: both name their chain


class EmbeddedChain(EmbeddedReader):
    """A chain file and the right to write it. Safe to share between threads.

    Attributes:
        sender: the address that signs where `send` is given no other key.
    """

    def __init__(
        self,
        store: ChainStore,
        lock: WriterLock,
        clock: Callable[[], float],
        key: bytes,
        synchronous: Synchronous,
    ) -> None:
        super().__init__(store)
        self._writer_lock = lock
        self._clock = clock
        self._key = key
        self.sender = address_of(key)
        # Where commits do not wait for the disk, only closing makes the head durable.
        self._notes_each_block = synchronous == "FULL"
        self._write_ahead = WriteAheadLog(store)
        self._write_ahead.empty()
        self._note = HeadNote.begin(store.path, self._newest())

    @classmethod
    def create(  # noqa: PLR0913 - all but the path have a default
        cls,
        path: Path,
        *,
        chain_id: int = DEFAULT_CHAIN_ID,
        gas_limit: int = DEFAULT_GAS_LIMIT,
        key: bytes = TEST_KEYS[0],
        clock: Callable[[], float] = time.time,
        synchronous: Synchronous = "FULL",
        accept_rollback: bool = False,
    ) -> EmbeddedChain:
        """Return a new chain, with genesis on disk.

        Args:
            path: the SQLite file to make.
            chain_id: the chain's EIP-155 id.
            gas_limit: how much gas every block offers.
            key: the private key that signs; its account is funded at genesis.
            clock: Unix seconds, for the blocks' times.
            synchronous: how much a commit waits for the disk.
            accept_rollback: make it even where another chain has been acknowledged.

        Returns:
            The chain, open for writing.

        Raises:
            ChainRolledBackError: a chain that was acknowledged here is gone.
            ChainError: there is a file already, or it cannot be made.
        """
        with _locked(path) as lock:
            if not accept_rollback:
                rollback.verify_nothing_acknowledged(path)
            store = ChainStore.create(path, synchronous)
            try:
                _write_genesis(store, chain_id, gas_limit, _seconds(clock), key)
                return cls(store, lock, clock, key, synchronous)
            except BaseException:
                store.close()
                raise

    @classmethod
    def open(  # noqa: PLR0913 - all but the path have a default
        cls,
        path: Path,
        *,
        chain_id: int | None = None,
        genesis_hash: bytes | None = None,
        key: bytes = TEST_KEYS[0],
        clock: Callable[[], float] = time.time,
        synchronous: Synchronous = "FULL",
        accept_rollback: bool = False,
    ) -> EmbeddedChain:
        """Return an existing chain, open for writing.

        Args:
            path: the SQLite file.
            chain_id: the expected id; None accepts any.
            genesis_hash: the expected block 0; None accepts any.
            key: the private key that signs.
            clock: Unix seconds, for the blocks' times.
            synchronous: how much a commit waits for the disk.
            accept_rollback: go on even behind the newest acknowledged block, and forget it.

        Returns:
            The open chain.

        Raises:
            ChainLockedError: somebody else is writing.
            ChainRolledBackError: it lacks a block that was acknowledged here.
            ChainError: there is no such file, or it is damaged or another chain.
        """
        with _locked(path) as lock:
            # Looked at without writing: opened for writing, SQLite drops from a damaged -wal
            # what might still be saved.
            with EmbeddedReader.open(path, chain_id=chain_id, genesis_hash=genesis_hash) as reader:
                if not accept_rollback:
                    rollback.verify_not_behind(reader, path)
                reader.verify_can_go_on()
            store = ChainStore.open(path, synchronous)
            try:
                return cls(store, lock, clock, key, synchronous)
            except BaseException:
                store.close()
                raise

    @classmethod
    def open_or_create(
        cls,
        path: Path,
        *,
        chain_id: int | None = None,
        new_chain_id: int = DEFAULT_CHAIN_ID,
        accept_rollback: bool = False,
    ) -> EmbeddedChain:
        """Return the chain in a file, or a new one where there is none.

        A file without a single table is none: whoever was making it was killed before block 0.

        Args:
            path: the SQLite file.
            chain_id: the expected id, or the new chain's; None accepts any.
            new_chain_id: the new chain's id where none is expected.
            accept_rollback: go on even behind the newest acknowledged block, and forget it.

        Returns:
            The chain, open for writing.

        Raises:
            ChainLockedError: somebody else is writing.
            ChainRolledBackError: it lacks a block that was acknowledged here, or is gone.
            ChainError: the file is damaged or another chain, or cannot be made.
        """
        if path.exists() and not ChainStore.is_blank(path):
            return cls.open(path, chain_id=chain_id, accept_rollback=accept_rollback)
        made = new_chain_id if chain_id is None else chain_id
        return cls.create(path, chain_id=made, accept_rollback=accept_rollback)

    def send(
        self, to: str | None, data: bytes, gas: int, *, key: bytes | None = None, value: int = 0
    ) -> Receipt:
        """Sign a transaction, run it and put it into a block of its own.

        Args:
            to: the contract; None creates one.
            data: call data, or the creation code.
            gas: the limit of gas; never estimated.
            key: the private key that signs; None for the chain's own.
            value: how many wei go with it.

        Returns:
            The receipt, with the block on disk.

        Raises:
            TransactionRevertedError: the block holds it, but it reverted.
            TransactionRefusedError: it cannot go into a block; nothing was written.
            ChainDamagedError: the chain cannot be read.
        """
        with self._lock:
            signed = self._sign(to, data, gas, self._key if key is None else key, value)
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
        with self._lock:
            signed = self.read_transaction(raw)
            self._seal([signed])
        return bytes(signed.hash)

    def read_transaction(self, raw: bytes) -> SignedTransactionAPI:
        """Return a transaction that somebody has signed for this chain; nothing is carried out.

        Args:
            raw: its typed encoding (EIP-2718).

        Raises:
            WrongChainIdError: it is signed for another chain.
            TransactionRefusedError: it is malformed, untyped, or nobody can have signed it.
        """
        if raw[:1] not in {bytes([kind]) for kind in _TRANSACTION_TYPES}:
            raise TransactionRefusedError(
                "only EIP-1559 and access-list transactions are taken: others may name no chain"
            )
        with self._lock:
            builder = self._chain.get_vm().get_transaction_builder()
        try:
            signed: SignedTransactionAPI = builder.decode(raw)
            _ = signed.sender
        except BadSignature as error:
            raise TransactionRefusedError("nobody can have signed the transaction") from error
        except (RLPException, PyEVMError, *evm.REFUSALS, *_MALFORMED) as error:
            raise TransactionRefusedError("the transaction is malformed") from error
        self._require_own(signed)
        return signed

    def mine_pending(self, waiting: Sequence[SignedTransactionAPI]) -> frozenset[bytes]:
        """Make one block, on disk, of all that fit into it; an empty one of none.

        What finds no gas left, or pays too little now, is passed over, with all that its account
        has sent after it.

        Args:
            waiting: as `read_transaction` returns them, each account's ascending by nonce.

        Returns:
            The hashes of those that no later block can hold either.

        Raises:
            TransactionRefusedError: the block itself is refused; nothing was written.
            ChainError: the block cannot be written, or the chain cannot be read.
        """

        def fill() -> tuple[BlockAPI, evm.BlockContents]:
            return self._chain.mine_fitting(waiting, evm.COINBASE)

        with self._lock, self._rebuilt_if_cut_off():
            try:
                return self._mine(fill).refused
            except evm.REFUSALS as error:
                raise TransactionRefusedError(f"the block is refused: {error}") from error

    def next_nonce(self) -> int:
        """Return the number of the account's next transaction."""
        return self.account(self.sender)[0]

    def create_contract(
        self,
        creation: bytes,
        gas: int,
        nonce: int,
        *,
        again: bool = False,  # noqa: ARG002 - of other chains
    ) -> Receipt:
        """Create a contract by the transaction with this nonce, or by none.

        Args:
            creation: creation code and arguments.
            gas: the limit of gas; never estimated.
            nonce: of the transaction.
            again: without effect: nothing waits here.

        Raises:
            TransactionRevertedError: the block holds it, but it reverted.
            TransactionRefusedError: the account's next nonce is another.
        """
        with self._lock:
            if (expected := self.next_nonce()) != nonce:
                raise TransactionRefusedError(f"nonce {nonce} where {expected} comes next")
            return self.send(None, creation, gas)

    def wait_for_pending(self, sender: str) -> None:
        """Return at once: nothing waits here."""

    def mine(self, blocks: int) -> None:
        """Make empty blocks, each on disk before the next.

        Args:
            blocks: how many, at least 0.
        """
        with self._lock:
            for _ in range(blocks):
                self._seal([])

    def _sign(
        self, to: str | None, data: bytes, gas: int, key: bytes, value: int
    ) -> SignedTransactionAPI:
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
                value=value,
                data=data,
                access_list=(),
            )
            signed: SignedTransactionAPI = unsigned.as_signed_transaction(signer)
        return signed

    def _require_own(self, transaction: SignedTransactionAPI) -> None:
        # py-evm never compares a transaction's chain id with the chain's (py-evm #1352).
        if transaction.chain_id != self.chain_id:
            raise WrongChainIdError(
                f"the transaction is signed for chain {transaction.chain_id}, "
                f"this is {self.chain_id}"
            )

    def _seal(self, transactions: Sequence[SignedTransactionAPI]) -> Sequence[ComputationAPI]:
        """Make a block of all of these, or none.

        Raises:
            TransactionRefusedError: one of them cannot go into a block.
        """
        for transaction in transactions:
            self._require_own(transaction)
        computations: Sequence[ComputationAPI] = ()

        def fill() -> tuple[BlockAPI, evm.BlockContents]:
            nonlocal computations
            result, receipts, computations = self._chain.mine_all(
                transactions, coinbase=evm.COINBASE
            )
            block = result.imported_block
            return block, evm.BlockContents(
                block.header, tuple(transactions), receipts, frozenset()
            )

        with self._rebuilt_if_cut_off():
            try:
                self._mine(fill)
            except evm.REFUSALS as error:
                raise TransactionRefusedError(f"transaction refused: {error}") from error
        return computations

    @contextlib.contextmanager
    def _rebuilt_if_cut_off(self) -> Iterator[None]:
        """Have the chain go on from what is on disk, whatever becomes of a block.

        Raises:
            ChainLockedError: somebody else has written; the chain stays where it is.
        """
        try:
            yield
        except ChainLockedError:
            # Not rebuilt: who lost the chain shall not go on from the other writer's block.
            self._database.pending.clear()
            raise
        finally:
            # Whatever interrupted it, the chain goes on from what is on disk.
            if self._database.pending:
                self._rebuild()

    def _mine(self, fill: Callable[[], tuple[BlockAPI, evm.BlockContents]]) -> evm.BlockContents:
        with evm.damage_translated(self._store, evm.REFUSALS):
            parent, header = self._chain.get_canonical_head(), self._chain.header
            if header.parent_hash != parent.hash:
                raise ChainLockedError(f"{self._store.path}: somebody else writes to this chain")
            self._chain.header = header.copy(
                timestamp=_dated(parent.timestamp, _seconds(self._clock)),
                # Not random, so that anyone can run the block again; nothing here draws on it.
                mix_hash=keccak(header.parent_hash),
                parent_beacon_block_root=evm.BEACON_ROOT,
            )
            block, filled = fill()
            hashes = [bytes(transaction.hash) for transaction in filled.included]
            rows = log_table.rows_of_block(block.number, hashes, filled.receipts)
            self._store.commit(self._database.pending, rows, parent=parent.hash)
            self._database.pending.clear()
        if self._notes_each_block:
            self._note.write(AcknowledgedBlock(self.genesis_hash, block.number, bytes(block.hash)))
        self._write_ahead.bound()
        return filled

    def _rebuild(self) -> None:
        self._database.pending.clear()
        with evm.damage_translated(self._store):
            self._chain = type(self._chain)(self._database)

    def _newest(self) -> AcknowledgedBlock:
        head = self.head()
        return AcknowledgedBlock(self.genesis_hash, head.number, head.hash)

    def close(self) -> None:
        """Close the file and let another writer in."""
        with self._lock:
            # What cannot be moved into the file stays in its log, and the note stays behind it.
            with contextlib.suppress(ChainError):
                if not self._store.is_closed:
                    self._write_ahead.empty()
                    self._note.write(self._newest())
            self._note.close()
            super().close()
            self._writer_lock.release()


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[WriterLock]:
    """Hold the writer's lock, and keep it unless something raises."""
    lock = WriterLock.acquire(path)
    try:
        yield lock
    except BaseException:
        lock.release()
        raise


def _seconds(clock: Callable[[], float]) -> int:
    # A clock that stands before 1970 is wrong, and no block can say so: times begin at 0.
    return max(0, int(clock()))


def _dated(parent: int, now: int) -> int:
    """Return a block's second: after its parent's, as long as that is not ahead of the clock.

    Args:
        parent: the parent's.
        now: the clock's.
    """
    return max(parent, now, min(parent + 1, now + _MOST_SECONDS_AHEAD))


def _write_genesis(
    store: ChainStore, chain_id: int, gas_limit: int, timestamp: int, key: bytes
) -> None:
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
