"""What pydantic has against a table of settings, as one clause: the first value and its rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


def first_fault(error: ValidationError) -> str:
    """Return the first setting that is wrong, the rule, and what was given.

    Args:
        error: with at least one fault.
    """
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    given = "" if first["type"] == "missing" else f" (given: {str(first['input'])[:80]})"
    known = first["type"] != "extra_forbidden"
    return f"{place}: {first['msg'] if known else 'there is no such setting'}{given}"
