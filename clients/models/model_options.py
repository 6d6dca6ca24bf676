"""The options of the built-in models, checked one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clients.datasets.federated_data import DataForm
    from clients.models.model import Option

LARGEST_WIDTH = 65_536
"""Widest layer that may be asked for: a slip of the finger shall not fill the memory."""


def require_known(model: str, options: Mapping[str, Option], known: tuple[str, ...] = ()) -> None:
    """Refuse options that a model does not have.

    Args:
        model: its name.
        options: what is given.
        known: what it has.

    Raises:
        ConfigurationError: names the first that is unknown, and what is known.
    """
    for name in options:
        if name not in known:
            has = f"has {', '.join(known)}" if known else "has no options"
            raise ConfigurationError(f"model.options.{name} = {options[name]!r}: {model!r} {has}")


def width(model: str, options: Mapping[str, Option], name: str, default: int) -> int:
    """Return the width of a layer.

    Args:
        model: its name.
        options: what is given.
        name: of the option.
        default: where it is not given.

    Returns:
        A number of units, 1 .. `LARGEST_WIDTH`.

    Raises:
        ConfigurationError: it is no such number.
    """
    value = options.get(name, default)
    if type(value) is not int or not 1 <= value <= LARGEST_WIDTH:
        raise ConfigurationError(
            f"model.options.{name} = {value!r}: {model!r} takes a whole number, 1 .. "
            f"{LARGEST_WIDTH}"
        )
    return value


def require_numbers(model: str, form: DataForm) -> None:
    """Refuse tokens where a model needs numbers.

    Args:
        model: its name.
        form: of the data.

    Raises:
        ConfigurationError: the inputs are tokens.
    """
    if form.input_dtype != "float32":
        raise ConfigurationError(
            f"model.name = {model!r}: needs numbers, and these inputs are tokens"
        )


def require_images(
    model: str, form: DataForm, *, sides: tuple[int, int] | None = None, least: int = 1
) -> None:
    """Refuse inputs that are no images, or images of another size.

    Args:
        model: its name.
        form: of the data.
        sides: height and width that it needs, if not any will do.
        least: the shortest side that it can take.

    Raises:
        ConfigurationError: names the shape and the rule.
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
    """Return the number of different tokens; refuse inputs that are no rows of tokens.

    Args:
        model: its name.
        form: of the data.

    Raises:
        ConfigurationError: the inputs are something else.
    """
    if form.input_dtype != "int64" or form.vocabulary is None or len(form.input_shape) != 1:
        raise ConfigurationError(
            f"model.name = {model!r}: needs rows of tokens, not {form.input_dtype} of shape "
            f"{form.input_shape}"
        )
    return form.vocabulary
