"""A chain file, read: headers, transactions, receipts, logs, accounts and calls.

Every lookup is indexed, so its cost does not grow with the chain. Nothing here writes or locks.

Records are decoded by rlp alone, from py-evm's encodings. The EVM is loaded by what executes: a
call, an estimate, a verification. Every value under a 32-byte key is content-addressed: headers,
trie nodes and code are stored under their own hash. Each read verifies it, so results of calls and
receipts follow from the block hash.
"""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rlp  # type: ignore[import-untyped]
from eth_keys.datatypes import PrivateKey, Signature
from eth_keys.exceptions import BadSignature
from eth_utils.exceptions import ValidationError
from rlp import sedes
from rlp.exceptions import RLPException  # type: ignore[import-untyped]
from trie import exceptions as trie_errors

from ledger.chain import ports
from ledger.chain.embedded import chain_store, writing
from ledger.protocol.encoding import checksum, contract_created_by, keccak, to_canonical
from ledger.protocol.errors import ChainError

if TYPE_CHECKING:
    from eth.abc import BlockHeaderAPI, ComputationAPI, ReceiptAPI, SignedTransactionAPI

    from ledger.chain.embedded import evm

_ZERO_ADDRESS = "0x" + "00" * 20
_HASH = sedes.Binary.fixed_length(chain_store.HASH_BYTES)
_ADDRESS = sedes.Binary.fixed_length(20)
_WORD, _BLOOM = sedes.BigEndianInt(32), sedes.BigEndianInt(256)
_NUMBER, _BYTES = sedes.big_endian_int, sedes.binary


def _each(kind: Any, *names: str) -> tuple[tuple[str, Any], ...]:
    return tuple((name, kind) for name in names)


class Header(rlp.Serializable):  # type: ignore[misc]
    """A block's header: Prague's fields, under py-evm's names."""

    fields = (
        *_each(_HASH, "parent_hash", "uncles_hash"),
        ("coinbase", _ADDRESS),
        *_each(_HASH, "state_root", "transaction_root", "receipt_root"),
        ("bloom", _BLOOM),
        *_each(_NUMBER, "difficulty", "block_number", "gas_limit", "gas_used", "timestamp"),
        *(("extra_data", _BYTES), ("mix_hash", _HASH), ("nonce", sedes.Binary.fixed_length(8))),
        *(("base_fee_per_gas", _NUMBER), ("withdrawals_root", _HASH)),
        *_each(_NUMBER, "blob_gas_used", "excess_blob_gas"),
        *_each(_HASH, "parent_beacon_block_root", "requests_hash"),
    )

    @cached_property
    def hash(self) -> bytes:
        return bytes(keccak(rlp.encode(self)))


class _StoredLog(rlp.Serializable):  # type: ignore[misc]
    fields = (("address", _ADDRESS), ("topics", sedes.CountableList(_WORD)), ("data", _BYTES))


class StoredReceipt(rlp.Serializable):  # type: ignore[misc]
    """A receipt, under py-evm's names; `gas_used` counts all transactions up to this one."""

    fields = (  # the state root is 1, or empty if the transaction reverted
        *(("state_root", _BYTES), ("gas_used", _NUMBER), ("bloom", _BLOOM)),
        ("logs", sedes.CountableList(_StoredLog)),
    )


class _Account(rlp.Serializable):  # type: ignore[misc]
    fields = (*_each(_NUMBER, "nonce", "balance"), *_each(_HASH, "storage_root", "code_hash"))


_NO_CODE = keccak(b"")
_NO_ACCOUNT = _Account(0, 0, chain_store.BLANK_ROOT, _NO_CODE)
_POSITION = sedes.List((_NUMBER, _NUMBER))  # block number and index of a transaction
_RECIPIENT = sedes.Binary.fixed_length(20, allow_empty=True)
_ACCESS_LIST = sedes.CountableList(sedes.List((_ADDRESS, sedes.CountableList(_WORD))))
_CALL = (_NUMBER, _RECIPIENT, _NUMBER, _BYTES, _ACCESS_LIST)
_SIGNATURE = (_NUMBER,) * 3
# By type (EIP-2718): with one price of gas (EIP-2930), or with two fees (EIP-1559).
_TRANSACTIONS = {
    kind: sedes.List((*(_NUMBER,) * numbers, *_CALL, *_SIGNATURE))
    for kind, numbers in ((1, 3), (2, 4))
}


