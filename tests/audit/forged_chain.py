"""A chain that lies: it passes a real chain's answers on and changes some, as a node could."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from eth_abi.abi import encode
from eth_abi.exceptions import EncodingError
from eth_utils.abi import collapse_if_tuple

from ledger.chain.contract import abi
from ledger.chain.contract.committee_ledger import CommitteeLedger
from ledger.chain.ports import Block, ChainReader, ChainUnreachableError, Log, Receipt, Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    from ledger.chain.ports import TopicFilter


def unchanged(value: Any) -> Any:
    return value


@dataclass
class ForgedChain:
    """A chain in front of another; every answer goes through the function of its kind.

    Attributes:
        chain: the true one.
        logs_of: changes lists of logs.
        transaction_of: changes transactions.
        block_of: changes blocks.
        answer_of: changes answers of calls, given the called function's name.
        code_of: changes the contract's code.
        id_of: changes the chain's id.
        most_calls: reads that are answered before the node goes away.
    """

    chain: ChainReader
    logs_of: Callable[[list[Log]], list[Log]] = unchanged
    transaction_of: Callable[[Transaction], Transaction] = unchanged
    block_of: Callable[[Block], Block] = unchanged
    answer_of: Callable[[str, bytes], bytes] = lambda _name, data: data
    code_of: Callable[[bytes], bytes] = unchanged
    id_of: Callable[[int], int] = unchanged
    most_calls: int = 1_000_000

    @property
    def chain_id(self) -> int:
        return self.id_of(self.chain.chain_id)

    @property
    def genesis_hash(self) -> bytes:
        return self.chain.genesis_hash

    def head(self) -> Block:
        self._count()
        return self.chain.head()

    def block(self, number: int) -> Block:
        self._count()
        return self.block_of(self.chain.block(number))

    def finalized(self) -> int:
        return self.chain.finalized()

    def call(self, to: str, data: bytes, block_number: int | None = None) -> bytes:
        self._count()
        names = {abi.selector(name): name for name in ("deployment", "state")}
        return self.answer_of(names[data[:4]], self.chain.call(to, data, block_number))

    def code(self, address: str) -> bytes:
        self._count()
        return self.code_of(self.chain.code(address))

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
        self._count()
        found = self.chain.logs(address, topics, from_block, to_block, limit, descending=descending)
        return self.logs_of(found)

    def transaction(self, transaction_hash: bytes) -> Transaction:
        self._count()
        return self.transaction_of(self.chain.transaction(transaction_hash))

    def receipt(self, transaction_hash: bytes) -> Receipt | None:
        return self.chain.receipt(transaction_hash)

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[ForgedChain]:
        yield self

    def close(self) -> None:
        """The true chain stays open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _count(self) -> None:
        self.most_calls -= 1
        if self.most_calls < 0:
            raise ChainUnreachableError("the node went away")


def forged(ledger: CommitteeLedger, **changes: Any) -> CommitteeLedger:
    """Return the contract as a lying chain shows it."""
    chain = ForgedChain(ledger.chain, **changes)
    return CommitteeLedger(chain, ledger.address, ledger.from_block)


def variants(value: Any) -> Iterator[Any]:
    """Yield the ways in which one value can be wrong by as little as possible."""
    match value:
        case bool():
            yield not value
        case int():
            yield value ^ 1
            if value:
                yield 0
        case bytes():
            yield bytes([value[0] ^ 1]) + value[1:]
            yield value[:-1] + bytes([value[-1] ^ 128])
        case tuple():
            for place in {0, len(value) // 2, len(value) - 1} if value else set():
                for wrong in variants(value[place]):
                    yield (*value[:place], wrong, *value[place + 1 :])
            if len(value) > 1:
                yield value[:-1]
                yield value[::-1]
            if value:
                yield (*value, value[-1])
        case _:
            raise TypeError(value)


def wrong_values(types: list[str], values: tuple[Any, ...], place: int) -> Iterator[bytes]:
    """Yield encodings of the values with the one at a place wrong."""
    right = encode(types, values)
    for wrong in variants(values[place]):
        try:
            data = encode(types, [*values[:place], wrong, *values[place + 1 :]])
        except EncodingError:
            continue  # a struct without a field is no variant
        if data != right:
            yield data


def input_types(name: str) -> list[str]:
    return [collapse_if_tuple(entry) for entry in abi.artifact().abi[name]["inputs"]]


def field_types(event: str) -> list[str]:
    inputs = abi.artifact().abi[event]["inputs"]
    return [collapse_if_tuple(entry) for entry in inputs if not entry["indexed"]]


def field_names(event: str) -> list[str]:
    return [entry["name"] for entry in abi.artifact().abi[event]["inputs"] if not entry["indexed"]]


def answer_types(function: str) -> list[str]:
    return [entry["type"] for entry in abi.output_fields(function)]
