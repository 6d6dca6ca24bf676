"""Imports of optional packages for some data."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ledger.io.extras import install_command
from ledger.protocol.errors import ConfigurationError


def imported(module: str, extra: str, purpose: str) -> Any:
    """Return a module of an extra; raise ConfigurationError if the extra is missing."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigurationError(
            f"{purpose} need the extra [{extra}]: {install_command(extra)}"
        ) from error
