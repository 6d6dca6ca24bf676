"""What every command prints with: tables for people, JSON and CSV for programs, lines for errors.

Much of what is printed was written by others: nodes, whoever published a blob, whoever named a
folder. It is text and nothing else, neither markup nor a terminal's control sequences. What a
terminal's encoding does not have is shown by other characters, and a table that is wider than the
terminal as a block of lines for each row.

What draws is imported where something is drawn: programs ask for JSON.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli import verbosity
from cli.verbosity import Verbosity
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import TextIO

    from rich.console import Console, JustifyMethod
    from rich.progress import Progress, ProgressColumn

    from cli.progress_lines import ProgressLines


def _only_one(context: typer.Context, value: bool) -> bool:
    """Refuse --csv beside --json.

    Raises:
        ConfigurationError: both are given.
    """
    if value and context.params.get("json"):
        raise ConfigurationError("--csv and --json: give one of them")
    return value


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.", is_eager=True)]
AsCsv = Annotated[
    bool,
    typer.Option("--csv", help="Print the same rows as CSV for programs.", callback=_only_one),
]

_WIDEST = 10_000
_LONGEST = 2_000
_ASCII = str.maketrans({"…": "...", "±": "+/-", "×": "x", "−": "-", "≥": ">=", "≤": "<=", "Δ": "D"})
"""What our own sentences and tables have that not every terminal can show."""


def print_json(value: Any) -> None:
    """Print a value as JSON on standard output; bytes as 0x-hex."""
    sys.stdout.write(json.dumps(value, indent=1, default=_plain, allow_nan=False) + "\n")


def print_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Print rows as CSV on standard output, with the values that --json prints.

    Nothing stands where JSON has null, and lists and maps are JSON in one cell.

    Args:
        columns: keys of the rows, in the order that they are printed in.
        rows: each with all of the keys.
    """
    import csv

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_field(row[column]) for column in columns] for row in rows)


def print_line(line: str = "", *, bold: bool = False) -> None:
    """Print one line for people; whatever it holds is only text."""
    from rich.text import Text

    _console().print(Text(_shown(line), style="bold" if bold else ""))


def print_prose(text: str) -> None:
    """Print sentences for people: on a terminal they fold at words, elsewhere nowhere.

    Digests, links and whatever else is one word stay whole, to be copied.

    Args:
        text: one paragraph; what it is indented by, all of its lines are.
    """
    if not sys.stdout.isatty():
        print_line(text)
        return
    import textwrap

    indent = " " * (len(text) - len(text.lstrip(" ")))
    lines = textwrap.wrap(
        text,
        max(shutil.get_terminal_size().columns, 20),
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    for line in lines or [""]:
        print_line(line)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table; numbers stand to the right, and text in cells is only text."""
    from rich.table import Table
    from rich.text import Text

    given = list(rows)
    cells = [[_shown(_cell(value)) for value in row] for row in given]
    console = _console()
    widths = _widths(
        [[column, *column_of] for column, *column_of in zip(columns, *cells, strict=True)],
        console.width,
    )
    if widths is None:
        _print_blocks(title, columns, cells)
        return
    table = Table(title=Text(_shown(title)), title_justify="left", title_style="bold")
    for place, (column, width) in enumerate(zip(columns, widths, strict=True)):
        numeric = any(type(row[place]) in {int, float} for row in given)
        justify: JustifyMethod = "right" if numeric else "left"
        table.add_column(column, justify=justify, width=width, overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    console.print(table)


def _widths(columns: Sequence[Sequence[str]], width: int) -> list[int] | None:
    """Return how wide the columns of a table may be, None if they do not fit beside each other.

    Headers fold at words, and so do cells of a column of text; what is one word never folds.
    """
    from rich.cells import cell_len

    most = [max(map(cell_len, column)) for column in columns]
    least = [
        max(cell_len(word) for cell in column for word in cell.split() or [""])
        for column in columns
    ]
    room = width - 3 * len(columns) - 1 - sum(least)
    if room < 0:
        return None
    for place, wanted in enumerate(most):
        given = min(wanted - least[place], room)
        least[place] += given
        room -= given
    return least


def _print_blocks(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print each row of a table as lines of its own: name and value."""
    print_line(title, bold=True)
    longest = max(map(len, columns))
    for row in rows:
        for column, cell in zip(columns, row, strict=True):
            print_line(f"{column:{longest}} {cell}".rstrip())
        print_line()


def complain(message: str) -> None:
    """Print one line to standard error, cut where a foreign text has made it endless."""
    line = _shown(" ".join(message[:_LONGEST].split()), sys.stderr)
    sys.stderr.write(f"cmfl: {line}{'...' if len(message) > _LONGEST else ''}\n")
    sys.stderr.flush()


def plain(text: str) -> str:
    r"""Return text with an escape like `\x1b` for each character that a terminal might obey."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def progress(*columns: ProgressColumn) -> Progress | ProgressLines:
    """Return progress bars on standard error; lines where that is no terminal, none with -q."""
    from rich.console import Console

    status, is_quiet = Console(stderr=True), verbosity.chosen() is Verbosity.QUIET
    if not (status.is_terminal or is_quiet):
        from cli.progress_lines import ProgressLines

        return ProgressLines()
    from rich.progress import Progress

    return Progress(*columns, console=status, transient=True, disable=is_quiet)


def command_line(*words: object) -> str:
    """Return how this program is called from here with these words, quoted for a shell."""
    program = "cmfl" if shutil.which("cmfl") else sys.argv[0]
    return shlex.join(str(word) for word in (program, *words))


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
    from rich.console import Console

    width, height = shutil.get_terminal_size()
    if not sys.stdout.isatty():
        width = _WIDEST
    # Both, or rich looks at neither where a terminal is of the plainest kind.
    return Console(highlight=False, soft_wrap=True, width=width, height=height)


def _shown(text: str, stream: TextIO | None = None) -> str:
    """Return text as a stream can show it, standard output if none is given."""
    encoding = getattr(stream or sys.stdout, "encoding", None) or "utf-8"
    harmless = plain(text)
    return harmless if encoding.lower().startswith("utf") else harmless.translate(_ASCII)


def _field(value: object) -> object:
    if isinstance(value, (bool, list, tuple, dict)):
        return json.dumps(value, default=_plain, allow_nan=False)
    if isinstance(value, str):
        return plain(value)
    return whole(value)


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
