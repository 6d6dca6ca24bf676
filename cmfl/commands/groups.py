"""Commands whose parameters are options and groups of options.

A sentence in an annotation is the help of the option. A `bool` is a flag without a --no- form. A
group is a frozen dataclass whose fields are annotated as a command's parameters are. A command
names it as one parameter, and `Commands` shows its fields to Typer as options of their own:

    @app.command("show")
    def show(source: HistoryOptions, last: Annotated[bool, "Only the last round."] = False) -> None:
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from copy import copy
from functools import wraps
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer import Option

from cmfl.commands.console import VERBOSITY
from cmfl.commands.process import others_on_standard_error


class Commands(typer.Typer):
    """Commands whose parameters may be groups of options."""

    def __init__(self, **how: Any) -> None:
        super().__init__(no_args_is_help=True, **how)

    def command(self, name: str | None = None, **how: Any) -> Callable[..., Any]:
        """Register a command, with the fields of its groups in place of the groups."""
        register = super().command(name, **how)
        return lambda command: register(_expanded(command))


def _expanded(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with options only, and with -v and -q.

    While it runs, standard output has its results alone.
    """
    hints = get_type_hints(command, include_extras=True)
    parameters = inspect.signature(command).parameters.values()
    groups = {p.name: hints[p.name] for p in parameters if dataclasses.is_dataclass(hints[p.name])}

    @wraps(command)
    @others_on_standard_error()
    def expanded(**values: Any) -> None:
        for name, group in groups.items():
            fields = [field.name for field in dataclasses.fields(group)]
            values[name] = group(**{field: values.pop(field) for field in fields})
        command(**{name: value for name, value in values.items() if name not in VERBOSITY})

    options = [
        option
        for p in parameters
        for option in _options_of(p.name, hints[p.name], default=p.default)
    ]
    names = [option.name for option in options]
    if len(set(names)) < len(names):
        raise TypeError(f"{command.__name__}: two of the options {names} have one name")
    for name, kind in VERBOSITY.items():
        options += _options_of(name, kind, default=False)
    expanded.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    expanded.__annotations__ = {option.name: option.annotation for option in options}
    return expanded


def _options_of(name: str, kind: Any, *, default: Any) -> Iterator[inspect.Parameter]:
    """Yield a command's parameter as an option, or the fields of its group as options."""
    options = [(name, kind, default)]
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind, include_extras=True)
        options = [(each.name, hints[each.name], each.default) for each in dataclasses.fields(kind)]
    for option, annotation, value in options:
        yield inspect.Parameter(
            option,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if value is dataclasses.MISSING else value,
            annotation=_with_help(option, annotation),
        )


def _with_help(name: str, kind: Any) -> Any:
    """Return an annotation in which a sentence has become the help of an option or argument."""
    plain, *about = get_args(kind) if get_origin(kind) is Annotated else (kind,)
    sentences = [each for each in about if isinstance(each, str)]
    if not sentences:
        return kind
    flag = (f"--{name.replace('_', '-')}",) if plain is bool else ()
    shown = next((copy(each) for each in about if not isinstance(each, str)), Option(*flag))
    shown.help = sentences[0]
    return Annotated[plain, shown]
