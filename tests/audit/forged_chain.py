"""A chain that lies: it passes a real chain's answers on and changes some, as a node could."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from eth_abi.abi import encode
from eth_abi.exceptions import EncodingError
from eth_utils.abi import collapse_if_tuple

from ledger.chain.contract import abi
from ledger.chain.contract.ledger import CommitteeLedger
from ledger.chain.ports import Block, ChainReader, ChainUnreachableError, Log, Transaction
from tests.audit.passed_on import PassedOn

T = TypeVar("T")


CHANGED = {"block", "code", "logs", "transaction"}


def unchanged(value: Any) -> Any:
    return value


@dataclass
class ForgedChain(PassedOn):
    """A chain in front of another; every answer goes through the function of its kind.

    Attributes:
        most_calls: reads that are answered before the node goes away.
        node: the address of the node that it is; None for a file.
    """

    chain: ChainReader
    logs_of: Callable[[list[Log]], list[Log]] = unchanged
    transaction_of: Callable[[Transaction], Transaction] = unchanged
    block_of: Callable[[Block], Block] = unchanged
    answer_of: Callable[[str, bytes], bytes] = lambda _name, data: data
    code_of: Callable[[bytes], bytes] = unchanged
    id_of: Callable[[int], int] = unchanged
    most_calls: int = 1_000_000
    node: str | None = None

    @property
    def true(self) -> ChainReader:
        return self.chain

    @property
    def chain_id(self) -> int:
        return self.id_of(self.chain.chain_id)

    def call(self, to: str, data: bytes, block_number: int | None = None) -> bytes:
        names = {abi.selector(name): name for name in ("deployment", "state")}
        return self.answer_of(names[data[:4]], super().call(to, data, block_number))

    def passed(self, name: str, ask: Callable[[ChainReader], T], *_asked: object) -> T:
        if name not in {"finalized", "receipt"}:
            self.most_calls -= 1
        if self.most_calls < 0:
            raise ChainUnreachableError("the node went away")
        change = getattr(self, f"{name}_of") if name in CHANGED else unchanged
        answer: T = change(ask(self.chain))
        return answer


def forged(ledger: CommitteeLedger, **changes: Any) -> CommitteeLedger:
    chain = ForgedChain(ledger.chain, **changes)
    return CommitteeLedger(chain, ledger.address, ledger.from_block)


def variants(value: Any, ways: int) -> Iterator[Any]:
    """Yield the ways in which one value can be wrong by as little as possible.

    Args:
        ways: in how many of them another part than its first is wrong.
    """
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
            for place in sorted({0, len(value) // 2, len(value) - 1} if value else ()):
                every = variants(value[place], ways)
                for wrong in every if place == 0 else itertools.islice(every, ways):
                    yield (*value[:place], wrong, *value[place + 1 :])
            if len(value) > 1:
                yield value[:-1]
                yield value[::-1]
            if value:
                yield (*value, value[-1])
        case _:
            raise TypeError(value)


def wrong_values(
    types: list[str], values: tuple[Any, ...], place: int, ways: int
) -> Iterator[bytes]:
    """Yield encodings of the values with the one at a place wrong; see `variants`."""
    right = encode(types, values)
    for wrong in variants(values[place], ways):
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
    return [entry["type"] for entry in abi.artifact().abi[function]["outputs"][0]["components"]]
