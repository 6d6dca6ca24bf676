"""A node that fails, forgets, is slow, and answers now from one branch and now from another."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ledger.chain.ports import (
    Block,
    ChainReader,
    ChainUnreachableError,
    Log,
    NotServedError,
    Receipt,
    Transaction,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    from ledger.chain.ports import TopicFilter

T = TypeVar("T")
ERRORS = (
    "the node says: transaction indexing is in progress",
    "the node answers null",
    "the node did not answer within 30 s",
    "the node says: missing trie node",
)


@dataclass
class UnreliableNode:
    """A chain behind a node that nobody would choose.

    Attributes:
        branches: the chains that it may answer from; equal up to the final block.
        final: the newest final block.
        chance: of every choice.
        failing: how likely a call is not served.
        moving: how likely it goes over to another branch before a call.
        leaving: how likely it goes away for good.
        lost: how likely a transaction is among those that it has dropped.
        lie: changes one answer, given the name of the call.
    """

    branches: Sequence[ChainReader]
    final: int
    chance: random.Random
    failing: float = 0.0
    moving: float = 0.0
    leaving: float = 0.0
    lost: float = 0.0
    lie: Callable[[str, Any], Any] = lambda _call, answer: answer
    is_gone: bool = False
    dropped: dict[bytes, bool] = field(default_factory=dict)
    branch: int = 0

    @property
    def chain_id(self) -> int:
        return self.branches[0].chain_id

    @property
    def genesis_hash(self) -> bytes:
        return self.branches[0].genesis_hash

    def head(self) -> Block:
        return self._answer("head", lambda chain: chain.head())

    def block(self, number: int) -> Block:
        return self._answer("block", lambda chain: chain.block(number))

    def finalized(self) -> int:
        return self._answer("finalized", lambda _chain: self.final)

    def call(self, to: str, data: bytes, block_number: int | None = None) -> bytes:
        return self._answer("call", lambda chain: chain.call(to, data, block_number))

    def code(self, address: str) -> bytes:
        return self._answer("code", lambda chain: chain.code(address))

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
        bounds = (from_block, to_block, limit)
        return self._answer(
            "logs", lambda chain: chain.logs(address, topics, *bounds, descending=descending)
        )

    def transaction(self, transaction_hash: bytes) -> Transaction:
        if self.dropped.setdefault(transaction_hash, self.chance.random() < self.lost):
            raise NotServedError("the node has no transaction of this hash")
        return self._answer("transaction", lambda chain: chain.transaction(transaction_hash))

    def receipt(self, transaction_hash: bytes) -> Receipt | None:
        return self._answer("receipt", lambda chain: chain.receipt(transaction_hash))

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[UnreliableNode]:
        yield self

    def close(self) -> None:
        """The branches stay open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _answer(self, name: str, ask: Callable[[ChainReader], T]) -> T:
        self.is_gone = self.is_gone or self.chance.random() < self.leaving
        if self.is_gone:
            raise ChainUnreachableError("the node does not answer")
        if self.chance.random() < self.failing:
            raise NotServedError(self.chance.choice(ERRORS))
        if self.chance.random() < self.moving:
            self.branch = self.chance.randrange(len(self.branches))
        try:
            answer: T = self.lie(name, ask(self.branches[self.branch]))
        except (NotServedError, ChainUnreachableError):
            raise
        except Exception as error:
            raise NotServedError(f"the node says: {error}") from error
        return answer
