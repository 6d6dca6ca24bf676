"""Output of commands: tables for people, JSON and CSV for programs, lines for errors.

Nodes, publishers of blobs and owners of folders wrote much of it: it is printed as plain text,
without markup or control sequences. Characters that the terminal's encoding lacks are replaced.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer
from rich.progress import Progress, TaskID
from typer import Option

from cmfl.commands import WRONG
from cmfl.commands.process import results
from ledger.io.home import Home, is_standard_output, is_written_into, naming, write_named
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from rich.console import Console, JustifyMethod
    from rich.progress import ProgressColumn


class Verbosity(IntEnum):
    """Levels of verbosity."""

    QUIET = 0
    USUAL = 1
    VERBOSE = 2


_CHOSEN = ContextVar("verbosity", default=Verbosity.USUAL)


def chosen() -> Verbosity:
    """Return the verbosity of the running command."""
    return _CHOSEN.get()


@contextmanager
def fresh() -> Iterator[None]:
    """Reset the verbosity in this context."""
    token = _CHOSEN.set(Verbosity.USUAL)
    try:
        yield
    finally:
        _CHOSEN.reset(token)


def _choose(parameter: typer.CallbackParam, value: bool) -> bool:
    if value:
        level = Verbosity[(parameter.name or "").upper()]
        if chosen() not in {Verbosity.USUAL, level}:
            raise ConfigurationError("-q and -v exclude each other; give one")
        _CHOSEN.set(level)
    return value


VERBOSITY = {
    "verbose": Annotated[
        bool,
        "Show log messages, and tracebacks for internal errors.",
        Option("-v", "--verbose", callback=_choose),
    ],
    "quiet": Annotated[
        bool,
        "Hide progress and informational messages.",
        Option("-q", "--quiet", callback=_choose),
    ],
}
"""Options of every command, which `chosen` returns."""


def _only_one(context: typer.Context, value: bool) -> bool:
    if value and context.params.get("json"):
        raise ConfigurationError("--csv and --json exclude each other; give one")
    return value


AsJson = Annotated[bool, Option("--json", help="Print JSON for programs.", is_eager=True)]
AsCsv = Annotated[
    bool, Option("--csv", help="Print the same rows as CSV for programs.", callback=_only_one)
]

_LONGEST = 2_000
_ASCII = str.maketrans({"…": "...", "±": "+/-", "×": "x", "−": "-", "≥": ">=", "≤": "<=", "Δ": "D"})
"""Replacements of our own characters for ASCII terminals."""


def print_json(value: Any) -> None:
    """Print a value as JSON on standard output; bytes as 0x-hex."""
    results().write(json.dumps(value, indent=1, default=_plain, allow_nan=False) + "\n")


def print_response(response: Mapping[str, object]) -> None:
    """Print a response as JSON, without the block that a service read it at."""
    print_json({name: value for name, value in response.items() if name != "as_of"})


def print_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Print rows as CSV, with the values of --json: null is empty, a list is JSON in one cell."""
    import csv

    writer = csv.writer(results(), lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_field(row[column]) for column in columns] for row in rows)


def print_line(line: str = "", *, bold: bool = False) -> None:
    """Print one line of plain text for people."""
    from rich.text import Text

    _console().print(Text(_shown(line), style="bold" if bold else ""))


def print_prose(text: str) -> None:
    """Print a paragraph, on a terminal folded at words; digests and links stay whole for copies."""
    if not results().isatty():
        print_line(text)
        return
    import textwrap

    indent = " " * (len(text) - len(text.lstrip(" ")))
    fold = textwrap.TextWrapper(
        max(shutil.get_terminal_size().columns, 20), break_long_words=False, break_on_hyphens=False
    )
    fold.subsequent_indent = indent
    print_lines(fold.wrap(text) or [""])


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table with right-aligned numbers."""
    from rich.table import Table
    from rich.text import Text

    values = list(rows)
    cells = [[_shown(_cell(value)) for value in row] for row in values]
    console = _console()
    widths = _widths(
        [[column, *column_of] for column, *column_of in zip(columns, *cells, strict=True)],
        console.width,
    )
    if widths is None:
        print_line(title, bold=True)
        longest = max(map(len, columns))
        for row in cells:
            pairs = zip(columns, row, strict=True)
            print_lines(f"{column:{longest}} {cell}".rstrip() for column, cell in pairs)
            print_line()
        return
    table = Table(title=Text(_shown(title)), title_justify="left", title_style="bold")
    for index, (column, width) in enumerate(zip(columns, widths, strict=True)):
        numeric = any(type(row[index]) in {int, float} for row in values)
        justify: JustifyMethod = "right" if numeric else "left"
        table.add_column(column, justify=justify, width=width, overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    console.print(table)


def _widths(columns: Sequence[Sequence[str]], width: int) -> list[int] | None:
    from rich.cells import cell_len

    natural = [max(map(cell_len, column)) for column in columns]
    words = [[word for cell in column for word in cell.split() or [""]] for column in columns]
    widths = [max(map(cell_len, column)) for column in words]
    room = width - 3 * len(columns) - 1 - sum(widths)
    if room < 0:
        return None
    for index, widest in enumerate(natural):
        extra = min(widest - widths[index], room)
        widths[index] += extra
        room -= extra
    return widths


def print_written(out: Path, text: str) -> None:
    """Print a line on a file that was written, on standard error if the file is standard output."""
    if is_standard_output(out):
        sys.stderr.write(_shown(f"{out}: {text}", sys.stderr) + "\n")
    else:
        print_line(f"{out}: {text}")


def complain(message: str) -> None:
    """Print one line to standard error, cut if it is too long."""
    line = _shown(" ".join(message[:_LONGEST].split()), sys.stderr)
    sys.stderr.write(f"cmfl: {line}{'...' if len(message) > _LONGEST else ''}\n")
    sys.stderr.flush()


def plain(text: str) -> str:
    r"""Return text with an escape such as `\x1b` for each control character."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def progress(*columns: ProgressColumn) -> Progress:
    """Return progress bars on standard error; lines without a terminal, nothing with -q."""
    from rich.console import Console

    status, is_quiet = Console(stderr=True), chosen() is Verbosity.QUIET
    if not (status.is_terminal or is_quiet):
        return ProgressLines(complain)
    return Progress(*columns, console=status, transient=True, disable=is_quiet)


