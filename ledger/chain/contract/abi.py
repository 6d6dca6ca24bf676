"""The contract's committed artefact, and the encoding of its calls, results, events and reverts.

The codec knows the types that the contract has, and the one layout that every compiler produces,
in a tenth of the time of a general codec. Answers and logs in another layout are refused, for the
contract makes none. Call data can come from anyone: it is read as the contract reads it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from struct import Struct
from typing import Any, cast

import eth_utils.abi

from ledger.chain.ports import NotServedError, TransactionRevertedError
from ledger.protocol import errors
from ledger.protocol.encoding import keccak

_WORD = 32
_SELECTOR = 4
_ANY = 2**256
_BOOLEAN = 2  # the bound of a bool; that of the smallest number is 2**8
_LONGEST = 256  # elements of a list argument: the contract refuses every longer list
_BOUNDS: dict[str, int | None] = {
    **{f"uint{bits}": 1 << bits for bits in range(8, 257, 8)},
    "bytes32": None,
    "bool": _BOOLEAN,
}
_FIXED = re.compile(r"(.*)\[([0-9]+)\]")


@dataclass(frozen=True, slots=True)
class _Row:
    """Consecutive words: a tuple, an array of fixed length, or one value."""

    bounds: tuple[int | None, ...]
    """Exclusive upper bound of each word's unsigned integer; 2 for a bool, None for 32 bytes."""
    is_leaf: bool = False  # whether it is a single value, and not a tuple of one

    def words(self, value: Any) -> list[bytes]:
        if self.is_leaf:
            return [_word(value, self.bounds[0])]
        if len(value) != len(self.bounds):
            raise ValueError(f"a tuple of {len(value)}, not of {len(self.bounds)}")
        return list(map(_word, value, self.bounds))


@dataclass(frozen=True, slots=True)
class _List:
    """A list of any length; its head is one word, the offset of its body."""

    part: _Row
    bounds: tuple[int | None, ...] = (_ANY,)

    def read(self, data: bytes, at: int) -> tuple[tuple[Any, ...], int]:
        split, first = _words(len(self.part.bounds)), at + _WORD
        length = int.from_bytes(data[at:first])
        end = first + split.size * length
        if len(data) < first or len(data) < end:
            raise ValueError("cut off")
        rows = split.iter_unpack(memoryview(data)[first:end])
        values = iter(_values([word for row in rows for word in row], self.part.bounds * length))
        if self.part.is_leaf:
            return tuple(values), end
        return tuple(zip(*[values] * len(self.part.bounds), strict=True)), end

    def read_anywhere(self, data: bytes, at: int) -> tuple[Any, ...]:
        """Return the values of the list at any offset; bytes behind the end are zero."""
        length = int.from_bytes(data[at : at + _WORD].ljust(_WORD, b"\0"))
        if length > _LONGEST:
            raise ValueError(f"a list of {length} elements")
        size = _WORD + length * _WORD * len(self.part.bounds)
        return self.read(data[at : at + size].ljust(size, b"\0"), 0)[0]

    def words(self, values: Any) -> list[bytes]:
        body = [word for value in values for word in self.part.words(value)]
        return [len(values).to_bytes(_WORD), *body]


def _values(words: Iterable[bytes], bounds: tuple[int | None, ...]) -> list[Any]:
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
    elif type(value) is bool:
        if bound == _BOOLEAN:
            return int(value).to_bytes(_WORD)
    elif isinstance(value, int) and bound != _BOOLEAN and 0 <= value < bound:
        return int(value).to_bytes(_WORD)
    raise ValueError(f"{value!r:.80} has another type, or is out of range")


@lru_cache(maxsize=64)
def _words(count: int) -> Struct:
    return Struct(f"{_WORD}s" * count)


_Part = _Row | _List