@dataclass(frozen=True)
class SignedTransaction:
    """A transaction, under py-evm's names; `to` is empty if it creates a contract."""

    encoded: bytes
    type_id: int
    chain_id: int
    nonce: int
    max_priority_fee_per_gas: int
    max_fee_per_gas: int
    gas: int
    to: bytes
    value: int
    data: bytes
    access_list: tuple[tuple[bytes, tuple[int, ...]], ...]
    y_parity: int
    r: int
    s: int

    @classmethod
    def decode(cls, encoded: bytes) -> SignedTransaction:
        kind, payload = _typed(encoded)
        chain_id, nonce, *fees_and_call = rlp.decode(payload, _TRANSACTIONS[kind])
        *fees, gas, to, value, data, access_list, y_parity, r, s = fees_and_call
        call = (gas, to, value, data, access_list)
        return cls(encoded, kind, chain_id, nonce, fees[0], fees[-1], *call, y_parity, r, s)

    @cached_property
    def hash(self) -> bytes:
        return bytes(keccak(self.encoded))

    @cached_property
    def sender(self) -> bytes:
        unsigned = rlp.decode(self.encoded[1:])[: -len(_SIGNATURE)]
        signature = Signature(vrs=(self.y_parity, self.r, self.s))
        key = signature.recover_public_key_from_msg(self.encoded[:1] + rlp.encode(unsigned))
        return bytes(key.to_canonical_address())


def _typed(encoded: bytes) -> tuple[int, bytes]:
    if encoded[0] not in _TRANSACTIONS:
        raise ValueError(f"type {encoded[0]} of a transaction is unknown")
    return encoded[0], encoded[1:]


def log_of_row(row: chain_store.LogRow, block_hashes: Mapping[int, bytes]) -> ports.Log:
    """Return a row of the log table as a port value."""
    identifier, transaction_hash, address, *topics, data = row
    number, log_index = chain_store.position(identifier)
    present = tuple(topic for topic in topics if topic is not None)
    hash_ = block_hashes[number]
    return ports.Log(checksum(address), present, data, number, hash_, transaction_hash, log_index)


def port_receipt(
    header: Header | BlockHeaderAPI,
    index: int,
    signed: SignedTransaction | SignedTransactionAPI,
    receipts: Sequence[StoredReceipt | ReceiptAPI],
) -> ports.Receipt:
    """Return a receipt as a port value, given all of its block, which count gas together."""
    first = sum(len(earlier.logs) for earlier in receipts[:index])
    number, hash_ = header.block_number, bytes(signed.hash)
    rows = chain_store.rows_of_receipt(number, first, hash_, receipts[index])
    hashes = {number: bytes(header.hash)}
    contract = None if signed.to else contract_created_by(bytes(signed.sender), signed.nonce)
    return ports.Receipt(
        transaction_hash=hash_,
        block_number=number,
        status=1 if receipts[index].state_root == b"\x01" else 0,
        gas_used=receipts[index].gas_used - (receipts[index - 1].gas_used if index else 0),
        contract_address=checksum(contract) if contract else None,
        logs=tuple(log_of_row(row, hashes) for row in rows),
    )


@dataclass(frozen=True, slots=True)
class ContractCall:
    """A call that is not recorded; no value is transferred."""

    to: str | None  # the contract; None runs `data` as creation code
    data: bytes
    sender: str = _ZERO_ADDRESS
    gas: int | None = None  # the limit; None for a whole block's
    value: int = 0


@dataclass(frozen=True, slots=True)
class CallAnswer:
    """Result of a call."""

    output: bytes
    failure: str | None  # None if it ran, empty if the contract reverted, else the EVM's error


_Noted = writing.AcknowledgedBlock | ChainError | None  # an error: it is unreadable


# Errors that damaged bytes cause in eth-keys, rlp, trie and Python.
DAMAGE: tuple[type[Exception], ...] = (
    *(BadSignature, RLPException, ValidationError, sqlite3.Error),
    *(trie_errors.BadTrieProof, trie_errors.InvalidNibbles, trie_errors.InvalidNode),
    *(trie_errors.MissingTraversalNode, trie_errors.MissingTrieNode),
    *(trie_errors.TraversedPartialPath, trie_errors.ValidationError),
    *(LookupError, ValueError, TypeError, AttributeError, ArithmeticError),
)


@contextlib.contextmanager
def damage_translated(
    store: chain_store.ChainStore,
    damage: tuple[type[Exception], ...] = DAMAGE,
    passing: tuple[type[Exception], ...] = (),
) -> Iterator[None]:
    """Turn library errors over damaged bytes into a `ChainDamagedError`."""
    try:
        yield
    except damage as error:
        if isinstance(error, passing):
            raise
        summary = (str(error).splitlines() or [""])[0][:200]
        fact = f"{store.path}: the chain is damaged ({type(error).__name__}: {summary})"
        raise ports.ChainDamagedError(fact) from error


