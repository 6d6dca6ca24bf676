"""The contract's committed artefact, and the encoding of its calls, results, events and reverts.

The fast codec reads the layout that every compiler produces, in a tenth of the time of a general
one. Data in any other layout, and values that have to be converted or refused, are left to the
general codec, so the same are accepted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from struct import Struct
from typing import Any, cast

from eth_abi.abi import decode, encode
from eth_abi.exceptions import DecodingError
from eth_utils.abi import (
    collapse_if_tuple,
    event_abi_to_log_topic,
    function_abi_to_4byte_selector,
    get_abi_input_types,
    get_abi_output_types,
)

from ledger.chain.ports import NotServedError, TransactionRevertedError
from ledger.protocol.encoding import keccak
from ledger.protocol.errors import REVERT_PREFIX, ChainError, CmflError, ProtocolRefusal, Refusal

_WORD = 32
_SELECTOR = 4
_ANY = 2**256
_BOOLEAN = 2
"""The bound of a bool; that of the smallest number is 2**8."""

_LONGEST = 256
"""Most elements of a list argument: the contract refuses every longer list."""

_LEAF = re.compile(r"uint([0-9]+)|bytes32|bool")
_FIXED = re.compile(r"(.*)\[([0-9]+)\]")


@dataclass(frozen=True, slots=True)
class _Row:
    """Consecutive words: a tuple, an array of fixed length, or one value.

    Attributes:
        bounds: exclusive upper bound of each word's unsigned integer; 2 for a bool, None: 32 bytes.
        is_leaf: whether it is a single value, and not a tuple of one.
    """

    bounds: tuple[int | None, ...]
    is_leaf: bool = False
    split: Struct = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "split", _words(len(self.bounds)))

    def words(self, value: Any) -> list[bytes]:
        if self.is_leaf:
            return [_word(value, self.bounds[0])]
        if not isinstance(value, list | tuple) or len(value) != len(self.bounds):
            raise ValueError("no such tuple")
        return list(map(_word, value, self.bounds))


@dataclass(frozen=True, slots=True)
class _List:
    """A list of any length; its head is one word, the offset of its body."""

    part: _Row
    bounds: tuple[int | None, ...] = (_ANY,)

    def read(self, data: bytes, at: int) -> tuple[tuple[Any, ...], int]:
        """Return the values of the list at an offset, and the offset of its end."""
        split, first = self.part.split, at + _WORD
        length = int.from_bytes(data[at:first])
        end = first + split.size * length
        if len(data) < first or len(data) < end:
            raise ValueError("cut off")
        rows = split.iter_unpack(memoryview(data)[first:end])
        values = iter(_values([word for row in rows for word in row], self.part.bounds * length))
        if self.part.is_leaf:
            return tuple(values), end
        return tuple(zip(*[values] * len(self.part.bounds), strict=True)), end

    def words(self, values: Any) -> list[bytes]:
        if not isinstance(values, list | tuple):
            raise TypeError("no list")
        return [
            len(values).to_bytes(_WORD),
            *(word for value in values for word in self.part.words(value)),
        ]


def _values(words: Iterable[bytes], bounds: tuple[int | None, ...]) -> list[Any]:
    """Return the values of words."""
    values: list[Any] = []
    for word, bound in zip(words, bounds, strict=True):
        if bound is None:
            values.append(word)
            continue
        value = int.from_bytes(word)
        if value >= bound:
            raise ValueError("out of range")
        values.append(value == 1 if bound == _BOOLEAN else value)
    return values


def _word(value: Any, bound: int | None) -> bytes:
    if bound is None:
        if isinstance(value, bytes) and len(value) == _WORD:
            return value
    elif type(value) is (bool if bound == _BOOLEAN else int) and 0 <= value < bound:
        return int(value).to_bytes(_WORD)
    raise ValueError("another type, or out of range")


@lru_cache(maxsize=64)
def _words(count: int) -> Struct:
    return Struct(f"{_WORD}s" * count)


_Part = _Row | _List


@dataclass(frozen=True, slots=True)
class _Plan:
    """A plan of encoding and decoding: the parts, each with its first word and its end."""

    parts: tuple[tuple[int, int, _Part], ...]
    bounds: tuple[int | None, ...]

    @staticmethod
    def of(parts: list[_Part]) -> _Plan:
        ends = [sum(len(part.bounds) for part in parts[: i + 1]) for i in range(len(parts))]
        spans = zip([0, *ends], ends, parts, strict=False)
        return _Plan(tuple(spans), tuple(bound for part in parts for bound in part.bounds))

    def read(self, data: bytes) -> tuple[Any, ...]:
        """Return the decoded values."""
        head = _words(len(self.bounds))
        if len(data) < head.size:
            raise ValueError("cut off")
        values = _values(head.unpack_from(data), self.bounds)
        decoded: list[Any] = []
        at = head.size
        for first, end, part in self.parts:
            if isinstance(part, _List):
                if values[first] != at:
                    raise ValueError("another layout")
                elements, at = part.read(data, at)
                decoded.append(elements)
            else:
                decoded.append(values[first] if part.is_leaf else tuple(values[first:end]))
        if at != len(data):
            raise ValueError("another layout")
        return tuple(decoded)

    def read_call(self, data: bytes) -> tuple[Any, ...]:
        """Return the arguments in call data, as the EVM reads them: see `decode_call_words`."""
        head = _words(len(self.bounds))
        if len(data) < _SELECTOR + head.size:
            raise ValueError("cut off within the head")
        values = _values(head.unpack_from(data, _SELECTOR), self.bounds)
        decoded: list[Any] = []
        for first, end, part in self.parts:
            if isinstance(part, _List):
                at = (_SELECTOR + values[first]) % _ANY
                length = int.from_bytes(data[at : at + _WORD].ljust(_WORD, b"\0"))
                if length > _LONGEST:
                    raise ValueError(f"a list of {length} elements")
                size = _WORD + length * part.part.split.size
                decoded.append(part.read(data[at : at + size].ljust(size, b"\0"), 0)[0])
            else:
                decoded.append(values[first] if part.is_leaf else tuple(values[first:end]))
        return tuple(decoded)

    def write(self, values: Sequence[Any]) -> bytes:
        """Return the encoded values."""
        head: list[bytes] = []
        tail: list[bytes] = []
        for value, (_, _, part) in zip(values, self.parts, strict=True):
            if isinstance(part, _List):
                head.append((_WORD * (len(self.bounds) + len(tail))).to_bytes(_WORD))
                tail += part.words(value)
            else:
                head += part.words(value)
        return b"".join((*head, *tail))


def decode_words(types: tuple[str, ...], data: bytes) -> tuple[Any, ...] | None:
    """Return the values in ABI data, lists as tuples; None if the general decoder is needed.

    None is also the answer to malformed data.
    """
    plan = _plan(types)
    if plan is None:
        return None
    try:
        return plan.read(data)
    except ValueError:
        return None


def decode_call_words(types: tuple[str, ...], data: bytes) -> tuple[Any, ...]:
    """Return the arguments in call data, selector included, as the contract reads them.

    Vyper 0.4.3 checks little. The data must hold the selector and the head: one word for each value
    of fixed length, and one offset for each list. Every value must be in the range of its type,
    and no list may be longer than its bound. Nothing else is refused. A list lies at
    `(4 + offset) mod 2**256`, wherever that is. Bytes behind the end of the data are zero, so data
    may be cut off within a list, and an offset behind the end leads to an empty list. Lists may
    overlap, and be in any order. Bytes that no offset leads to are ignored.
    """
    plan = _plan(types)
    if plan is None:
        raise ValueError(f"no plan for {', '.join(types)}")
    return plan.read_call(data)


def encode_words(types: tuple[str, ...], values: Sequence[Any]) -> bytes | None:
    """Return the ABI encoding of values; None if the general encoder is needed.

    None is also the answer to values that have none.
    """
    plan = _plan(types)
    if plan is None:
        return None
    try:
        return plan.write(values)
    except (TypeError, ValueError):
        return None


@lru_cache(maxsize=32)
def _plan(types: tuple[str, ...]) -> _Plan | None:
    """Return the plan of some types; None if they need the general codec."""
    parts = [part for part in map(_part, types) if part is not None]
    return _Plan.of(parts) if len(parts) == len(types) else None


def _part(abi_type: str) -> _Part | None:
    if abi_type.endswith("[]"):
        inner = _part(abi_type[:-2])
        return _List(inner) if isinstance(inner, _Row) else None
    if abi_type.startswith("(") and abi_type.endswith(")"):
        return _row([_part(inner) for inner in abi_type[1:-1].split(",")])
    fixed = _FIXED.fullmatch(abi_type)
    if fixed is not None:
        return _row([_part(fixed[1])] * int(fixed[2]))
    leaf = _LEAF.fullmatch(abi_type)
    if leaf is None:
        return None
    return _Row((_bound(abi_type, leaf[1]),), is_leaf=True)


def _bound(abi_type: str, bits: str | None) -> int | None:
    if bits is not None:
        return 1 << int(bits)
    return _BOOLEAN if abi_type == "bool" else None


def _row(parts: list[_Part | None]) -> _Row | None:
    leaves = tuple(part for part in parts if isinstance(part, _Row) and part.is_leaf)
    if not leaves or len(leaves) < len(parts):
        return None
    return _Row(tuple(bound for leaf in leaves for bound in leaf.bounds))


ERROR_SELECTOR = keccak(b"Error(string)")[:4]


@dataclass(frozen=True, slots=True)
class Artifact:
    """Compiler output, as committed.

    Attributes:
        runtime: deployed code, without the immutables that follow it.
        sources: sha256 of each source file.
    """

    compiler: str
    abi: dict[str, Any]
    bytecode: bytes
    runtime: bytes
    sources: dict[str, str]


@lru_cache(maxsize=1)
def artifact() -> Artifact:
    """Return the committed artefact."""
    text = (files("contracts") / "artifacts" / "committee_ledger.json").read_text("utf-8")
    data = json.loads(text)
    return Artifact(
        compiler=data["compiler"],
        abi={entry.get("name", entry["type"]): entry for entry in data["abi"]},
        bytecode=bytes.fromhex(data["bytecode"][2:]),
        runtime=bytes.fromhex(data["bytecode_runtime"][2:]),
        sources=data["sources"],
    )


@lru_cache(maxsize=64)
def selector(function: str) -> bytes:
    """Return the four-byte selector of a function."""
    return bytes(function_abi_to_4byte_selector(artifact().abi[function]))


@lru_cache(maxsize=64)
def topic(event: str) -> bytes:
    """Return the first topic of an event's logs."""
    return bytes(event_abi_to_log_topic(artifact().abi[event]))


