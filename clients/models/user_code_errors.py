"""What a user's own code did wrong, in one line of ours."""

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
def as_configuration_error(what: str) -> Iterator[None]:
    """Refuse whatever code that is not ours raises, `sys.exit` too: the command did not succeed.

    Args:
        what: the first half of the sentence.

    Yields:
        Nothing.

    Raises:
        ConfigurationError: says what was raised inside the `with` block.
        KeyboardInterrupt: passes as it is.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ConfigurationError(f"{what}: {describe_error(error)}") from error


def describe_error(error: BaseException) -> str:
    """Return what an error says, and where in the user's own code it came up.

    Args:
        error: raised by code that is not ours.

    Returns:
        Its kind, the first line of its message and, where one can be told, file and line.
    """
    said = next(iter(message_of(error).splitlines()), "")[:_LONGEST]
    sentence = f"{type(error).__name__}: {said}" if said else type(error).__name__
    lines = [
        f"{Path(frame.f_code.co_filename).name}, line {line}"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not frame.f_code.co_filename.startswith((_OURS, _TORCHS, "<"))
    ]
    return f"{sentence} ({lines[-1]})" if lines else sentence


def message_of(error: BaseException) -> str:
    """Return what an error says; nothing where its class cannot be made to say it."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - the method is foreign too
        return ""
