"""Conversion of a model's failures, which may come from user code, to errors of this project."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from clients.models.user_code_errors import message_of
from clients.training.port import TrainingError
from ledger.protocol.errors import CmflError

if TYPE_CHECKING:
    from collections.abc import Iterator

_LONGEST = 500


@contextmanager
def as_training_error() -> Iterator[None]:
    """Turn any exception of a model into a TrainingError.

    Raises:
        CmflError: an error of this project passes unchanged.
        KeyboardInterrupt: passes unchanged.
        TrainingError: names what was raised inside the `with` block.
    """
    try:
        yield
    except (CmflError, KeyboardInterrupt):
        raise
    except BaseException as error:  # sys.exit too: the command would end as if it had succeeded
        message = " ".join(f"{type(error).__name__}: {message_of(error)}".split())[:_LONGEST]
        raise TrainingError(f"the model failed: {message}") from error
