"""Readers of CSV, JSON Lines and text files, line by line, with a limit on their length."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any

from ledger.io.json import parse_json
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

MAX_FILE_BYTES = 8 * 2**30
LONGEST_LINE = 65_536
LONGEST_TEXT_LINE = 1 << 20
"""Limit of a line of JSON Lines or of plain text, which may be a whole document."""
BYTE_ORDER_MARK = "\ufeff"
"""Spreadsheets put it before the header."""


def read_lines(path: Path, longest: int = LONGEST_LINE) -> Iterator[str]:
    r"""Yield the lines of a UTF-8 file with their ends; only "\n" ends a line.

    Args:
        path: the file.
        longest: bytes of a line at most.

    Raises:
        ConfigurationError: the file cannot be read or is not text, or it or a line is too large.
    """
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise ConfigurationError(f"{path}: {size} bytes, more than {MAX_FILE_BYTES}")
        with path.open("rb") as file:
            number = 0
            while line := file.readline(longest + 1):
                number += 1
                if len(line) > longest:
                    raise ConfigurationError(
                        f"{path}: line {number} is longer than {longest} bytes"
                    )
                yield line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: not UTF-8 text ({error})") from error
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error


def read_json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the object of each line of a JSON Lines file.

    Raises:
        ConfigurationError: it cannot be read or is too large, or a line holds no object.
    """
    for number, line in enumerate(read_lines(path, LONGEST_TEXT_LINE), start=1):
        try:
            row = parse_json(line.removeprefix(BYTE_ORDER_MARK).encode())
        except ValueError as error:
            raise ConfigurationError(f"{path}: line {number}: not JSON ({error!s:.200})") from error
        if not isinstance(row, dict):
            raise ConfigurationError(f"{path}: line {number}: holds no object")
        yield row


def read_csv(path: Path, columns: Sequence[str]) -> Iterator[list[str]]:
    """Yield these columns of each row of a CSV file with a header.

    Raises:
        ConfigurationError: it is damaged or too large, a column is missing, or a row has another
            number of fields than the header.
    """
    rows = csv.reader(read_lines(path), strict=True)
    try:
        header = next(rows, [])
        header[:1] = [name.removeprefix(BYTE_ORDER_MARK) for name in header[:1]]
        missing = [name for name in columns if header.count(name) != 1]
        if missing:
            raise ConfigurationError(
                f"{path}: has the columns {', '.join(header)[:200]}; must have one {missing[0]!r}"
            )
        indices = [header.index(name) for name in columns]
        for row in rows:
            if len(row) != len(header):
                raise ConfigurationError(
                    f"{path}: line {rows.line_num}: {len(row)} fields, but the header has "
                    f"{len(header)}"
                )
            yield [row[index] for index in indices]
    except csv.Error as error:
        raise ConfigurationError(f"{path}: line {rows.line_num}: {error}") from error
