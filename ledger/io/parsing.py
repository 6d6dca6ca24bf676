"""JSON that others may have written, with bounded nesting, and TOML.

Python's JSON parser recurses in C. Libraries of the EVM raise the interpreter's recursion limit so
far that a deep document ends the process. The time of `tomllib` grows with the square of the number
of parts of a dotted key, so the dots of a line, also in strings, are counted before parsing.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Never

from ledger.io.home import read_file
from ledger.protocol.errors import ChainError, ConfigurationError

DEEPEST = 1_000
MAX_RECORD_BYTES = 64 * 1024

# One that never ends is taken to the end, so that no place is looked at twice.
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_NO_BRACKET = re.compile(r"[^][{}]+")


def parse_json(
    data: bytes | str,
    refuse_constant: Callable[[str], object] | None = None,
    *,
    unique_keys: bool = False,
) -> Any:
    """Parse a JSON document, in UTF-8 if bytes; `refuse_constant` raises at NaN and Infinity."""
    text = data if isinstance(data, str) else data.decode("utf-8")
    # Nothing is nested more deeply than it has brackets; most documents have few.
    if text.count("[") + text.count("{") > DEEPEST:
        depth = 0
        for bracket in _NO_BRACKET.sub("", _STRING.sub("", text)):
            depth += 1 if bracket in "[{" else -1
            if depth > DEEPEST:
                raise ValueError(f"nested more than {DEEPEST} levels deep")
    pairs = _unique if unique_keys else None
    try:
        return json.loads(text, parse_constant=refuse_constant, object_pairs_hook=pairs)
    except RecursionError:  # the caller itself is deep in calls
        raise ValueError("nested too deeply") from None


def read_record(
    path: Path, what: str, kinds: Mapping[str, type], require_version: Callable[[str, object], None]
) -> dict[str, Any]:
    """Return the fields of a small JSON file, which are exactly `kinds`; else raise ChainError."""
    name = f"{what} {path}"
    try:
        data = read_file(path, MAX_RECORD_BYTES)
    except OSError as error:
        raise ChainError(f"{name} cannot be read: {error.strerror}") from error
    if len(data) > MAX_RECORD_BYTES:
        raise ChainError(f"{name} is over {MAX_RECORD_BYTES} bytes")
    try:
        value = parse_json(data, unique_keys=True)
    except ValueError as error:
        raise ChainError(f"{name} is not JSON: {error}") from error
    require_version(name, value)
    if not isinstance(value, dict) or set(value) != set(kinds):
        raise ChainError(f"{name} does not have the fields {', '.join(kinds)}")
    for field, kind in kinds.items():
        if type(value[field]) is not kind:
            raise ChainError(f"{name}: {field} is not of type {kind.__name__}")
    return value


def require_format(expected: int, name: str, value: object) -> None:
    """Reject a record of another format."""
    if isinstance(value, dict) and value.get("format", expected) != expected:
        raise ChainError(
            f"{name}: format {str(value['format'])[:20]} is not {expected}; use the program "
            "version that wrote this home"
        )


def refuse_constant(constant: str) -> Never:
    """Raise at NaN and Infinity, which are not JSON."""
    raise ValueError(f"{constant} is not a number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a map has a key twice")
    return members


MAX_TOML_BYTES = 100_000
MAX_DOTS = 64


def parse_toml(text: str) -> dict[str, Any]:
    """Return the tables and values of a TOML document."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_TOML_BYTES:
        raise ConfigurationError(f"not readable as TOML: {size} bytes, more than {MAX_TOML_BYTES}")
    for number, line in enumerate(text.split("\n"), start=1):
        dots = line.count(".")
        if dots > MAX_DOTS:
            raise ConfigurationError(
                f"not readable as TOML: line {number} has {dots} dots, more than {MAX_DOTS}"
            )
    try:
        return tomllib.loads(text.removeprefix("\ufeff"))  # editors put a byte-order mark there
    # TOMLDecodeError is a ValueError; so is what a number of thousands of digits raises.
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"not TOML: {error}") from error
