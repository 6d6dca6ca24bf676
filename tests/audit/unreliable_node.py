"""A node that fails, forgets, is slow, and answers now from one branch and now from another."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ledger.chain.ports import ChainReader, ChainUnreachableError, NotServedError, Transaction
from tests.audit.passed_on import PassedOn

T = TypeVar("T")
ERRORS = (
    "the node says: transaction indexing is in progress",
    "the node answers null",
    "the node did not answer within 30 s",
    "the node says: missing trie node",
)


@dataclass
class UnreliableNode(PassedOn):
    """A chain behind a node that nobody would choose.

    Attributes:
        branches: the chains that it may answer from; equal up to the final block.
        failing: how likely a call is not served.
        moving: how likely it goes over to another branch before a call.
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
    node: str | None = "http://unreliable"

    @property
    def true(self) -> ChainReader:
        return self.branches[0]

    def finalized(self) -> int:
        return self.passed("finalized", lambda _chain: self.final)

    def transaction(self, transaction_hash: bytes) -> Transaction:
        if self.dropped.setdefault(transaction_hash, self.chance.random() < self.lost):
            raise NotServedError("the node has no transaction of this hash")
        return super().transaction(transaction_hash)

    def passed(self, name: str, ask: Callable[[ChainReader], T], *_asked: object) -> T:
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
