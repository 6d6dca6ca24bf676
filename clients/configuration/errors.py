"""Refusals of settings, each named as the TOML file has it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic import ValidationError


def first_error(error: ValidationError) -> str:
    """Return the first setting that is wrong, its rule and its value, as one clause."""
    first = error.errors()[0]
    setting = ".".join(str(part) for part in first["loc"])
    value = "" if first["type"] == "missing" else f" (given: {str(first['input'])[:80]})"
    is_known = first["type"] != "extra_forbidden"
    return f"{setting}: {first['msg'] if is_known else 'there is no such setting'}{value}"


@contextmanager
def naming_setting(name: str) -> Iterator[None]:
    """Prefix a refusal with the section and key of the setting that it is about.

    Raises:
        ConfigurationError: the refusal with its prefix.
    """
    try:
        yield
    except ConfigurationError as error:
        raise ConfigurationError(f"{name}: {error}") from error