def _block(header: Header) -> ports.Block:
    return ports.Block(header.block_number, header.hash, header.parent_hash, header.timestamp)


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
            if meta["fork"] != chain_store.FORK:
                raise ChainError(f"{store.path}: runs {meta['fork']}, not {chain_store.FORK}")
            self._database = chain_store.Overlay(store)
            self._nodes = chain_store.TrieNodes(self._database)
            self._newest_header = self._verified_head()

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
        with self._lock, damage_translated(self._store):
            head = self._canonical_head()
            if number is None or number == head.block_number:
                return head
            if not 0 <= number < head.block_number:
                raise ChainError(f"no block {number}; the head is {head.block_number}")
            header = self._header_with(self._hash_of(number))
            if header.block_number != number:
                fact = f"{self._store.path}: block {number} is filed as {header.block_number}"
                raise ports.ChainDamagedError(fact)
            return header

    def _canonical_head(self) -> Header:
        # Another process may have added blocks.
        if not self._store.is_fixed:
            head_hash = self._database[chain_store.HEAD_KEY]
            if head_hash != self._newest_header.hash:
                self._newest_header = self._header_with(head_hash)
        return self._newest_header

    def _verified_head(self) -> Header:
        """Return the head, after verifying genesis, head and head state against their hashes."""
        if self.genesis_hash not in self._database:
            raise ports.ChainDamagedError("block 0 is missing or is not the recorded one")
        _ = self._database[self.genesis_hash]
        try:
            head = self._header_with(self._database[chain_store.HEAD_KEY])
            _ = self._database[head.state_root]
        except KeyError as error:
            fact = "the head of the chain is missing, or its state"
            raise ports.ChainDamagedError(fact) from error
        return head

    def _hash_of(self, number: int) -> bytes:
        return bytes(rlp.decode(self._database[chain_store.number_key(number)], _HASH))

    def _header_with(self, block_hash: bytes) -> Header:
        if len(block_hash) != chain_store.HASH_BYTES:  # another key's value is not verified
            raise ValueError(f"0x{block_hash[:40].hex()} is not a hash")
        header: Header = rlp.decode(self._database[block_hash], Header)
        header.__dict__["hash"] = block_hash  # the database has compared them
        return header

    def block_number_of(self, block_hash: bytes) -> int | None:
        with self._lock, damage_translated(self._store):
            if block_hash not in self._database:
                return None
            number = int(self._header_with(block_hash).block_number)
            return number if self.header(number).hash == block_hash else None

    def logs(self, query: ports.LogQuery) -> list[ports.Log]:
        selection = chain_store.select(query)
        if selection is None:
            return []
        with self._lock, damage_translated(self._store):
            rows = self._store.rows(*selection)
            numbers = {chain_store.position(row[0])[0] for row in rows}
            hashes = {number: self._hash_of(number) for number in numbers}
            return [log_of_row(row, hashes) for row in rows]

    def transaction(self, transaction_hash: bytes) -> ports.Transaction:
        entry = self.find(transaction_hash)
        if entry is None:
            raise ChainError(f"there is no mined transaction 0x{transaction_hash.hex()}")
        header, _, signed = entry
        with damage_translated(self._store):
            to = checksum(signed.to) if signed.to else None
            place = signed.data, header.block_number, signed.nonce
            return ports.Transaction(signed.hash, checksum(signed.sender), to, *place)

    def find(self, transaction_hash: bytes) -> tuple[Header, int, SignedTransaction] | None:
        with self._lock, damage_translated(self._store):
            try:
                number, index = self._position(transaction_hash)
            except KeyError:
                return None
            header = self.header(number)
            signed = self.transactions(header)[index]
            if signed.hash != transaction_hash:
                fact = f"0x{transaction_hash.hex()} leads to another transaction"
                raise ports.ChainDamagedError(f"{self._store.path}: {fact}")
            return header, index, signed

    def transaction_index(self, transaction_hash: bytes) -> int:
        with self._lock, damage_translated(self._store):
            return self._position(transaction_hash)[1]

    def _position(self, transaction_hash: bytes) -> tuple[int, int]:
        encoded = self._database[chain_store.transaction_key(transaction_hash)]
        number, index = rlp.decode(encoded, _POSITION)
        return number, index

    def transactions(self, header: Header) -> tuple[SignedTransaction, ...]:
        with self._lock, damage_translated(self._store):
            return tuple(map(SignedTransaction.decode, self._items(header.transaction_root)))

    def receipt(self, transaction_hash: bytes) -> ports.Receipt | None:
        entry = self.find(transaction_hash)
        if entry is None:
            return None
        with self._lock, damage_translated(self._store):
            return port_receipt(*entry, self.receipts(entry[0]))

    def receipts(self, header: Header) -> tuple[StoredReceipt, ...]:
        with self._lock, damage_translated(self._store):
            items = self._items(header.receipt_root)
            return tuple(rlp.decode(_typed(item)[1], StoredReceipt) for item in items)

    def _items(self, root: bytes) -> Iterator[bytes]:
        """Yield what a block's trie has under the encoded numbers 0, 1, ..."""
        for index in itertools.count():
            if not (item := self._nodes.value(root, rlp.encode(index))):
                return
            yield item

    def close(self) -> None:
        self._store.close()

    def code(self, address: str, block_number: int | None = None) -> bytes:
        with self._lock, damage_translated(self._store):
            code_hash = self._account(address, block_number).code_hash
            return b"" if code_hash == _NO_CODE else self._database[code_hash]

    def account(self, address: str, block_number: int | None = None) -> tuple[int, int]:
        """Return an account's nonce, and its balance in wei, after a block (None for the head)."""
        with self._lock, damage_translated(self._store):
            account = self._account(address, block_number)
            return account.nonce, account.balance

    def _account(self, address: str, block_number: int | None) -> Any:
        key = keccak(to_canonical(address))
        encoded = self._nodes.value(self.header(block_number).state_root, key)
        return rlp.decode(encoded, _Account) if encoded else _NO_ACCOUNT

    def receipt_of(self, sender: str, nonce: int) -> ports.Receipt | None:
        account = to_canonical(sender)
        with self._lock:
            numbers = range(self.head().number + 1)
            number = bisect_right(numbers, nonce, key=lambda each: self.account(sender, each)[0])
            if number == len(numbers):
                return None
            for signed in self.transactions(self.header(number)):
                if signed.nonce == nonce and bytes(signed.sender) == account:
                    return self.receipt(bytes(signed.hash))
        raise ports.ChainDamagedError(f"{self._store.path}: block {number} lacks a transaction")

    @cached_property
    def _chain(self) -> evm.EvmChain:
        from ledger.chain.embedded import evm

        with damage_translated(self._store, evm.DAMAGE):
            return evm.chain_class(self.chain_id)(evm.OverlayDatabase(self._store))

    def estimate_gas(self, call: ContractCall) -> int:
        from ledger.chain.embedded import evm

        with self._lock, damage_translated(self._store, evm.DAMAGE):
            return evm.estimate_gas(self._chain, call, self.head().hash)

    def call(self, to: str, data: bytes, block_number: int | None = None) -> bytes:
        answer = self.answer(ContractCall(to, data), block_number)
        if answer.failure is not None:
            raise ports.TransactionRevertedError(answer.output)
        return answer.output

    def answer(
        self, call: ContractCall, block_number: int | None = None, *, in_snapshot: bool = False
    ) -> CallAnswer:
        """Return the result of a call after a block; other readers do not wait for a snapshot's."""
        from ledger.chain.embedded import evm

        # Participants ask the same of each block several times.
        header = self.header(block_number)
        key = header.hash, call
        with self._answers_lock:
            if key in self._answers:
                self._answers.move_to_end(key)
                return self._answers[key]
        with self.snapshot() if in_snapshot else contextlib.nullcontext(self) as reader:
            computation = reader.execute(call, header.block_number)
        answer = CallAnswer(bytes(computation.output), evm.failure_of(computation))
        if len(call.data) + len(answer.output) <= 4096:
            with self._answers_lock:
                self._answers[key] = answer
                if len(self._answers) > 256:
                    self._answers.popitem(last=False)
        return answer

    def execute(self, call: ContractCall, block_number: int | None = None) -> ComputationAPI:
        """Run a call after a block, None for the head; return its output, error and gas."""
        from ledger.chain.embedded import evm

        with self._lock, damage_translated(self._store, evm.DAMAGE):
            return evm.execute(self._chain, call, self.header(block_number).hash)

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
        from ledger.chain.embedded import evm, integrity

        with self._lock, damage_translated(self._store, evm.DAMAGE):
            identity = self.chain_id, self.genesis_hash
            integrity.verify_chain(self._store, *identity, execute=execute, progress=progress)

    def verify_can_extend(self) -> None:
        from ledger.chain.embedded import evm, integrity

        with self._lock, damage_translated(self._store, evm.DAMAGE):
            integrity.verify_can_extend(self._store, self._canonical_head())

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
