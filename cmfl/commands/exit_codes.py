"""The exit codes of `cmfl`."""

from __future__ import annotations

FAILED = 1
"""A check failed; of an audit: the record contradicts itself."""

WRONG = 2
"""The command or its input is wrong, or the machine or a node refuses."""

INCOMPLETE = 3
"""Nothing is wrong, but something could not be checked, for example because logs are missing."""

FAULT = 70
"""An internal error."""

INTERRUPTED = 130
"""Ctrl-C, as Typer reports it; see `interrupts.interrupted_code` for all signals."""


class InterruptedCommand(Exception):  # noqa: N818 - not an error
    """Ctrl-C, TERM or HUP; the message says how to continue."""
