"""A chain file, read: headers, transactions, receipts, logs and calls.

Every lookup is indexed, so its cost does not grow with the chain. Nothing here writes or takes the
writer's lock.

A storage overlay collects a block's writes until the block is complete, because py-evm writes a
transaction's state before its block exists. Every value under a 32-byte key is content-addressed:
headers, trie nodes and code are stored under their own hash. Each read verifies it, so results of
calls and receipts follow from the block hash.
"""

from __future__ import annotations

import contextlib
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import rlp  # type: ignore[import-untyped]
from eth.constants import CREATE_CONTRACT_ADDRESS
from eth.db.atomic import AtomicDBWriteBatch
from eth.db.backends.base import BaseAtomicDB
from eth.exceptions import Revert, TransactionNotFound, VMError
from eth.vm.header import HeaderSedes
from eth.vm.spoof import SpoofTransaction
from eth_keys.datatypes import PrivateKey

from ledger.chain import ports
from ledger.chain.embedded import chain_store, evm, integrity, writing
from ledger.chain.embedded.engine import TrieNodes
from ledger.protocol.encoding import keccak, to_canonical
from ledger.protocol.errors import ChainError

if TYPE_CHECKING:
    from eth.abc import AtomicWriteBatchAPI, ComputationAPI, ReceiptAPI, StateAPI
    from eth.abc import BlockHeaderAPI as Header
    from eth.abc import SignedTransactionAPI as Signed


_HASH_BYTES = 32
_ZERO_ADDRESS = "0x" + "00" * 20


@dataclass(frozen=True, slots=True)
class ContractCall:
    """A call that is not recorded; no value is transferred."""

    to: str | None
    """The contract; None runs `data` as creation code."""
    data: bytes
    sender: str = _ZERO_ADDRESS
    gas: int | None = None
    """The limit; None for a whole block's."""
    value: int = 0


@dataclass(frozen=True, slots=True)
class CallAnswer:
    """Result of a call."""

    output: bytes
    failure: str | None
    """None if it ran, empty if the contract reverted, else the EVM's error."""


class OverlayDatabase(BaseAtomicDB):
    """py-evm's database: the store, its verified values cached, under the uncommitted writes."""

    def __init__(self, store: chain_store.ChainStore) -> None:
        self._store = store
        self.pending: dict[bytes, bytes | None] = {}  # None means deleted
        self.nodes = TrieNodes(self)
        self._verified: dict[bytes, bytes] = {}
        self._verified_bytes = 0

    def __getitem__(self, key: bytes) -> bytes:
        value = self.pending[key] if key in self.pending else self._stored(key)
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: bytes, value: bytes) -> None:
        self.pending[key] = value

    def __delitem__(self, key: bytes) -> None:
        if key not in self:
            raise KeyError(key)
        self.pending[key] = None

    def _exists(self, key: bytes) -> bool:
        if key in self.pending:
            return self.pending[key] is not None
        return key in self._verified or self._store.get(key) is not None

    def _stored(self, key: bytes, committed: bytes | None = None) -> bytes | None:
        """Return a value, cached if its key is its verified hash, or if no value can change."""
        if key in self._verified:
            return self._verified[key]
        value = self._store.get(key) if committed is None else committed
        is_hash = len(key) == _HASH_BYTES
        if value is None or not (is_hash or self._store.is_fixed):
            return value
        if is_hash and keccak(value) != key:
            raise ports.ChainDamagedError(
                f"{self._store.path}: the value stored under 0x{key.hex()} has another hash"
            )
        if self._verified_bytes > 2**24:
            self._verified.clear()
            self._verified_bytes = 0
        self._verified[key] = value
        self._verified_bytes += len(value)
        return value

    def committed(self) -> None:
        """Turn the pending writes into cached ones: the store has them."""
        for key, value in self.pending.items():
            if value is not None and len(key) == _HASH_BYTES:
                self._stored(key, value)
        self.pending.clear()

    @contextlib.contextmanager
    def atomic_batch(self) -> Iterator[AtomicWriteBatchAPI]:
        """Yield a database whose writes become visible together, or not at all."""
        with AtomicDBWriteBatch._commit_unless_raises(self) as batch:
            yield batch


_Noted = writing.AcknowledgedBlock | ChainError | None
"""The newest acknowledged block, or why it cannot be read; None if there is none."""


