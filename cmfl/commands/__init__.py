"""The command `cmfl`, which imports only the named command, and its exit codes."""

from __future__ import annotations

FAILED = 1  # a check failed; of an audit: the record contradicts itself
WRONG = 2  # the command or its input is wrong, or the machine or a node refuses
INCOMPLETE = 3  # nothing is wrong, but something could not be checked, as where logs are missing
FAULT = 70  # an internal error
INTERRUPTED = 130  # Ctrl-C, as Typer reports it; see `process.interrupted_code` for all signals

_OF_VERDICTS = {"passed": 0, "same": 0, "failed": FAILED, "other": FAILED}


def code_of(verdict: str) -> int:
    """Return the exit code of an audit's outcome, or of a verdict on repeated training."""
    return _OF_VERDICTS.get(str(verdict), INCOMPLETE)


class InterruptedCommand(Exception):  # noqa: N818 - not an error
    """A command that was interrupted: what is kept, and how it goes on."""
