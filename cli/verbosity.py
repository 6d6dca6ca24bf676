"""How much a command says on standard error, by the two options that every command takes.

What a command is asked for is printed in any case, and so is what is wrong.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from enum import IntEnum
from typing import TYPE_CHECKING, Annotated

import typer

from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator


class Verbosity(IntEnum):
    """How much is said."""

    QUIET = 0
    USUAL = 1
    VERBOSE = 2


_CHOSEN = ContextVar("verbosity", default=Verbosity.USUAL)


def chosen() -> Verbosity:
    """Return how much the running command says."""
    return _CHOSEN.get()


@contextmanager
def fresh() -> Iterator[None]:
    """Say as much as usual in this context, until a command line asks for something else."""
    token = _CHOSEN.set(Verbosity.USUAL)
    try:
        yield
    finally:
        _CHOSEN.reset(token)


def _choose(parameter: typer.CallbackParam, value: bool) -> bool:
    if value:
        asked = Verbosity[(parameter.name or "").upper()]
        if chosen() not in {Verbosity.USUAL, asked}:
            raise ConfigurationError("-q and -v contradict each other: give one of them")
        _CHOSEN.set(asked)
    return value


def _options(
    verbose: Annotated[
        bool,
        typer.Option(
            "-v",
            "--verbose",
            help="Also say what is logged, and where a fault of ours arose.",
            callback=_choose,
            expose_value=False,
        ),
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option(
            "-q",
            "--quiet",
            help="Say nothing of progress, nor what is only worth knowing.",
            callback=_choose,
            expose_value=False,
        ),
    ] = False,
) -> None:
    """Have the parameters that `taken_by_all` hands on; never called."""


def taken_by_all(command: object) -> None:
    """Have every command of a tree take the options of this module.

    Args:
        command: what Typer makes of an application; its groups are gone through.
    """
    apart = typer.Typer(add_completion=False)
    apart.command()(_options)
    options = typer.main.get_command(apart).params
    waiting = [command]
    while waiting:
        one = waiting.pop()
        below = getattr(one, "commands", None)
        if below is None:
            one.params += options  # type: ignore[attr-defined]
        else:
            waiting += below.values()
