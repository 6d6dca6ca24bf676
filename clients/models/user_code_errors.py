"""Errors of a user's own code, described in one line."""

from __future__ import annotations

import traceback
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

_OURS = str(Path(__file__).parents[1])
_TORCHS = str(Path(torch.__file__).parent)
_LONGEST = 300


@contextmanager
def as_configuration_error(subject: str) -> Iterator[None]:
    """Turn any exception of user code, `sys.exit` too, into a ConfigurationError.

    Args:
        subject: first half of the message.

    Raises:
        ConfigurationError: names what was raised inside the `with` block.
        KeyboardInterrupt: passes unchanged.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ConfigurationError(f"{subject}: {describe_error(error)}") from error


def describe_error(error: BaseException) -> str:
    """Return an error's kind, its first line, and file and line in the user's code."""
    message = next(iter(message_of(error).splitlines()), "")[:_LONGEST]
    sentence = f"{type(error).__name__}: {message}" if message else type(error).__name__
    lines = [
        f"{Path(frame.f_code.co_filename).name}, line {line}"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not frame.f_code.co_filename.startswith((_OURS, _TORCHS, "<"))
    ]
    return f"{sentence} ({lines[-1]})" if lines else sentence


def message_of(error: BaseException) -> str:
    """Return an error's message; empty if its own class fails to make it."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - the method is user code too
        return ""