@contextlib.contextmanager
def damage_translated(
    store: chain_store.ChainStore, passing: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Turn library errors over damaged bytes into a `ChainDamagedError`."""
    try:
        yield
    except evm.DAMAGE as error:
        if isinstance(error, passing):
            raise
        summary = (str(error).splitlines() or [""])[0][:200]
        raise ports.ChainDamagedError(
            f"{store.path}: the chain is damaged ({type(error).__name__}: {summary})"
        ) from error


def _block(header: Header) -> ports.Block:
    """Return a header as a port value."""
    hash_, parent_hash = bytes(header.hash), bytes(header.parent_hash)
    return ports.Block(header.block_number, hash_, parent_hash, header.timestamp)


class EmbeddedReader(ports.ChainBase):
    """A chain file, read-only; shows new blocks at once. Safe to share between threads."""

    def __init__(self, store: chain_store.ChainStore, noted: _Noted = None) -> None:
        backend = type(PrivateKey(b"\x01" * 32).backend).__name__
        if backend != "CoinCurveECCBackend":
            raise ChainError(f"eth-keys uses {backend}; install coincurve")
        self._store = store
        self._noted = noted
        # The last small answers: a block's state never changes.
        self._answers: OrderedDict[Hashable, CallAnswer] = OrderedDict()
        self._answers_lock = threading.Lock()
        self._lock = threading.RLock()
        meta = store.meta()
        with damage_translated(store):
            self.chain_id = int(meta["chain_id"])
            self.genesis_hash = bytes.fromhex(meta["genesis_hash"])
            written = {"chain_id": str(self.chain_id), "genesis_hash": self.genesis_hash.hex()}
            for name, canonical in written.items():
                if meta[name] != canonical:
                    fact = f"{meta[name][:80]!r} is not a canonical {name.replace('_', ' ')}"
                    raise ports.ChainDamagedError(f"{store.path}: {fact}")
            if meta["fork"] != evm.FORK:
                raise ChainError(f"{store.path}: runs {meta['fork']}, not {evm.FORK}")
            self._database = OverlayDatabase(store)
            _verify_head(self._database, self.genesis_hash)
            self._chain = evm.chain_class(self.chain_id)(self._database)
            self._newest_header = self._chain.get_canonical_head()

    @classmethod
    def open(
        cls, path: Path, *, chain_id: int | None = None, genesis_hash: bytes | None = None
    ) -> EmbeddedReader:
        """Return a chain file opened for reading; None accepts any id or block 0."""
        try:
            store = chain_store.ChainStore.open(path)
        except ChainError:
            writing.verify_nothing_acknowledged(path)
            raise
        try:
            chain = EmbeddedReader(store)
            if chain_id is not None or genesis_hash is not None:
                ports.require_identity(path, chain, chain_id, genesis_hash)
        except ChainError:
            store.close()
            raise
        return chain

    def head(self) -> ports.Block:
        with self._lock, damage_translated(self._store):
            return _block(self._canonical_head())

    def finalized(self) -> int:
        """Return the head's number: blocks of this file are never reverted."""
        return self.head().number

    def block(self, number: int) -> ports.Block:
        return _block(self.header(number))

    def header(self, number: int | None = None) -> Header:
        """Return the full header of a block, None for the head."""
        with self._lock, damage_translated(self._store):
            head = self._canonical_head()
            if number is None or number == head.block_number:
                return head
            if not 0 <= number < head.block_number:
                raise ChainError(f"no block {number}; the head is {head.block_number}")
            header = self._chain.get_canonical_block_header_by_number(number)  # type: ignore[arg-type]
            if header.block_number != number:
                raise ports.ChainDamagedError(
                    f"{self._store.path}: block {number} is filed as {header.block_number}"
                )
            return header

    def _canonical_head(self) -> Header:
        # Another process may have added blocks.
        if (
            not self._store.is_fixed
            and self._database.get(chain_store.HEAD_KEY) != self._newest_header.hash
        ):
            self._newest_header = self._chain.get_canonical_head()
        return self._newest_header

    def block_number_of(self, block_hash: bytes) -> int | None:
        with self._lock, damage_translated(self._store):
            if not self._database.exists(block_hash):
                return None
            number = self._chain.get_block_header_by_hash(block_hash).block_number  # type: ignore[arg-type]
            return number if self.header(number).hash == block_hash else None

    def logs(self, query: ports.LogQuery) -> list[ports.Log]:
        """Return the logs that match, by an index."""
        selection = chain_store.select(query)
        if selection is None:
            return []
        with self._lock, damage_translated(self._store):
            rows = self._store.rows(*selection)
            numbers = {chain_store.position(row[0])[0] for row in rows}
            hash_of: Callable[[int], bytes] = self._chain.get_canonical_block_hash  # type: ignore[assignment]
            hashes = {number: bytes(hash_of(number)) for number in numbers}
            return [evm.log_of_row(row, hashes) for row in rows]

    def transaction(self, transaction_hash: bytes) -> ports.Transaction:
        entry = self.find(transaction_hash)
        if entry is None:
            raise ChainError(f"there is no mined transaction 0x{transaction_hash.hex()}")
        header, _, signed = entry
        with damage_translated(self._store):
            return evm.transaction(header, signed)

    def find(self, transaction_hash: bytes) -> tuple[Header, int, Signed] | None:
        """Return a transaction's header, index and EVM form; None until it is mined."""
        with self._lock, damage_translated(self._store):
            try:
                number, index = self._chain.get_canonical_transaction_index(transaction_hash)  # type: ignore[arg-type]
            except TransactionNotFound:
                return None
            header = self.header(number)
            signed = self.transactions(header)[index]
            if signed.hash != transaction_hash:
                raise ports.ChainDamagedError(
                    f"{self._store.path}: 0x{transaction_hash.hex()} leads to another transaction"
                )
            return header, index, signed

    def transaction_index(self, transaction_hash: bytes) -> int:
        with self._lock, damage_translated(self._store):
            return self._chain.get_canonical_transaction_index(transaction_hash)[1]  # type: ignore[arg-type]

    def transactions(self, header: Header) -> tuple[Signed, ...]:
        with self._lock, damage_translated(self._store):
            builder = self._chain.get_vm_class(header).get_transaction_builder()
            return self._chain.chaindb.get_block_transactions(header, builder)

    def receipt(self, transaction_hash: bytes) -> ports.Receipt | None:
        entry = self.find(transaction_hash)
        if entry is None:
            return None
        header, index, signed = entry
        with self._lock, damage_translated(self._store):
            return evm.receipt(header, index, signed, self.receipts(header))

    def receipts(self, header: Header) -> tuple[ReceiptAPI, ...]:
        with self._lock, damage_translated(self._store):
            builder = self._chain.get_vm_class(header).get_receipt_builder()
            return self._chain.chaindb.get_receipts(header, builder)

    def close(self) -> None:
        self._store.close()

    def code(self, address: str, block_number: int | None = None) -> bytes:
        """Return a contract's runtime code after a block (None: the head); may be empty."""
        contract = to_canonical(address)
        with self._lock, damage_translated(self._store):
            return bytes(self._state(block_number).get_code(contract))

    def account(self, address: str, block_number: int | None = None) -> tuple[int, int]:
        """Return an account's nonce, and its balance in wei, after a block (None for the head)."""
        owner = to_canonical(address)
        with self._lock, damage_translated(self._store):
            state = self._state(block_number)
            return state.get_nonce(owner), state.get_balance(owner)

    def receipt_of(self, sender: str, nonce: int) -> ports.Receipt | None:
        account = to_canonical(sender)
        with self._lock:
            numbers = range(self.head().number + 1)
            number = bisect_right(
                numbers, nonce, key=lambda height: self.account(sender, height)[0]
            )
            if number == len(numbers):
                return None
            for signed in self.transactions(self.header(number)):
                if signed.nonce == nonce and bytes(signed.sender) == account:
                    return self.receipt(bytes(signed.hash))
        raise ports.ChainDamagedError(f"{self._store.path}: block {number} lacks a transaction")

    def _state(self, block_number: int | None) -> StateAPI:
        return self._chain.get_vm(self.header(block_number)).state

    def estimate_gas(self, call: ContractCall) -> int:
        """Return the gas that a transaction would need at the head."""
        origin = to_canonical(call.sender)
        contract = to_canonical(call.to) if call.to is not None else CREATE_CONTRACT_ADDRESS
        with self._lock, damage_translated(self._store, (VMError,)):
            head = self.header()
            builder = self._chain.get_vm(head).get_transaction_builder()
            unsigned = builder.create_unsigned_transaction(
                nonce=self.account(call.sender)[0],
                gas_price=0,
                gas=21_000,
                to=contract,
                value=call.value,
                data=call.data,
            )
            try:
                spoofed = SpoofTransaction(unsigned, from_=origin)
                return self._chain.estimate_gas(spoofed, head)  # type: ignore[arg-type]
            except VMError as error:
                raise ports.TransactionRevertedError(evm.revert_data(error)) from error

    def call(self, to: str, data: bytes, block_number: int | None = None) -> bytes:
        answer = self.answer(ContractCall(to, data), block_number)
        if answer.failure is not None:
            raise ports.TransactionRevertedError(answer.output)
        return answer.output

    def answer(
        self, call: ContractCall, block_number: int | None = None, *, in_snapshot: bool = False
    ) -> CallAnswer:
        """Return the result of a call after a block; other readers do not wait for a snapshot's."""
        # Participants ask the same of each block several times.
        header = self.header(block_number)
        key = header.hash, call
        with self._answers_lock:
            if key in self._answers:
                self._answers.move_to_end(key)
                return self._answers[key]
        with self.snapshot() if in_snapshot else contextlib.nullcontext(self) as reader:
            computation = reader.execute(call, header.block_number)
        failure = None
        if computation.is_error:
            error = computation.error
            failure = "" if isinstance(error, Revert) else f"{error!r}"[:200]
        answer = CallAnswer(bytes(computation.output), failure)
        if len(call.data) + len(answer.output) <= 4096:
            with self._answers_lock:
                self._answers[key] = answer
                if len(self._answers) > 256:
                    self._answers.popitem(last=False)
        return answer

    def execute(self, call: ContractCall, block_number: int | None = None) -> ComputationAPI:
        """Run a call after a block, None for the head; return its output, error and gas."""
        origin = to_canonical(call.sender)
        contract = to_canonical(call.to if call.to is not None else _ZERO_ADDRESS)
        with self._lock, damage_translated(self._store):
            header = self.header(block_number)
            machine = self._chain.get_vm(header)
            return machine.execute_bytecode(
                origin=origin,
                gas_price=0,
                gas=header.gas_limit if call.gas is None else min(call.gas, header.gas_limit),
                to=contract,
                sender=origin,
                value=call.value,
                data=call.data if call.to is not None else b"",
                code=machine.state.get_code(contract) if call.to is not None else call.data,
                code_address=contract,
            )

    def acknowledged(self) -> writing.AcknowledgedBlock | None:
        """Return the newest block that this home has acknowledged; None if there is no note.

        A snapshot answers with the note from before it was taken, so its own head is never older.
        """
        if not self._store.is_snapshot:
            return writing.read_note(self._store.path)
        if isinstance(self._noted, ChainError):
            raise self._noted
        return self._noted

    def verify_not_behind(self) -> None:
        noted = self.acknowledged()
        if noted is not None:
            writing.verify_not_behind(self, noted, self._store.path)

    @property
    def wal_bytes(self) -> int:
        return self._store.wal_bytes

    def verify(
        self, *, execute: bool = False, progress: Callable[[int], None] | None = None
    ) -> None:
        """Verify the chain, and that it can be extended; `execute` repeats all transactions."""
        if not self._store.is_snapshot:
            with self.snapshot() as snapshot:
                snapshot.verify(execute=execute, progress=progress)
            return
        with self._lock, damage_translated(self._store):
            store, genesis_hash = self._store, self.genesis_hash
            database = OverlayDatabase(store)
            chain = evm.chain_class(self.chain_id, is_reference=True)(database)
            integrity.verify_chain(
                store, database.pending, chain, genesis_hash, execute=execute, progress=progress
            )

    def verify_can_extend(self) -> None:
        """Verify that the next block can be added; see `integrity`."""
        with self._lock, damage_translated(self._store):
            integrity.verify_can_extend(self._store, self._chain.get_canonical_head())

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[EmbeddedReader]:
        """Open a view of the chain as it is now, which stays unchanged while it is open."""
        if self._store.is_snapshot:
            yield self
            return
        path = self._store.path
        noted: _Noted
        try:
            noted = writing.read_note(path)
        except ChainError as error:
            noted = error  # it concerns only callers of `acknowledged`
        with contextlib.closing(chain_store.ChainStore.open(path, is_snapshot=True)) as store:
            reader = EmbeddedReader(store, noted)
            ports.require_identity(path, reader, self.chain_id, self.genesis_hash)
            yield reader


def _verify_head(database: OverlayDatabase, genesis_hash: bytes) -> None:
    """Verify that genesis, head and head state exist and match their hashes, as read."""
    if not database.exists(genesis_hash):
        raise ports.ChainDamagedError("block 0 is missing or is not the recorded one")
    _ = database[genesis_hash]
    try:
        head_hash = database[chain_store.HEAD_KEY]
        state_root = rlp.decode(database[head_hash], sedes=HeaderSedes).state_root
        _ = database[state_root]
    except KeyError as error:
        raise ports.ChainDamagedError("the head of the chain is missing, or its state") from error
