"""What is said where a model, which may be anybody's code, fails."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from clients.engine.port import TrainingError
from ledger.protocol.errors import CmflError

if TYPE_CHECKING:
    from collections.abc import Iterator

_LONGEST = 500


@contextmanager
def as_training_error() -> Iterator[None]:
    """Turn what a model raises into a sentence.

    Yields:
        Nothing.

    Raises:
        CmflError: an error of this project passes as it is.
        TrainingError: names what was raised inside the `with` block.
    """
    try:
        yield
    except CmflError:
        raise
    except Exception as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST]
        raise TrainingError(f"the model failed: {said}") from error
