"""A chain that nobody writes to any more: asked for each thing once, however many audits read."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import lru_cache
from typing import Any, TypeVar

from ledger.chain.contract.ledger import CommitteeLedger
from ledger.chain.ports import ChainReader
from tests.audit.passed_on import PassedOn

T = TypeVar("T")


class RememberedChain(PassedOn):
    """A closed chain's answers, of which each is fetched and decoded once."""

    def __init__(self, chain: ChainReader) -> None:
        self._chain = chain
        self._answers: dict[str, Any] = {}

    @property
    def true(self) -> ChainReader:
        return self._chain

    def passed(self, name: str, ask: Callable[[ChainReader], T], *asked: object) -> T:
        place = repr((name, asked))
        if place not in self._answers:
            self._answers[place] = ask(self._chain)
        answer: T = copy(self._answers[place])
        return answer


@lru_cache(maxsize=4)
def remembered(ledger: CommitteeLedger) -> CommitteeLedger:
    """Return the contract on its chain remembered; what a file says of itself is left out."""
    chain = RememberedChain(ledger.chain)
    return CommitteeLedger(chain, ledger.address, ledger.from_block)
