"""Missing optional packages as one sentence that names the extra to install."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ledger.io.extras import missing_extra
from ledger.protocol.errors import ConfigurationError


@contextmanager
def naming_extras() -> Iterator[None]:
    """Name the extra whose absence makes an import fail; also a decorator."""
    try:
        yield
    except ModuleNotFoundError as error:
        sentence = missing_extra(error)
        if sentence is None:
            raise
        raise ConfigurationError(sentence) from error


@contextmanager
def naming(file: object) -> Iterator[None]:
    """Name a file, or the option that names it, in the error of whoever cannot read or write it."""
    try:
        yield
    except OSError as error:
        raise ConfigurationError(f"{file}: {error.strerror or error}") from error