def call_data(function: str, *arguments: object) -> bytes:
    """Return selector and encoded arguments."""
    return selector(function) + encoded(_types(function), arguments)


def creation_data(*arguments: object) -> bytes:
    """Return creation code and the constructor's encoded arguments."""
    return artifact().bytecode + encoded(_types("constructor"), arguments)


def arguments_of(function: str, data: bytes) -> tuple[Any, ...]:
    """Return the arguments of call data as the contract reads them; see `decode_call_words`."""
    if data[:4] != selector(function):
        raise ChainError(f"the transaction does not call {function}")
    try:
        return decode_call_words(_types(function), data)
    except ValueError as error:
        raise ChainError(f"arguments of {function}: {error}") from error


def result_of(function: str, data: bytes) -> tuple[Any, ...]:
    """Return the decoded results of a call."""
    try:
        return _decoded_values(_result_types(function), data, f"result of {function}")
    except ChainError as error:
        raise NotServedError(f"{error}: not an answer of this contract") from error


def output_fields(function: str) -> list[dict[str, Any]]:
    """Return the ABI entries of the struct that a function returns."""
    return cast("list[dict[str, Any]]", artifact().abi[function]["outputs"][0]["components"])


@lru_cache(maxsize=8)
def struct_fields(function: str, argument: str) -> tuple[str, ...]:
    """Return the names of the fields of a function's struct argument."""
    inputs = artifact().abi[function]["inputs"]
    (components,) = (entry["components"] for entry in inputs if entry["name"] == argument)
    return tuple(component["name"] for component in components)