@dataclass(frozen=True, slots=True)
class _Plan:
    """A plan of encoding and decoding: the parts, each with its first word and its end."""

    parts: tuple[tuple[int, int, _Part], ...]
    bounds: tuple[int | None, ...]

    def read(self, data: bytes, *, is_call: bool = False) -> tuple[Any, ...]:
        head, start = _words(len(self.bounds)), _SELECTOR if is_call else 0
        if len(data) < start + head.size:
            raise ValueError("cut off within the head")
        values = _values(head.unpack_from(data, start), self.bounds)
        decoded: list[Any] = []
        at = head.size
        for first, end, part in self.parts:
            if isinstance(part, _Row):
                decoded.append(values[first] if part.is_leaf else tuple(values[first:end]))
            elif is_call:
                decoded.append(part.read_anywhere(data, (start + values[first]) % _ANY))
            elif values[first] != at:
                raise ValueError("another layout")
            else:
                elements, at = part.read(data, at)
                decoded.append(elements)
        if not is_call and at != len(data):
            raise ValueError("another layout")
        return tuple(decoded)

    def write(self, values: Sequence[Any]) -> bytes:
        head: list[bytes] = []
        tail: list[bytes] = []
        for value, (_, _, part) in zip(values, self.parts, strict=True):
            if isinstance(part, _List):
                head.append((_WORD * (len(self.bounds) + len(tail))).to_bytes(_WORD))
                tail += part.words(value)
            else:
                head += part.words(value)
        return b"".join((*head, *tail))


def encoded(types: tuple[str, ...], values: Sequence[Any]) -> bytes:
    """Return the ABI encoding of values; raise ValueError for values of other types."""
    return _plan(types).write(values)


def decoded(types: tuple[str, ...], data: bytes, subject: str) -> tuple[Any, ...]:
    """Return the values in ABI data, lists as tuples; raise ChainError for other data."""
    try:
        return _plan(types).read(data)
    except ValueError as error:
        raise errors.ChainError(f"{subject}: {error}") from error


@lru_cache(maxsize=32)
def _plan(types: tuple[str, ...]) -> _Plan:
    spans, bounds = [], tuple[int | None, ...]()
    for abi_type in types:
        row = _row_of(abi_type.removesuffix("[]"))
        part = _List(row) if abi_type.endswith("[]") else row
        spans.append((len(bounds), len(bounds) + len(part.bounds), part))
        bounds += part.bounds
    return _Plan(tuple(spans), bounds)


def _row_of(abi_type: str) -> _Row:
    if abi_type.startswith("("):
        return _Row(tuple(_BOUNDS[leaf] for leaf in abi_type[1:-1].split(",")))
    if (fixed := _FIXED.fullmatch(abi_type)) is not None:
        return _Row((_BOUNDS[fixed[1]],) * int(fixed[2]))
    return _Row((_BOUNDS[abi_type],), is_leaf=True)


@dataclass(frozen=True, slots=True)
class Artifact:
    """Compiler output, as committed; `runtime` is without the immutables that follow it."""

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


def deployment_in(code: bytes) -> tuple[Any, ...] | None:
    """Return what the view `deployment` returns, read from the code; None for other code.

    Immutables follow it: the domain's separator, its salt, and the constructor's struct.
    """
    runtime, types = artifact().runtime, _result_types("deployment")
    try:
        (values,) = _plan(types).read(code[len(runtime) + 2 * _WORD :])
    except ValueError:
        return None
    return cast("tuple[Any, ...]", values) if code.startswith(runtime) else None


@lru_cache(maxsize=64)
def selector(function: str) -> bytes:
    """Return the four-byte selector of a function."""
    return bytes(eth_utils.abi.function_abi_to_4byte_selector(artifact().abi[function]))


@lru_cache(maxsize=64)
def topic(event: str) -> bytes:
    """Return the first topic of an event's logs."""
    return bytes(eth_utils.abi.event_abi_to_log_topic(artifact().abi[event]))


def call_data(function: str, *arguments: object) -> bytes:
    """Return selector and encoded arguments."""
    return selector(function) + encoded(_types(function), arguments)


