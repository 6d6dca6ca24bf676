"""What every command prints with: tables for people, JSON for programs, one line for errors.

Much of what is printed was written by others: nodes, whoever published a blob, whoever named a
folder. It is text and nothing else, neither markup nor a terminal's control sequences.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.progress import Progress, ProgressColumn

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]

_WIDEST = 10_000
_LONGEST = 2_000


def print_json(value: Any) -> None:
    """Print a value as JSON on standard output; bytes as 0x-hex."""
    sys.stdout.write(json.dumps(value, indent=1, default=_plain, allow_nan=False) + "\n")


def print_line(line: str = "", *, bold: bool = False) -> None:
    """Print one line for people; whatever it holds is only text."""
    _console().print(Text(plain(line), style="bold" if bold else ""))


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table; numbers stand to the right, and text in cells is only text."""
    listed = list(rows)
    table = Table(title=Text(plain(title)), title_justify="left", title_style="bold")
    for place, column in enumerate(columns):
        numeric = any(type(row[place]) in {int, float} for row in listed)
        table.add_column(column, justify="right" if numeric else "left")
    for row in listed:
        table.add_row(*(Text(plain(_cell(value))) for value in row))
    _console().print(table)


def complain(message: str) -> None:
    """Print one line to standard error, cut where a foreign text has made it endless."""
    line = plain(" ".join(message[:_LONGEST].split()))
    sys.stderr.write(f"cmfl: {line}{'...' if len(message) > _LONGEST else ''}\n")
    sys.stderr.flush()


def plain(text: str) -> str:
    r"""Return text with an escape like `\x1b` for each character that a terminal might obey."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def progress(*columns: ProgressColumn) -> Progress:
    """Return progress bars on standard error; none where that is no terminal."""
    from rich.progress import Progress

    status = Console(stderr=True)
    return Progress(*columns, console=status, transient=True, disable=not status.is_terminal)


def command_line(*words: object) -> str:
    """Return how this program is called from here with these words, quoted for a shell."""
    program = "cmfl" if shutil.which("cmfl") else sys.argv[0]
    return shlex.join(str(word) for word in (program, *words))


def counted_from_one(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row for people, who count ranks from 1; data and proofs count them from 0."""
    return row if row["rank"] is None else row | {"rank": row["rank"] + 1}


def whole(value: object) -> str:
    """Return a value for people: bytes as 0x-hex, several of them with blanks in between."""
    if isinstance(value, (list, tuple)):
        return " ".join(map(whole, value))
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    return "" if value is None else str(value)


def shortened(value: object) -> object:
    """Return a digest short enough for a table."""
    text = whole(value) if isinstance(value, bytes) else value
    if isinstance(text, str) and text.startswith("0x") and len(text) > 20:
        return f"{text[:10]}…{text[-6:]}"
    return value


def _console() -> Console:
    """Return standard output; what goes into a file or a pipe is folded nowhere."""
    width = None if sys.stdout.isatty() else _WIDEST
    return Console(highlight=False, soft_wrap=True, width=width)


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return whole(value)


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    raise TypeError(f"{type(value).__name__} is not JSON")
