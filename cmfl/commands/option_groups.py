"""Options that several commands share, declared once and taken as one argument.

A group is a frozen dataclass whose fields are annotated as a command's parameters are. A command
names it as one parameter, and `expand_groups` shows its fields to Typer as options of their own:

    @expand_groups
    def show(source: HistoryOptions, number: Round, json: AsJson = False) -> None: ...
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, get_type_hints


def expand_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with the fields of its option groups in place of the groups.

    Raises:
        TypeError: two options have one name.
    """
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
    if not dataclasses.is_dataclass(kind):
        yield parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=kind)
        return
    hints = get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        default = field.default
        yield inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if default is dataclasses.MISSING else default,
            annotation=hints[field.name],
        )
