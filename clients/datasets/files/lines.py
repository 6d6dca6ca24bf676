"""Readers of CSV, JSON Lines and text files, line by line, with a limit on their length."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ledger.io.parsing import parse_json
from ledger.protocol.errors import ConfigurationError

MAX_FILE_BYTES = 8 * 2**30
LONGEST_LINE = 65_536
LONGEST_TEXT_LINE = 1 << 20
"""Limit of a line of JSON Lines or of plain text, which may be a whole document."""
BYTE_ORDER_MARK = "\ufeff"
"""Spreadsheets and editors put it before the first line."""
MOST_SHOWN = 20
"""Names that a message lists."""
_OTHER_SEPARATORS = ";\t|"


def quoted(names: Sequence[str]) -> str:
    """Return the first names for a message, each in quotation marks."""
    rest = f" and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else ""
    return f"{', '.join(map(repr, names[:MOST_SHOWN])):.400}{rest}"


def read_lines(path: Path, longest: int = LONGEST_LINE) -> Iterator[str]:
    r"""Yield the lines of a UTF-8 file with their ends, without a byte-order mark.

    Only "\n" ends a line.

    Args:
        longest: bytes of a line at most.
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
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: not UTF-8 text ({error})") from error
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error


def read_json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the object of each line of a JSON Lines file; blank lines are skipped."""
    for number, line in enumerate(read_lines(path, LONGEST_TEXT_LINE), start=1):
        if not (text := line.removeprefix(BYTE_ORDER_MARK)).strip():
            continue
        try:
            row = parse_json(text, unique_keys=True)
        except ValueError as error:
            raise ConfigurationError(f"{path}: line {number}: not JSON ({error!s:.200})") from error
        if not isinstance(row, dict):
            raise ConfigurationError(f"{path}: line {number}: holds no object")
        yield row


def csv_header(path: Path) -> tuple[str, ...]:
    """Return the names of the columns of a CSV file, as it has them."""
    header, _ = _csv_rows(path)
    if len(header) == 1:
        separator = next((each for each in _OTHER_SEPARATORS if each in header[0]), None)
        if separator is not None:
            raise ConfigurationError(
                f"{path}: the header {header[0][:200]!r} is separated by {separator!r}, as it "
                f"seems; the columns of a .csv file are separated by ','"
            )
    return tuple(header)


def read_csv(path: Path, columns: Sequence[str]) -> Iterator[list[str]]:
    """Yield these columns of each row of a CSV file with a header; blank lines are skipped."""
    header, rows = _csv_rows(path)
    missing = [name for name in columns if header.count(name) != 1]
    if missing:
        raise ConfigurationError(
            f"{path}: has the columns {quoted(header)}; must have one {missing[0]!r}"
        )
    indices = [header.index(name) for name in columns]
    for line, row in rows:
        if len(row) != len(header):
            raise ConfigurationError(
                f"{path}: line {line}: {len(row)} fields, but the header has {len(header)}"
            )
        yield [row[index] for index in indices]


def _csv_rows(path: Path) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """Return the header, and the number of the last line of each further row with its fields."""
    reader = csv.reader(read_lines(path), strict=True)

    def rows() -> Iterator[tuple[int, list[str]]]:
        try:
            for row in reader:
                if len(row) > 1 or (row and row[0].strip()):
                    yield reader.line_num, row
        except csv.Error as error:
            raise ConfigurationError(f"{path}: line {reader.line_num}: {error}") from error

    remaining = rows()
    _, header = next(remaining, (0, []))
    return header, remaining
