"""Read access to the embedded chain, also while another process writes to it.

Nothing here writes or takes the writer's lock.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from eth.constants import CREATE_CONTRACT_ADDRESS
from eth.exceptions import VMError
from eth.vm.spoof import SpoofTransaction

from ledger.chain.addresses import to_canonical
from ledger.chain.embedded import continuation, evm, evm_values, integrity
from ledger.chain.embedded.block_reader import BlockReader
from ledger.chain.embedded.call_answers import CallAnswer, CallAnswers
from ledger.chain.embedded.file.chain_store import ChainStore
from ledger.chain.embedded.file.head_note import (
    AcknowledgedBlock,
    read_note,
    verify_not_behind,
    verify_nothing_acknowledged,
)
from ledger.chain.ports import ChainDamagedError, Receipt, TransactionRevertedError
from ledger.protocol.errors import ChainError

if TYPE_CHECKING:
    from eth.abc import ComputationAPI, StateAPI

_ZERO_ADDRESS = "0x" + "00" * 20


class EmbeddedReader(BlockReader):
    """A chain file, read-only; shows new blocks at once. Safe to share between threads."""

    def __init__(
        self, store: ChainStore, noted: AcknowledgedBlock | ChainError | None = None
    ) -> None:
        super().__init__(store)
        self._noted = noted
        self._answers = CallAnswers()

    @classmethod
    def open(
        cls, path: Path, *, chain_id: int | None = None, genesis_hash: bytes | None = None
    ) -> EmbeddedReader:
        """Return a chain file opened for reading; None accepts any id or block 0."""
        try:
            store = ChainStore.open_reading(path)
        except ChainError:
            verify_nothing_acknowledged(path)
            raise
        try:
            chain = EmbeddedReader(store)
            chain.verify_identity(chain_id, genesis_hash)
        except ChainError:
            store.close()
            raise
        return chain

    def code(self, address: str, block_number: int | None = None) -> bytes:
        """Return a contract's runtime code after a block (None: the head); may be empty."""
        contract = to_canonical(address)
        with self._lock, evm.damage_translated(self._store):
            return bytes(self._state(block_number).get_code(contract))

    def account(self, address: str, block_number: int | None = None) -> tuple[int, int]:
        """Return an account's nonce, and its balance in wei, after a block (None for the head)."""
        owner = to_canonical(address)
        with self._lock, evm.damage_translated(self._store):
            state = self._state(block_number)
            return state.get_nonce(owner), state.get_balance(owner)

    def receipt_of(self, sender: str, nonce: int) -> Receipt | None:
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
        raise ChainDamagedError(f"{self._store.path}: block {number} lacks a transaction")

    def storage(self, address: str, slot: int, block_number: int | None = None) -> int:
        """Return one storage word of a contract after a block (None for the head)."""
        contract = to_canonical(address)
        with self._lock, evm.damage_translated(self._store):
            return int(self._state(block_number).get_storage(contract, slot))

    def _state(self, block_number: int | None) -> StateAPI:
        return self._chain.get_vm(self.header(block_number)).state

    def estimate_gas(
        self, to: str | None, data: bytes, *, sender: str = _ZERO_ADDRESS, value: int = 0
    ) -> int:
        """Return the gas that a transaction would need at the head."""
        origin = to_canonical(sender)
        contract = to_canonical(to) if to is not None else CREATE_CONTRACT_ADDRESS
        with self._lock, evm.damage_translated(self._store, (VMError,)):
            head = self.header()
            builder = self._chain.get_vm(head).get_transaction_builder()
            unsigned = builder.create_unsigned_transaction(
                nonce=self.account(sender)[0],
                gas_price=0,
                gas=21_000,
                to=contract,
                value=value,
                data=data,
            )
            try:
                spoofed = SpoofTransaction(unsigned, from_=origin)
                return self._chain.estimate_gas(spoofed, head)  # type: ignore[arg-type]
            except VMError as error:
                raise TransactionRevertedError(evm_values.revert_data(error)) from error

    def call(self, to: str, data: bytes, block_number: int | None = None) -> bytes:
        """Return a contract's answer; see `ChainReader.call`."""
        # A participant asks the same of each block several times.
        with self._lock:
            key = (self.header(block_number).hash, to, data)
            answer = self._answers.get(key)
            if answer is None:
                computation = self.execute(to, data, block_number)
                answer = CallAnswer(bytes(computation.output), computation.is_error)
                self._answers.put(key, data, answer)
        if answer.is_reverted:
            raise TransactionRevertedError(answer.output)
        return answer.output

    def execute(
        self,
        to: str | None,
        data: bytes,
        block_number: int | None = None,
        *,
        sender: str = _ZERO_ADDRESS,
        gas: int | None = None,
        value: int = 0,
    ) -> ComputationAPI:
        """Run a call without recording it; return its output, error and gas.

        Args:
            to: the contract; None runs `data` as creation code.
            block_number: the block whose state is used; None for the head.
            sender: address of the caller.
            gas: the limit; None for a whole block's.
            value: wei that the contract sees; none are transferred.
        """
        origin = to_canonical(sender)
        contract = to_canonical(to if to is not None else _ZERO_ADDRESS)
        with self._lock, evm.damage_translated(self._store):
            header = self.header(block_number)
            machine = self._chain.get_vm(header)
            return machine.execute_bytecode(
                origin=origin,
                gas_price=0,
                gas=header.gas_limit if gas is None else min(gas, header.gas_limit),
                to=contract,
                sender=origin,
                value=value,
                data=data if to is not None else b"",
                code=machine.state.get_code(contract) if to is not None else data,
                code_address=contract,
            )

    def acknowledged(self) -> AcknowledgedBlock | None:
        """Return the newest block that this home has acknowledged; None if there is no note.

        A chain without this block was rolled back. A snapshot answers with the note from before it
        was taken, so its own head is never older for that reason.
        """
        if not self._store.is_snapshot:
            return read_note(self._store.path)
        if isinstance(self._noted, ChainError):
            raise self._noted
        return self._noted

    def verify_not_behind(self) -> None:
        """Verify that the chain has the newest block that this home has acknowledged."""
        noted = self.acknowledged()
        if noted is not None:
            verify_not_behind(self, noted, self._store.path)

    @property
    def wal_bytes(self) -> int:
        """Size of the write-ahead log, in bytes."""
        return self._store.wal_bytes

    def verify(
        self, *, execute: bool = False, progress: Callable[[int], None] | None = None
    ) -> None:
        """Verify the whole chain as it is now, and that it can be extended.

        Args:
            execute: also execute every transaction again, by py-evm's own parts, and compare the
                state roots.
            progress: called with the number of each verified block.
        """
        if not self._store.is_snapshot:
            with self.snapshot() as snapshot:
                snapshot.verify(execute=execute, progress=progress)
            return
        with self._lock, evm.damage_translated(self._store):
            database = evm.OverlayDatabase(self._store)
            integrity.verify_chain(
                self._store,
                database,
                evm.chain_class(self.chain_id, is_reference=True)(database),
                self.genesis_hash,
                execute=execute,
                progress=progress,
            )

    def verify_can_extend(self) -> None:
        """Verify that the next block can be added; see `continuation`."""
        with self._lock, evm.damage_translated(self._store):
            continuation.verify_can_extend(self._store, self._chain.get_canonical_head())

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[EmbeddedReader]:
        """Open a view of the chain as it is now, which stays unchanged while it is open."""
        if self._store.is_snapshot:
            yield self
            return
        path = self._store.path
        noted = _noted(path)
        with contextlib.closing(ChainStore.open_reading(path, is_snapshot=True)) as store:
            reader = EmbeddedReader(store, noted)
            reader.verify_identity(self.chain_id, self.genesis_hash)
            yield reader


def _noted(path: Path) -> AcknowledgedBlock | ChainError | None:
    """Return the note, or its error, which concerns only callers of `acknowledged`."""
    try:
        return read_note(path)
    except ChainError as error:
        return error
