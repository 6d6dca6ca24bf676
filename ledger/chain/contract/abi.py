"""The contract's committed artefact, and the encoding of its calls, results, events and reverts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
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

from ledger.chain.contract.abi_words import decode_call_words, decode_words, encode_words
from ledger.chain.ports import NotServedError, TransactionRevertedError
from ledger.protocol.errors import REFUSALS, ChainError, CmflError
from ledger.protocol.keccak import keccak

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
    if reason in REFUSALS:
        return REFUSALS[reason]()
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
