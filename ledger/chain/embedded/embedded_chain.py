"""The embedded chain open for writing: an EVM in this process over one SQLite file.

A block is durable when the method that made it returns: a killed process loses no acknowledged
block. `send` and `submit` mine one block per transaction, `mine_pending` one for many.

There is no consensus: a block proves only that a process could write the file. The ledger's
evidence rests on the clients' signatures and the audit. `verify` checks that the file is what the
EVM made.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

from eth.exceptions import PyEVMError
from eth_keys.datatypes import PrivateKey
from eth_keys.exceptions import BadSignature
from eth_typing import Address
from rlp.exceptions import RLPException  # type: ignore[import-untyped]

from ledger.chain import ports
from ledger.chain.embedded import chain_store, evm, writing
from ledger.chain.embedded.reader import EmbeddedReader, damage_translated, port_receipt
from ledger.protocol.encoding import keccak, to_canonical
from ledger.protocol.errors import ChainError

if TYPE_CHECKING:
    from eth.abc import SignedTransactionAPI as Signed

_MALFORMED = (*(RLPException, PyEVMError, *evm.REFUSALS), *(TypeError, ValueError, RecursionError))


class WritingOptions(TypedDict, total=False):
    """Options for writing a chain."""

    key: bytes  # the private key that signs; genesis funds its account
    clock: Callable[[], float]  # Unix seconds, for the blocks' times
    synchronous: chain_store.Synchronous
    accept_rollback: bool
    """Accept a chain without the newest acknowledged block, and forget that block."""


class EmbeddedChain(EmbeddedReader):
    """A chain file with the exclusive right to write it. Safe to share between threads."""

    _database: evm.OverlayDatabase

    def __init__(
        self, store: chain_store.ChainStore, held: contextlib.ExitStack, options: WritingOptions
    ) -> None:
        super().__init__(store)
        # Made at once: the next block follows the present head, and no other writer's block.
        self._database = evm.OverlayDatabase(store)
        with damage_translated(store, evm.DAMAGE):
            self._chain = evm.chain_class(self.chain_id)(self._database)
        self._clock = options.get("clock", time.time)
        self._key = options.get("key", evm.TEST_KEYS[0])
        self.sender = evm.address_of(self._key)
        # If commits do not wait for the disk, only closing makes the head durable.
        self._notes_each_block = options.get("synchronous", "FULL") == "FULL"
        self._write_ahead = writing.WriteAheadLog(store)
        self._write_ahead.empty()
        self._note = writing.HeadNote(store.path, self._newest())
        self._held = held.pop_all()  # the file and the writer's lock

    @classmethod
    def create(
        cls,
        path: Path,
        *,
        chain_id: int = chain_store.DEFAULT_CHAIN_ID,
        gas_limit: int = 200_000_000,
        **options: Unpack[WritingOptions],
    ) -> EmbeddedChain:
        """Return a new chain with a durable genesis, open for writing."""
        with contextlib.ExitStack() as held:
            held.enter_context(writing.writer_lock(path))
            if not options.get("accept_rollback"):
                writing.verify_nothing_acknowledged(path)
            store = chain_store.ChainStore.create(path, options.get("synchronous", "FULL"))
            held.enter_context(contextlib.closing(store))
            keys = {*evm.TEST_KEYS, options.get("key", evm.TEST_KEYS[0])}
            owners = [PrivateKey(key).public_key.to_canonical_address() for key in keys]
            balances = dict.fromkeys(owners, evm.GENESIS_BALANCE_WEI)
            seconds = _seconds(options.get("clock", time.time))
            genesis_hash, values = evm.make_genesis(chain_id, gas_limit, seconds, balances)
            meta = {"schema": str(chain_store.SCHEMA_VERSION), "fork": chain_store.FORK}
            meta |= {"chain_id": str(chain_id), "genesis_hash": genesis_hash.hex()}
            store.initialise(meta, values)
            return cls(store, held, options)

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        chain_id: int | None = None,
        genesis_hash: bytes | None = None,
        **options: Unpack[WritingOptions],
    ) -> EmbeddedChain:
        """Return an existing chain, open for writing; None accepts any id or block 0."""
        with contextlib.ExitStack() as held:
            held.enter_context(writing.writer_lock(path))
            # First read-only: when it opens for writing, SQLite discards the rest of a damaged
            # -wal, which might still be recovered.
            with EmbeddedReader.open(path, chain_id=chain_id, genesis_hash=genesis_hash) as reader:
                if not options.get("accept_rollback"):
                    reader.verify_not_behind()
                reader.verify_can_extend()
            store = chain_store.ChainStore.open(path, options.get("synchronous", "FULL"))
            held.enter_context(contextlib.closing(store))
            return cls(store, held, options)

    @classmethod
    def open_or_create(
        cls,
        path: Path,
        *,
        chain_id: int | None = None,
        new_chain_id: int = chain_store.DEFAULT_CHAIN_ID,
        accept_rollback: bool = False,
    ) -> EmbeddedChain:
        """Return the chain in a file, or a new one with the expected id or `new_chain_id`."""
        # A file without tables counts as none: its creation was interrupted before block 0.
        if path.exists() and not chain_store.ChainStore.is_blank(path):
            return cls.open(path, chain_id=chain_id, accept_rollback=accept_rollback)
        id_ = new_chain_id if chain_id is None else chain_id
        return cls.create(path, chain_id=id_, accept_rollback=accept_rollback)

    def send(
        self, to: str | None, data: bytes, gas: int, *, key: bytes | None = None, value: int = 0
    ) -> ports.Receipt:
        """Sign a transaction and mine it in a separate block, durably; see `ChainWriter.send`."""
        with self._lock:
            signed = self._sign(to, data, gas, self._key if key is None else key, value)
            block = self._mine([signed], must_fit=True)
        receipt = port_receipt(block.header, 0, signed, block.receipts)
        if receipt.status != 1:
            output = bytes(block.computations[0].output)
            raise ports.TransactionRevertedError(output, receipt.transaction_hash)
        return receipt

    def submit(self, raw: bytes) -> bytes:
        """Mine a signed transaction (EIP-2718) in a block, even if it reverts; return its hash."""
        with self._lock:
            signed = self.read_transaction(raw)
            self._mine([signed], must_fit=True)
        return bytes(signed.hash)

    def read_transaction(self, raw: bytes) -> Signed:
        # EIP-2930 and EIP-1559: both contain the chain id.
        if raw[:1] not in {b"\x01", b"\x02"}:
            fact = "only EIP-1559 and access-list transactions are taken: others may name no chain"
            raise ports.TransactionRefusedError(fact)
        with self._lock:
            builder = self._chain.get_vm().get_transaction_builder()
        try:
            signed = builder.decode(raw)
            _ = signed.sender
        except BadSignature as error:
            fact = "invalid sender: the signature recovers to no account"
            raise ports.TransactionRefusedError(fact) from error
        except _MALFORMED as error:
            raise ports.TransactionRefusedError("rlp: the transaction is malformed") from error
        # py-evm never compares a transaction's chain id with the chain's (py-evm #1352).
        if signed.chain_id != self.chain_id:
            fact = f"invalid chain id for signer: have {signed.chain_id} want {self.chain_id}"
            raise ports.WrongChainError(fact)
        return signed

    def mine_pending(self, pending: Sequence[Signed]) -> frozenset[bytes]:
        """Mine one block of all transactions that fit, as `fill` does; return the refused ones."""
        return self._mine(pending, must_fit=False).refused

    def require_suitable(self, *, needs_block_hash: bool) -> None:
        """Return at once: this program's own EVM runs the contract."""

    def mines_at_once(self) -> bool:
        return True

    def next_nonce(self) -> int:
        return self.account(self.sender)[0]

    def create_contract(
        self,
        creation: bytes,
        gas: int,
        nonce: int,
        *,
        again: bool = False,  # noqa: ARG002 - nothing is pending here
    ) -> ports.Receipt:
        with self._lock:
            if (expected := self.next_nonce()) != nonce:
                raise ports.TransactionRefusedError(f"nonce {nonce} where {expected} comes next")
            return self.send(None, creation, gas)

    def wait_for_pending(self, sender: str) -> None:
        """Return at once: nothing is pending here."""

    def mine(self, blocks: int) -> None:
        with self._lock:
            for _ in range(blocks):
                self._mine([], must_fit=True)

    def _sign(self, to: str | None, data: bytes, gas: int, key: bytes, value: int) -> Signed:
        signer = PrivateKey(key)
        account = Address(signer.public_key.to_canonical_address())
        with damage_translated(self._store, evm.DAMAGE):
            machine = self._chain.get_vm()
            unsigned = machine.get_transaction_builder().new_unsigned_dynamic_fee_transaction(  # type: ignore[attr-defined]
                chain_id=self.chain_id,
                nonce=machine.state.get_nonce(account),
                max_priority_fee_per_gas=0,
                max_fee_per_gas=evm.base_fee(self._chain.header),  # the next block's suffices
                gas=gas,
                to=to_canonical(to) if to is not None else b"",
                value=value,
                data=data,
                access_list=(),
            )
            signed: Signed = unsigned.as_signed_transaction(signer)
        return signed

    def _mine(self, transactions: Sequence[Signed], *, must_fit: bool) -> evm.BlockContents:
        """Mine a block, durably, with every transaction (`must_fit`) or the possible ones."""
        with self._lock:
            try:
                return self._mined(transactions, must_fit=must_fit)
            except evm.REFUSALS as error:
                subject = "transaction" if must_fit else "the block is"
                raise ports.TransactionRefusedError(f"{subject} refused: {error}") from error
            except ports.ChainLockedError:
                # No rebuild: this writer must not continue from another writer's block.
                self._database.pending.clear()
                raise
            finally:
                # After any interruption the chain continues from the file.
                if self._database.pending:
                    self._database.pending.clear()
                    with damage_translated(self._store, evm.DAMAGE):
                        self._chain = type(self._chain)(self._database)

    def _mined(self, transactions: Sequence[Signed], *, must_fit: bool) -> evm.BlockContents:
        with damage_translated(self._store, evm.DAMAGE, passing=evm.REFUSALS):
            parent, header = self._canonical_head(), self._chain.header
            if header.parent_hash != parent.hash:
                fact = f"{self._store.path}: another process writes to this chain"
                raise ports.ChainLockedError(fact)
            # After its parent's second, unless that is ahead of the clock.
            now = _seconds(self._clock)
            self._chain.header = header.copy(
                timestamp=max(parent.timestamp, now, min(parent.timestamp + 1, now + 1)),
                # Deterministic, so that the block can be executed again; nothing here draws on it.
                mix_hash=keccak(header.parent_hash),
                parent_beacon_block_root=evm.BEACON_ROOT,
            )
            block = self._chain.mine_filled(transactions, must_fit=must_fit)
            number, hash_ = block.header.block_number, bytes(block.header.hash)
            hashes = [bytes(transaction.hash) for transaction in block.included]
            rows = chain_store.rows_of_block(number, hashes, block.receipts)
            self._store.commit(self._database.pending, rows, parent=parent.hash)
            self._database.committed()
        if self._notes_each_block:
            self._note.write(writing.AcknowledgedBlock(self.genesis_hash, number, hash_))
        self._write_ahead.bound()
        return block

    def _newest(self) -> writing.AcknowledgedBlock:
        head = self.head()
        return writing.AcknowledgedBlock(self.genesis_hash, head.number, head.hash)

    def close(self) -> None:
        with self._lock:
            # If the checkpoint fails, the blocks stay in the log, and the note is an older one.
            with contextlib.suppress(ChainError):
                if not self._store.is_closed:
                    self._write_ahead.empty()
                    self._note.write(self._newest())
            self._note.close()
            self._held.close()


def _seconds(clock: Callable[[], float]) -> int:
    # A clock before 1970 is wrong; block times begin at 0.
    return max(0, int(clock()))
