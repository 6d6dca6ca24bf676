"""Log lines of a worker, as text or JSON.

They quote answers of nodes and stores, so that no byte may control a terminal.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from typing import TextIO

LOGGED = ("clients", "ledger", "cmfl")
"""Packages whose records are a worker's; those of other libraries are only warnings."""

_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class LogFormat(StrEnum):
    """Format of a log line."""

    TEXT = "text"
    JSON = "json"


class TextLines(logging.Formatter):
    """Time, level and message on one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as a line."""
        words = " ".join(record.getMessage().split())
        sentence = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in words)
        return f"{_time(record)} {record.levelname.lower():7} {sentence}"


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, event and extra fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as a line."""
        extra = {key: value for key, value in vars(record).items() if key not in _USUAL}
        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **extra,
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


@contextmanager
def logging_to(stream: TextIO, style: LogFormat, level: int = logging.INFO) -> Iterator[None]:
    """Write this project's log records of at least `level` to a stream, and nowhere else."""
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
