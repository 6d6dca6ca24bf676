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


class Commands(typer.Typer):
    """Commands whose parameters may be groups of options."""

    def __init__(self, **how: Any) -> None:
        super().__init__(no_args_is_help=True, **how)

    def command(self, name: str | None = None, **how: Any) -> Callable[..., Any]:
        """Register a command, with the fields of its groups in place of the groups."""
        register = super().command(name, **how)
        return lambda command: register(_expanded(command))


def _expanded(command: Callable[..., None]) -> Callable[..., None]:
    hints = get_type_hints(command, include_extras=True)
    parameters = inspect.signature(command).parameters.values()
    groups = {p.name: hints[p.name] for p in parameters if dataclasses.is_dataclass(hints[p.name])}

    @wraps(command)
    def expanded(**values: Any) -> None:
        for name, group in groups.items():
            fields = [field.name for field in dataclasses.fields(group)]
            values[name] = group(**{field: values.pop(field) for field in fields})
        command(**values)

    options = [option for p in parameters for option in _options_of(p, hints[p.name])]
    names = [option.name for option in options]
    if len(set(names)) < len(names):
        raise TypeError(f"{command.__name__}: two of the options {names} have one name")
    expanded.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    expanded.__annotations__ = {option.name: option.annotation for option in options}
    return expanded


def _options_of(parameter: inspect.Parameter, kind: Any) -> Iterator[inspect.Parameter]:
    fields: list[tuple[str, Any, Any]] = [(parameter.name, kind, parameter.default)]
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind, include_extras=True)
        fields = [(each.name, hints[each.name], each.default) for each in dataclasses.fields(kind)]
    for name, annotation, default in fields:
        yield inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if default is dataclasses.MISSING else default,
            annotation=_with_help(name, annotation),
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
