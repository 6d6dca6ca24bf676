"""A chain on revm that keeps its history: as much of a chain as an audit reads.

A block costs a tenth of one on the embedded chain, and no disk. What the file of an embedded
chain says of itself is not there: an audit of that has a run on an embedded chain.
"""

from __future__ import annotations

import contextlib
from typing import Self

from ledger.chain.ports import Block, Log, LogQuery, Receipt, Transaction, TransactionRevertedError
from ledger.protocol import encoding
from ledger.protocol.errors import ChainError
from tests.contracts.revm_chain import RevmChain

_Sent = tuple[int, str | None, bytes, int]  # number of the block before it, target, data and gas


class RevmHistory(RevmChain):
    """A `ChainWriter` whose past can be read.

    Args:
        is_beacon: whether blocks have the hashes that the machine gives a contract. They say only
            the number; without, they say what came before, and those of two branches differ.
    """

    def __init__(self, *, is_beacon: bool = False) -> None:
        super().__init__()
        self._is_beacon = is_beacon
        self._sent: list[_Sent] = []
        self._mined: dict[bytes, tuple[Transaction, Receipt]] = {}
        self._hashes = [encoding.keccak256(b"genesis")]
        self._past: dict[int, RevmChain] = {}

    def copied(self, number: int | None = None) -> Self:
        """Return a chain that has come to the same, up to a block, and goes on by itself."""
        last = self.head().number if number is None else number
        other = type(self)(is_beacon=self._is_beacon)
        for before, to, data, gas in self._sent:
            if before < last:
                other.mine(before - other.head().number)
                with contextlib.suppress(TransactionRevertedError):
                    other.send(to, data, gas)
        other.mine(last - other.head().number)
        return other

    @property
    def genesis_hash(self) -> bytes:
        return self._block(0).hash

    def block(self, number: int) -> Block:
        if not 0 <= number <= self.head().number:
            raise ChainError(f"there is no block {number}")
        return self._block(number)

    def finalized(self) -> int:
        return self.head().number

    def call(self, to: str, data: bytes, block_number: int | None = None) -> bytes:
        if block_number in {None, self.head().number}:
            return super().call(to, data)
        number = self.block(block_number).number
        if number not in self._past:
            self._past[number] = self.copied(number)
        return self._past[number].call(to, data)

    def logs(self, query: LogQuery) -> list[Log]:
        return query.of(log for _, receipt in self._mined.values() for log in receipt.logs)

    def transaction(self, transaction_hash: bytes) -> Transaction:
        if transaction_hash not in self._mined:
            raise ChainError(f"there is no transaction 0x{transaction_hash.hex()}")
        return self._mined[transaction_hash][0]

    def receipt(self, transaction_hash: bytes) -> Receipt | None:
        mined = self._mined.get(transaction_hash)
        return None if mined is None else mined[1]

    def send(self, to: str | None, data: bytes, gas: int, *, value: int = 0) -> Receipt:
        head = self.head()
        self._sent.append((head.number, to, data, gas))
        self._hashes.append(encoding.keccak256(head.hash + data))
        nonce = self._evm.basic(self.sender).nonce
        receipt = super().send(to, data, gas, value=value)
        own = receipt.transaction_hash
        sent = Transaction(own, self.sender, to, data, receipt.block_number, nonce)
        self._mined[own] = (sent, receipt)
        return receipt

    def mines_at_once(self) -> bool:
        return True

    def require_suitable(self, *, needs_block_hash: bool) -> None:
        """The machine is of Prague."""

    def next_nonce(self) -> int:
        return len(self._sent)

    def create_contract(
        self,
        creation: bytes,
        gas: int,
        nonce: int,
        *,
        again: bool = False,  # noqa: ARG002 - nothing is pending here
    ) -> Receipt:
        assert nonce == self.next_nonce()
        return self.send(None, creation, gas)

    def receipt_of(self, sender: str, nonce: int) -> Receipt | None:
        assert sender == self.sender, "no other account sends here"
        if nonce >= len(self._sent):
            return None
        hashes = {transaction.block_number: own for own, (transaction, _) in self._mined.items()}
        before = self._sent[nonce][0]
        assert before + 1 in hashes, "of a transaction that reverted nothing is known"
        return self.receipt(hashes[before + 1])

    def wait_for_pending(self, sender: str) -> None:
        """Nothing is pending here."""

    def _hash(self, number: int) -> bytes:
        if self._is_beacon:
            return super()._hash(number)
        while len(self._hashes) <= number:
            self._hashes.append(encoding.keccak256(self._hashes[-1]))
        return self._hashes[number]
