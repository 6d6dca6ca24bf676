"""What is said where a model, which may be anybody's code, fails."""

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
    """Turn what a model raises into a sentence.

    Yields:
        Nothing.

    Raises:
        CmflError: an error of this project passes as it is.
        KeyboardInterrupt: as it is too.
        TrainingError: names what was raised inside the `with` block.
    """
    try:
        yield
    except (CmflError, KeyboardInterrupt):
        raise
    except BaseException as error:  # sys.exit too: the command would end as if it were done
        said = " ".join(f"{type(error).__name__}: {message_of(error)}".split())[:_LONGEST]
        raise TrainingError(f"the model failed: {said}") from error
