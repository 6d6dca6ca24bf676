"""Verbosity of standard error, by two options that every command has.

Results and errors are printed in any case.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import IntEnum
from typing import Annotated

import typer

from cmfl.commands.streams import others_on_standard_error
from ledger.protocol.errors import ConfigurationError


class Verbosity(IntEnum):
    """Levels of verbosity."""

    QUIET = 0
    USUAL = 1
    VERBOSE = 2


_CHOSEN = ContextVar("verbosity", default=Verbosity.USUAL)


def chosen() -> Verbosity:
    """Return the verbosity of the running command."""
    return _CHOSEN.get()


@contextmanager
def fresh() -> Iterator[None]:
    """Reset the verbosity in this context."""
    token = _CHOSEN.set(Verbosity.USUAL)
    try:
        yield
    finally:
        _CHOSEN.reset(token)


def _choose(parameter: typer.CallbackParam, value: bool) -> bool:
    if value:
        level = Verbosity[(parameter.name or "").upper()]
        if chosen() not in {Verbosity.USUAL, level}:
            raise ConfigurationError("-q and -v contradict each other: give one of them")
        _CHOSEN.set(level)
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
    """Define the parameters that `add_to_all` copies; never called."""


def add_to_all(command: object) -> None:
    """Add the options of this module to every command of a click command tree.

    While a command runs, standard output has its results alone.
    """
    application = typer.Typer(add_completion=False)
    application.command()(_options)
    options = typer.main.get_command(application).params
    remaining = [command]
    while remaining:
        command_ = remaining.pop()
        children = getattr(command_, "commands", None)
        if children is None:
            command_.params += options  # type: ignore[attr-defined]
            call = command_.callback  # type: ignore[attr-defined]
            command_.callback = others_on_standard_error()(call)  # type: ignore[attr-defined]
        else:
            remaining += children.values()
