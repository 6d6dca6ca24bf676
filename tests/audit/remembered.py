"""A chain that nobody writes to any more: asked for each thing once, however many audits read."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from ledger.chain.contract.committee_ledger import CommitteeLedger
from tests.audit.passed_on import PassedOn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ledger.chain.ports import Block, ChainReader, Log, TopicFilter, Transaction

T = TypeVar("T")


class RememberedChain(PassedOn):
    """A closed chain's answers, of which each is fetched and decoded once."""

    def __init__(self, chain: ChainReader) -> None:
        self._chain = chain
        self._answers: dict[tuple[object, ...], Any] = {}

    @property
    def true(self) -> ChainReader:
        return self._chain

    def passed(self, name: str, ask: Callable[[ChainReader], T]) -> T:  # noqa: ARG002
        return ask(self._chain)

    def block(self, number: int) -> Block:
        return self._once(("block", number), lambda: super(RememberedChain, self).block(number))

    def call(self, to: str, data: bytes, block_number: int | None = None) -> bytes:
        asked = (to, data, block_number)
        return self._once(("call", *asked), lambda: super(RememberedChain, self).call(*asked))

    def code(self, address: str) -> bytes:
        return self._once(("code", address), lambda: super(RememberedChain, self).code(address))

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
        wanted = tuple(tuple(one) if isinstance(one, list | tuple) else one for one in topics)
        bounds = (from_block, to_block, limit)

        def ask() -> list[Log]:
            return super(RememberedChain, self).logs(
                address, topics, *bounds, descending=descending
            )

        return list(self._once(("logs", address, wanted, *bounds, descending), ask))

    def transaction(self, transaction_hash: bytes) -> Transaction:
        return self._once(
            ("transaction", transaction_hash),
            lambda: super(RememberedChain, self).transaction(transaction_hash),
        )

    def _once(self, asked: tuple[object, ...], ask: Callable[[], T]) -> T:
        if asked not in self._answers:
            self._answers[asked] = ask()
        answer: T = self._answers[asked]
        return answer


@lru_cache(maxsize=4)
def remembered(ledger: CommitteeLedger) -> CommitteeLedger:
    """Return the contract on its chain remembered; what a file says of itself is left out.

    Args:
        ledger: on a chain that nobody writes to any more.
    """
    chain = RememberedChain(ledger.chain)
    return CommitteeLedger(chain, ledger.address, ledger.from_block)
