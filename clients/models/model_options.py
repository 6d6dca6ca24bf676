"""Validation of the built-in models' options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from clients.datasets.federated_data import DataForm
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from clients.models.model import Option

LARGEST_WIDTH = 65_536
"""Limit of a layer's width: a typo must not exhaust the memory."""


def require_known(model: str, options: Mapping[str, Option], known: tuple[str, ...] = ()) -> None:
    """Reject unknown options."""
    for name in options:
        if name not in known:
            has = f"has {', '.join(known)}" if known else "has no options"
            raise ConfigurationError(f"model.options.{name} = {options[name]!r}: {model!r} {has}")


def width(model: str, options: Mapping[str, Option], name: str, default: int) -> int:
    """Return the width of a layer, 1 .. `LARGEST_WIDTH`, from a model's option or its default."""
    value = options.get(name, default)
    if type(value) is not int or not 1 <= value <= LARGEST_WIDTH:
        raise ConfigurationError(
            f"model.options.{name} = {value!r}: {model!r} takes a whole number, 1 .. "
            f"{LARGEST_WIDTH}"
        )
    return value


def require_numbers(model: str, form: DataForm) -> None:
    """Reject tokens where a model needs numbers."""
    if form.input_dtype != "float32":
        raise ConfigurationError(
            f"model.name = {model!r}: needs numbers, and these inputs are tokens"
        )


def require_images(
    model: str, form: DataForm, *, sides: tuple[int, int] | None = None, least: int = 1
) -> None:
    """Reject inputs that are not images, or images of another size.

    Args:
        sides: required height and width; None for any.
    """
    require_numbers(model, form)
    shape = form.input_shape
    if len(shape) != 3 or (sides is not None and shape[1:] != sides):
        size = "height, width" if sides is None else f"{sides[0]}, {sides[1]}"
        raise ConfigurationError(
            f"model.name = {model!r}: needs images (channels, {size}), not shape {shape}"
        )
    if min(shape[1:]) < least:
        raise ConfigurationError(
            f"model.name = {model!r}: needs images of at least {least} x {least}, not shape {shape}"
        )


def require_tokens(model: str, form: DataForm) -> int:
    """Return the number of distinct tokens; reject inputs that are not rows of tokens."""
    if form.input_dtype != "int64" or form.vocabulary is None or len(form.input_shape) != 1:
        raise ConfigurationError(
            f"model.name = {model!r}: needs rows of tokens, not {form.input_dtype} of shape "
            f"{form.input_shape}"
        )
    return form.vocabulary