def creation_data(*arguments: object) -> bytes:
    """Return creation code and the constructor's encoded arguments."""
    return artifact().bytecode + encoded(_types("constructor"), arguments)


def arguments_of(function: str, data: bytes) -> tuple[Any, ...]:
    """Return the arguments in call data, selector included, as the contract reads them.

    Vyper 0.4.3 checks little. The data must hold the selector and the head: one word for each value
    of fixed length, and one offset for each list. Every value must be in the range of its type,
    and no list may be longer than its bound. Nothing else is refused. A list lies at
    `(4 + offset) mod 2**256`, wherever that is. Bytes behind the end of the data are zero, so data
    may be cut off within a list, and an offset behind the end leads to an empty list. Lists may
    overlap, and be in any order. Bytes that no offset leads to are ignored.
    """
    if data[:_SELECTOR] != selector(function):
        raise errors.ChainError(f"the transaction does not call {function}")
    try:
        return _plan(_types(function)).read(data, is_call=True)
    except ValueError as error:
        raise errors.ChainError(f"arguments of {function}: {error}") from error


def result_of(function: str, data: bytes) -> tuple[Any, ...]:
    """Return the decoded results of a call."""
    try:
        return decoded(_result_types(function), data, f"result of {function}")
    except errors.ChainError as error:
        raise NotServedError(f"{error}: not an answer of this contract") from error


@lru_cache(maxsize=8)
def struct_fields(function: str, argument: str) -> tuple[str, ...]:
    """Return the names of the fields of a function's struct argument."""
    inputs = artifact().abi[function]["inputs"]
    (components,) = (entry["components"] for entry in inputs if entry["name"] == argument)
    return tuple(component["name"] for component in components)


def event_fields(event: str, topics: tuple[bytes, ...], data: bytes) -> dict[str, Any]:
    """Return the fields of an event's log by name, the indexed ones included."""
    indexed, plain = event_layout(event)
    if len(topics) != len(indexed) + 1:
        raise errors.ChainError(f"a log of {event} has {len(topics)} topics")
    fields = dict(zip(plain, decoded(tuple(plain.values()), data, event), strict=True))
    for (name, kind), word in zip(indexed.items(), topics[1:], strict=True):
        fields[name] = decoded((kind,), word, event)[0]
    return fields


@lru_cache(maxsize=16)
def event_layout(event: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return names and types of an event's indexed fields, and of all others."""
    indexed: dict[str, str] = {}
    plain: dict[str, str] = {}
    for entry in artifact().abi[event]["inputs"]:
        kinds = indexed if entry["indexed"] else plain
        kinds[entry["name"]] = eth_utils.abi.collapse_if_tuple(entry)
    return indexed, plain


def revert_reason(data: bytes) -> str | None:
    """Return the reason of a revert; None if it has none."""
    # Imported for a revert alone: its grammar takes 30 ms.
    from eth_abi.abi import decode  # noqa: PLC0415
    from eth_abi.exceptions import DecodingError  # noqa: PLC0415

    if data[:4] != keccak(b"Error(string)")[:4]:
        return None
    try:
        return cast("str", decode(["string"], data[4:])[0])
    except (DecodingError, UnicodeDecodeError):
        return None


def refusal(error: TransactionRevertedError) -> errors.CmflError:
    """Return the refusal that a revert's reason names; a ChainError for any other reason."""
    reason = revert_reason(error.data)
    fact = (reason or "").removeprefix(errors.REVERT_PREFIX)
    if fact != reason and fact in set(errors.RefusalCode):
        return errors.ProtocolRefusal(errors.RefusalCode(fact))
    return errors.ChainError(f"the contract refuses: {reason}" if reason else str(error))


@lru_cache(maxsize=64)
def _types(name: str) -> tuple[str, ...]:
    return tuple(eth_utils.abi.get_abi_input_types(artifact().abi[name]))


@lru_cache(maxsize=16)
def _result_types(function: str) -> tuple[str, ...]:
    return tuple(eth_utils.abi.get_abi_output_types(artifact().abi[function]))