@contextmanager
def counting(label: str) -> Iterator[Callable[[int, int], None]]:
    """Show how far something is; yield what takes how many are done, and of how many."""
    with progress() as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def progress_of_rounds() -> Progress:
    """Return progress bars that count rounds; each task has a field `said`, shown at its end."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

    description, said = (
        TextColumn(f"{{task.{field}}}", markup=False) for field in ("description", "fields[said]")
    )
    return progress(description, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), said)


def print_result(value: Any, lines: Iterable[str], *, as_json: bool) -> None:
    """Print a result: as JSON for programs, else as lines for people."""
    if as_json:
        print_json(value)
    else:
        print_lines(lines)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines of plain text for people."""
    for line in lines:
        print_line(line)


def print_page(
    page: Mapping[str, Any], title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]
) -> None:
    """Print a page of a history as a table, and how to get the next one."""
    print_table(title, columns, rows)
    print_cursor(page["next_cursor"])


def print_rows(
    title: str, rows: Sequence[Mapping[str, Any]], *, as_json: bool = False, as_csv: bool = False
) -> None:
    """Print rows with the same columns, at least one: as a table for people, or for programs."""
    columns = list(rows[0])
    if as_csv:
        print_csv(columns, rows)
    elif as_json:
        print_json(rows)
    else:
        print_table(title, columns, [tuple(row.values()) for row in rows])


def print_cursor(cursor: str | None) -> None:
    """Print the option that shows the next page; nothing after the last one."""
    if cursor is not None:
        print_line(f"More: --cursor {cursor}")


def command_line(*words: object, **options: object) -> str:
    """Return a command for a shell; None or False leaves an option out, and a list repeats it."""
    program = ["cmfl"] if shutil.which("cmfl") else [sys.argv[0]]
    if program[0].endswith("__main__.py"):  # as `python -m cmfl` names it
        program = [sys.executable, "-m", "cmfl"]
    line = [*program, *map(str, words)]
    for name, values in options.items():
        for value in values if isinstance(values, list | tuple) else [values]:
            if value is not None and value is not False:
                line.append(f"--{name.replace('_', '-')}")
                line += [] if value is True else [str(value)]
    return shlex.join(line)


def whole(value: object) -> str:
    """Return a value for people: bytes as 0x-hex, several values separated by blanks."""
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


OURS = ("ledger", "clients", "api", "cmfl")

_LEAST = dict(zip(Verbosity, (logging.ERROR, logging.WARNING, logging.INFO), strict=True))


class _Lines(logging.Handler):
    """Handler for standard error: warnings and worse; more with -v, only errors with -q."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record as one line, with its traceback if CMFL_DEBUG is set."""
        if os.environ.get("CMFL_DEBUG"):
            complain(f"{record.name}: {self.format(record)}")
        elif record.levelno < _LEAST[chosen()]:
            return
        # The EVM logs tracebacks of errors that its caller handles.
        elif record.name.partition(".")[0] in OURS:
            complain(record.getMessage())


@contextmanager
def shown_as_lines() -> Iterator[None]:
    """Print log records in this context."""
    handler, root = _Lines(logging.INFO), logging.getLogger()
    ours = [logging.getLogger(name) for name in OURS]
    before = [logger.level for logger in ours]
    root.addHandler(handler)
    for logger in ours:
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.removeHandler(handler)
        for logger, level in zip(ours, before, strict=True):
            logger.setLevel(level)


