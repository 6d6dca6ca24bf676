"""TOML from untrusted sources, parsed in a time bounded by its size.

The time of `tomllib` grows with the square of the number of parts of a dotted key. So the dots of a
line are counted before parsing; those in strings and comments count too, since recognising them
needs a parser.
"""

from __future__ import annotations

import tomllib
from typing import Any

from ledger.protocol.errors import ConfigurationError

MAX_TOML_BYTES = 100_000
MAX_DOTS = 64
_BYTE_ORDER_MARK = "\ufeff"
"""Editors put it before the text."""


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
        return tomllib.loads(text.removeprefix(_BYTE_ORDER_MARK))
    # TOMLDecodeError is a ValueError; so is what a number of thousands of digits raises.
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"not TOML: {error}") from error
