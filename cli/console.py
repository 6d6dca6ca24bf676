"""What every command prints with: tables for people, JSON for programs, one line for errors.

Much of what is printed was written by others: nodes, whoever published a blob, whoever named a
folder. It is text and nothing else, neither markup nor a terminal's control sequences.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]

console = Console(highlight=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """Print a value as JSON on standard output; bytes as 0x-hex."""
    sys.stdout.write(json.dumps(value, indent=1, default=_plain, allow_nan=False) + "\n")


def say(line: str) -> None:
    """Print a line for people; whatever it holds is only text."""
    console.print(Text(plain(line)))


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table; numbers stand to the right, and text in cells is only text."""
    listed = list(rows)
    table = Table(title=Text(plain(title)), title_justify="left", title_style="bold")
    for place, column in enumerate(columns):
        numeric = any(type(row[place]) in {int, float} for row in listed)
        table.add_column(column, justify="right" if numeric else "left")
    for row in listed:
        table.add_row(*(Text(plain(_cell(value))) for value in row))
    console.print(table)


def fail(message: str, code: int) -> NoReturn:
    """Print one line to standard error and end with an exit code."""
    line = " ".join(message.split())
    sys.stderr.write(f"cmfl: {plain(line)}\n")
    sys.exit(code)


def plain(text: str) -> str:
    """Return text with a question mark for each character that a terminal might obey."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)


def counted_from_one(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row for people, who count ranks from 1; data and proofs count them from 0."""
    return row if row["rank"] is None else row | {"rank": row["rank"] + 1}


def shortened(value: object) -> object:
    """Return a digest short enough for a table."""
    if isinstance(value, bytes):
        value = f"0x{value.hex()}"
    if isinstance(value, str) and value.startswith("0x") and len(value) > 20:
        return f"{value[:10]}…{value[-6:]}"
    if isinstance(value, (list, tuple)):
        return " ".join(map(str, value))
    return value


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple)):
        return " ".join(map(str, value))
    return "" if value is None else str(value)


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    raise TypeError(f"{type(value).__name__} is not JSON")