def event_fields(event: str, topics: tuple[bytes, ...], data: bytes) -> dict[str, Any]:
    """Return the fields of an event's log by name, the indexed ones included."""
    (indexed, indexed_types), (_, names, types) = _indexed(event), event_layout(event)
    if len(topics) != len(indexed) + 1:
        raise ChainError(f"a log of {event} has {len(topics)} topics")
    fields = dict(zip(names, _decoded_values(types, data, event), strict=True))
    for name, kind, word in zip(indexed, indexed_types, topics[1:], strict=True):
        fields[name] = _decoded_values(kind, word, event)[0]
    return fields


@lru_cache(maxsize=16)
def event_layout(event: str) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the names of an event's indexed fields, then names and types of all others."""
    inputs = artifact().abi[event]["inputs"]
    indexed = tuple(entry["name"] for entry in inputs if entry["indexed"])
    plain = [entry for entry in inputs if not entry["indexed"]]
    return indexed, tuple(e["name"] for e in plain), tuple(map(collapse_if_tuple, plain))


@lru_cache(maxsize=16)
def _indexed(event: str) -> tuple[tuple[str, ...], tuple[tuple[str], ...]]:
    indexed = [entry for entry in artifact().abi[event]["inputs"] if entry["indexed"]]
    return tuple(e["name"] for e in indexed), tuple((e["type"],) for e in indexed)


def encoded(types: tuple[str, ...], values: Sequence[object]) -> bytes:
    """Return the ABI encoding of values."""
    data = encode_words(types, values)
    return encode(types, values) if data is None else data


def revert_reason(data: bytes) -> str | None:
    """Return the reason of a revert; None if it has none."""
    if data[:4] != ERROR_SELECTOR:
        return None
    try:
        return cast("str", decode(["string"], data[4:])[0])
    except (DecodingError, UnicodeDecodeError):
        return None


def refusal(error: TransactionRevertedError) -> CmflError:
    """Return the refusal that a revert's reason names; a ChainError for any other reason."""
    reason = revert_reason(error.data)
    fact = (reason or "").removeprefix(REVERT_PREFIX)
    if fact != reason and fact in set(Refusal):
        return ProtocolRefusal(Refusal(fact))
    return ChainError(f"the contract refuses: {reason}" if reason else str(error))


@lru_cache(maxsize=64)
def _types(name: str) -> tuple[str, ...]:
    return tuple(get_abi_input_types(artifact().abi[name]))


@lru_cache(maxsize=16)
def _result_types(function: str) -> tuple[str, ...]:
    return tuple(get_abi_output_types(artifact().abi[function]))


def _decoded_values(types: tuple[str, ...], data: bytes, subject: str) -> tuple[Any, ...]:
    values = decode_words(types, data)
    return _decode(list(types), data, subject) if values is None else values


def _decode(types: list[str], data: bytes, subject: str) -> tuple[Any, ...]:
    try:
        return decode(types, data)
    except (DecodingError, OverflowError) as error:
        raise ChainError(f"{subject}: {error}") from error
