"""Missing optional packages as one sentence that names the extra to install."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from ledger.io.extras import install_command, missing_extra
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def naming_extras() -> Iterator[None]:
    """Name the extra whose absence makes an import fail; also a decorator.

    Raises:
        ConfigurationError: says how to install it.
        ModuleNotFoundError: of a module that no extra installs.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        extra = missing_extra(error)
        if extra is None:
            raise
        raise ConfigurationError(
            f"this needs the extra [{extra}]: {install_command(extra)}"
        ) from error
