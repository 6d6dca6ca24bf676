"""Packages that only some data need, and that not every install has."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ledger.protocol.errors import ConfigurationError


def imported(module: str, extra: str, purpose: str) -> Any:
    """Return a module of an extra.

    Args:
        module: its name.
        extra: what brings it.
        purpose: what it is needed for, as a sentence begins.

    Raises:
        ConfigurationError: it is not installed; names the extra.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigurationError(
            f"{purpose} need the extra [{extra}]: pip install -c constraints.txt '.[{extra}]'"
        ) from error