def _console() -> Console:
    """Return standard output; files and pipes are never folded."""
    from rich.console import Console

    width, height = shutil.get_terminal_size()
    if not results().isatty():
        width = 10_000
    # Both, or rich ignores them on a dumb terminal.
    return Console(file=results(), highlight=False, soft_wrap=True, width=width, height=height)


def _shown(text: str, stream: TextIO | None = None) -> str:
    encoding = getattr(stream or results(), "encoding", None) or "utf-8"
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


def refuse_home_file(path: Path, option: str = "--out") -> None:
    """Refuse a path that is, or lies in, what a home keeps: its chain, blobs, runs."""
    named = path.absolute().parent.resolve() / path.name
    # A link is followed when the file is written.
    places = dict.fromkeys((named, Path(os.path.realpath(path))))
    for place, folder in [(each, folder) for each in places for folder in each.parents]:
        home = Home(folder)
        if not (home.chain.is_file() or home.lock.is_file()):
            continue
        kept = (home.chain, home.event_log, home.blobs, home.runs, home.lock)
        first = folder / place.relative_to(folder).parts[0]
        # SQLite keeps a log and shared memory beside a file, under its name.
        if any(first == each or first.name.startswith(f"{each.name}-") for each in kept):
            raise ConfigurationError(
                f"{option} {path}: is in {first.name} of the home {folder}, which only a run "
                "may write; name another path"
            )


def require_writable(path: Path, option: str = "--out", *, as_json: bool = False) -> None:
    """Refuse a file that cannot be written; with `as_json` standard output is taken."""
    refuse_home_file(path, option)
    fault = ""
    if as_json and is_standard_output(path):
        fault = " and --json: both print on standard output; give one of them"
    elif path.is_dir():
        fault = ": is a folder, must be a file"
    elif is_written_into(path):
        return
    elif not path.parent.is_dir():
        fault = f": there is no folder {path.parent}"
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        fault = ": may not be written"
    if fault:
        raise ConfigurationError(f"{option} {path}{fault}")


def write_result(path: Path, data: bytes, option: str = "--out") -> None:
    """Write a result's file; a failure leaves an earlier one as it was."""
    with naming(f"{option} {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_named(path, data)


def write_report(path: Path | None, data: bytes) -> int:
    """Write the file of --report, and return 0; complain and return WRONG if that fails."""
    try:
        if path is not None:
            write_named(path, data)
    except OSError as error:
        complain(f"--report {path}: {error.strerror}; no report was written")
        return WRONG
    return 0


def require_new(out: Path) -> None:
    """Refuse a folder that has something in it, or is a home's, before the work is done for it."""
    refuse_home_file(out)
    if out.is_symlink() or (out.exists() and not (out.is_dir() and not any(out.iterdir()))):
        raise ConfigurationError(f"--out {out}: must be a new or an empty folder")
    if not out.absolute().parent.is_dir():
        raise ConfigurationError(f"--out {out}: there is no folder {out.parent}")


@contextmanager
def whole_folder(out: Path) -> Iterator[Path]:
    """Open a new folder of the same name, which is moved to its place once all is written."""
    place = out.absolute()
    writing = place.parent / f".{place.name}.{secrets.token_hex(4)}"
    try:
        with naming(f"--out {out}"):
            (writing / place.name).mkdir(parents=True)
            yield writing / place.name
            (writing / place.name).rename(place)
    finally:
        shutil.rmtree(writing, ignore_errors=True)


SOONEST, LATEST, PARTS = 10.0, 300.0, 10
"""A line for each of so many parts, at least so many seconds after the one before it, and in any
case after so many."""


class ProgressLines(Progress):
    """Bars that are never drawn, and print a line from time to time; `clock` is in seconds."""

    def __init__(
        self, show: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(auto_refresh=False, disable=True)
        self._say, self._clock = show, clock
        self._shown: dict[TaskID, tuple[float, int]] = {}

    def add_task(self, description: str, *arguments: Any, **options: Any) -> TaskID:
        task = super().add_task(description, *arguments, **options)
        self._shown[task] = self._clock(), self._parts(task)
        return task

    def update(self, task_id: TaskID, **changes: Any) -> None:
        super().update(task_id, **changes)
        (before, shown), now, parts = self._shown[task_id], self._clock(), self._parts(task_id)
        if now - before < SOONEST or (parts <= shown and now - before < LATEST):
            return
        self._shown[task_id] = now, parts
        task = self._tasks[task_id]
        of = "" if task.total is None else f" of {task.total:.0f}"
        note = f", {task.fields['said']}" if task.fields.get("said") else ""
        self._say(f"{task.description}: {task.completed:.0f}{of}{note}")

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        self.update(task_id, advance=advance)

    def _parts(self, task_id: TaskID) -> int:
        task = self._tasks[task_id]
        return int(PARTS * task.completed // task.total) if task.total else 0
