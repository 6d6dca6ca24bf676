"""The types of settings as keyword arguments: `python -m tests.cmfl.typed_settings` writes them."""

from __future__ import annotations

from collections import Counter
from enum import Enum
from inspect import isclass
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args, get_origin

import cmfl
from clients.configuration.schema import Configuration

MODULE = Path(cmfl.__file__).with_name("keywords.py")
PARAMETERS = {"model", "data", "attack"}  # of functions, which take objects for them
HEAD_END = 'back."""\n\n'  # the keywords follow


def module_text() -> str:
    """Return the module's text, a line for each keyword."""
    places = [name.rpartition(".") for name in Configuration.names()]
    times = Counter(key for _, _, key in places)
    types = {section: "Mapping[str, object]" for section, _, _ in places if section}
    for section, _, key in places:
        table: Any = Configuration.model_fields[section].annotation if section else Configuration
        if times[key] == 1 and key not in types:
            code = " | Callable[..., object]" if key == "distance" else ""
            types[key] = f"{_text(table.model_fields[key].annotation)}{code} | None"
    lines = (f"    {key}: {types[key]}\n" for key in types if key not in PARAMETERS)
    head, end, _ = MODULE.read_text("utf-8").partition(HEAD_END)
    return head + end + "".join(lines)


def _text(kind: Any) -> str:
    """Return a setting's type as an annotation, without None."""
    origin, parts = get_origin(kind), get_args(kind)
    if isclass(kind) and issubclass(kind, Enum):
        parts = tuple(str(member.value) for member in kind)
    if kind is Any or not parts:
        return "object" if kind is Any else str(kind.__name__)
    if origin is Annotated:
        return _text(parts[0])
    if origin is dict:
        return f"Mapping[str, {_text(parts[1])}]"
    if all(isinstance(part, str) for part in parts):
        return "Literal[" + ", ".join(f'"{part}"' for part in parts) + "]"
    return " | ".join(_text(part) for part in parts if part is not NoneType)


if __name__ == "__main__":
    MODULE.write_text(module_text(), encoding="utf-8")
