"""A worker's log: a line for each event, as text or as JSON.

What nodes and stores answer is in it, which anybody may have written: it is text and nothing that
a terminal might obey.
"""

from __future__ import annotations

import json
import logging
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

LOGGED = ("clients", "ledger", "cli")
"""Packages whose records are a worker's; those of other libraries are only warnings."""

_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class LogFormat(StrEnum):
    """How a line looks."""

    TEXT = "text"
    JSON = "json"


class TextLines(logging.Formatter):
    """Time, level and sentence, on one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as a line."""
        words = " ".join(record.getMessage().split())
        sentence = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in words)
        return f"{_time(record)} {record.levelname.lower():7} {sentence}"


class JsonLines(logging.Formatter):
    """An object on one line: time, level, logger, event, and the fields that came with it."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as a line."""
        told = {key: value for key, value in vars(record).items() if key not in _USUAL}
        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **told,
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


@contextmanager
def logging_to(stream: TextIO, style: LogFormat, level: int = logging.INFO) -> Iterator[None]:
    """Write what is logged in this context, and nowhere else.

    Args:
        stream: where to.
        style: how a line looks.
        level: the least that is written.
    """
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines() if style is LogFormat.JSON else TextLines())
    loggers = [logging.getLogger(name) for name in LOGGED]
    before = [(logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(level)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, (old, propagates) in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(old)
            logger.propagate = propagates


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
