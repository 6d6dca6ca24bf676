"""The exit codes of `cmfl`."""

from __future__ import annotations

FAILED = 1
"""A check failed; of an audit: the record contradicts itself."""

WRONG = 2
"""The command or its input is wrong, or the machine or a node refuses."""

INCOMPLETE = 3
"""Nothing contradicts, but something could not be checked: a node leaves logs out, for one."""

FAULT = 70
"""A fault of ours."""

INTERRUPTED = 130


class InterruptedCommand(Exception):  # noqa: N818 - somebody wished it
    """Somebody pressed Ctrl-C; the message says how to go on."""
