"""A chain in front of others: every read is passed on by one method, which may do what it likes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

from ledger.chain.ports import Block, ChainBase, ChainReader, Log, LogQuery, Receipt, Transaction

T = TypeVar("T")


class PassedOn(ChainBase, ABC):
    """A `ChainReader` whose answers are other chains'; those stay open when it is closed.

    It is taken for a file, which has no node in front of it, unless it says otherwise.
    """

    @property
    @abstractmethod
    def true(self) -> ChainReader:
        """The chain that gives it its name."""

    @abstractmethod
    def passed(self, name: str, ask: Callable[[ChainReader], T], *asked: object) -> T:
        """Return an answer to a call of this name with these arguments."""

    @property
    def chain_id(self) -> int:
        return self.true.chain_id

    @property
    def genesis_hash(self) -> bytes:
        return self.true.genesis_hash

    def head(self) -> Block:
        return self.passed("head", lambda chain: chain.head())

    def block(self, number: int) -> Block:
        return self.passed("block", lambda chain: chain.block(number), number)

    def finalized(self) -> int:
        return self.passed("finalized", lambda chain: chain.finalized())

    def call(self, to: str, data: bytes, block_number: int | None = None) -> bytes:
        asked = (to, data, block_number)
        return self.passed("call", lambda chain: chain.call(*asked), *asked)

    def code(self, address: str) -> bytes:
        return self.passed("code", lambda chain: chain.code(address), address)

    def logs(self, query: LogQuery) -> list[Log]:
        return self.passed("logs", lambda chain: chain.logs(query), query)

    def transaction(self, transaction_hash: bytes) -> Transaction:
        return self.passed(
            "transaction", lambda chain: chain.transaction(transaction_hash), transaction_hash
        )

    def receipt(self, transaction_hash: bytes) -> Receipt | None:
        return self.passed(
            "receipt", lambda chain: chain.receipt(transaction_hash), transaction_hash
        )
