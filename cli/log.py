"""What is logged while a command runs: a line each from our own packages, nothing from others."""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cli.console import complain

if TYPE_CHECKING:
    from collections.abc import Iterator

OURS = ("ledger", "clients", "api")


class _Lines(logging.Handler):
    """Prints warnings and worse to standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record as one line, with its traceback where CMFL_DEBUG asks for it.

        Args:
            record: of whichever library.
        """
        if os.environ.get("CMFL_DEBUG"):
            complain(f"{record.name}: {self.format(record)}")
        # The EVM logs tracebacks of what its caller catches and names.
        elif record.name.partition(".")[0] in OURS:
            complain(record.getMessage())


@contextmanager
def shown_as_lines() -> Iterator[None]:
    """Print what is logged in this context."""
    handler, root = _Lines(logging.WARNING), logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
