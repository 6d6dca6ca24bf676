"""Log output of commands: one line per record of our own packages."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from cmfl.commands import verbosity
from cmfl.commands.console import complain
from cmfl.commands.verbosity import Verbosity

OURS = ("ledger", "clients", "api", "cmfl")

_LEAST = {
    Verbosity.QUIET: logging.ERROR,
    Verbosity.USUAL: logging.WARNING,
    Verbosity.VERBOSE: logging.INFO,
}


class _Lines(logging.Handler):
    """Handler for standard error: warnings and worse; more with -v, only errors with -q."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record as one line, with its traceback if CMFL_DEBUG is set."""
        if os.environ.get("CMFL_DEBUG"):
            complain(f"{record.name}: {self.format(record)}")
        elif record.levelno < _LEAST[verbosity.chosen()]:
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
