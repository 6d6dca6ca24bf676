"""The setting that a refusal is about, named as the TOML file has it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def of_setting(name: str) -> Iterator[None]:
    """Let a refusal within begin with the setting that it is about.

    What refuses a data set, a model or a number of clients also serves those who have no file.

    Args:
        name: the setting's section and key.

    Raises:
        ConfigurationError: what was refused, and by which setting it was asked for.
    """
    try:
        yield
    except ConfigurationError as error:
        raise ConfigurationError(f"{name}: {error}") from error
