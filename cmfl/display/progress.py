"""Progress of a call: a bar on a terminal or in a notebook, nothing elsewhere."""

from __future__ import annotations

import html
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol


class Tracker(Protocol):
    """Receives how far a call is."""

    def __call__(self, done: int, total: int, note: str = "") -> None:
        """Show that `done` of `total` steps are done."""


@contextmanager
def tracking(label: str, *, shown: bool | None = None) -> Iterator[Tracker]:
    """Show the progress of what is done in the context.

    Args:
        shown: True for a bar, or for lines where there is neither a terminal nor a notebook;
            False for nothing; None for a bar where somebody looks.

    Yields:
        A function to call with the steps that are done, their number, and a note.
    """
    if shown is not False and _is_notebook():
        yield _notebook_bar(label)
    elif shown is not False and sys.stderr.isatty():
        with _terminal_bar(label) as tracker:
            yield tracker
    elif shown:
        yield _Lines(label)
    else:
        yield _ignore


def _ignore(done: int, total: int, note: str = "") -> None:
    """Show nothing."""


def _is_notebook() -> bool:
    """Return whether the shell is a notebook's; nothing is imported for it."""
    shell = sys.modules.get("IPython")
    running = None if shell is None else shell.get_ipython()
    return type(running).__name__ == "ZMQInteractiveShell"


def _notebook_bar(label: str) -> Tracker:
    from IPython.display import HTML, display

    shown: Any = display(HTML(html.escape(label)), display_id=True)

    def show(done: int, total: int, note: str = "") -> None:
        text = html.escape(f"{label}: {done} of {total}{', ' if note else ''}{note}")
        shown.update(HTML(f'<progress value="{done}" max="{max(total, 1)}"></progress> {text}'))

    return show


@contextmanager
def _terminal_bar(label: str) -> Iterator[Tracker]:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    except ImportError:  # the extra of the command line
        yield _Lines(label)
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None, note="")

        def show(done: int, total: int, note: str = "") -> None:
            bar.update(task, completed=done, total=total, note=note)

        yield show


class _Lines:
    """A line for every tenth of the work."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._tenths = -1

    def __call__(self, done: int, total: int, note: str = "") -> None:
        tenths = 10 * done // max(total, 1)
        if tenths > self._tenths:
            self._tenths = tenths
            sys.stderr.write(f"{self._label}: {done} of {total}{', ' if note else ''}{note}\n")
