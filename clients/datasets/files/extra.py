"""Imports of optional packages for some data."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ledger.io.extras import install_command
from ledger.protocol.errors import ConfigurationError


def imported(module: str, extra: str, purpose: str) -> Any:
    """Return a module of an extra; raise ConfigurationError with the extra's name if it is missing.

    Args:
        module: its name.
        extra: the extra that installs it.
        purpose: subject of the message, plural.

    Raises:
        ConfigurationError: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigurationError(
            f"{purpose} need the extra [{extra}]: {install_command(extra)}"
        ) from error
