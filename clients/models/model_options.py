"""Options, initial weights and parameter rules of models.

torch's own initial values follow from a global state that everything else in the process draws
from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.parameter import UninitializedParameter

from clients.datasets.federated_data import DataForm
from clients.models.model import trainable
from ledger.protocol.documents.run import MAX_SIZES
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from clients.models.model import Option

    Weights = Callable[[np.random.Generator, str, tuple[int, ...]], NDArray[np.float64]]


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
    """Reject inputs that are not images, or not of these sides (height, width)."""
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


def draw_in_turn(module: nn.Module, rng: np.random.Generator, weights: Weights) -> None:
    """Set every trainable tensor in the order of the vector: random weights, zero biases."""
    with torch.no_grad():
        for name, tensor in trainable(module):
            if tensor.dim() == 1:
                tensor.zero_()
            else:
                drawn = weights(rng, name, tuple(tensor.shape))
                tensor.copy_(torch.from_numpy(drawn.astype(np.float32)))


def he_normal(rng: np.random.Generator, _: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return normal weights of variance 2 / inputs, which keep the scale of ReLU layers."""
    return rng.standard_normal(shape) * math.sqrt(2 / math.prod(shape[1:]))


def glorot_uniform(
    rng: np.random.Generator, _: str, shape: tuple[int, ...], fans: int | None = None
) -> NDArray[np.float64]:
    """Return uniform weights of variance 2 / (inputs + outputs), TensorFlow's default.

    `fans` is inputs + outputs of the layer, if the tensor is only a part of it.
    """
    limit = math.sqrt(6 / (fans or (shape[0] + shape[1]) * math.prod(shape[2:])))
    return rng.uniform(-limit, limit, shape)


MAX_NAMES = 100_000
"""Limit of the names' total length: layout and registry have to fit the run document."""


def require_tensors(model: str, module: nn.Module) -> None:
    """Reject a module whose trainable parameters do not form one float32 vector.

    One parameter under two names is one tensor of the vector. Two parameters that share memory are
    rejected: loading or training one of them would change the other.
    """
    tensors = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    if not tensors:
        raise ConfigurationError(f"model.name = {model!r}: has no trainable parameters")
    for name, tensor in tensors:
        rule = _broken_rule(tensor) if _is_text(name) else "has a name that is not Unicode text"
        if rule is not None:
            raise ConfigurationError(f"model.name = {model!r}: parameter {name!r} {rule}")
    if sum(len(name.encode("utf-8", "replace")) for name, _ in tensors) > MAX_NAMES:
        raise ConfigurationError(
            f"model.name = {model!r}: the names of its parameters have over {MAX_NAMES} characters"
        )
    _require_apart(model, tensors)


def _is_text(name: str) -> bool:
    return all(not "\ud800" <= character <= "\udfff" for character in name)


def _broken_rule(tensor: nn.Parameter) -> str | None:
    if isinstance(tensor, UninitializedParameter):
        return "gets its shape from the first input: give all sizes to the class"
    if tensor.dtype != torch.float32 or tensor.layout != torch.strided:
        kind = str(tensor.dtype if tensor.layout == torch.strided else tensor.layout)
        return f"is {kind.removeprefix('torch.')}, and the vector is float32"
    if tensor.device.type != "cpu":
        return f"is made on {tensor.device}: leave the device to training"
    if tensor.numel() == 0:
        return f"has no numbers, shape {tuple(tensor.shape)}"
    if tensor.dim() > MAX_SIZES:
        return f"has {tensor.dim()} sizes, and at most {MAX_SIZES} are recorded"
    return None


def _require_apart(model: str, tensors: list[tuple[str, nn.Parameter]]) -> None:
    """Reject parameters that share memory."""
    placed = sorted((*_extent(tensor), name) for name, tensor in tensors)
    for (_, end, before), (start, _, after) in pairwise(placed):
        if start < end:
            raise ConfigurationError(
                f"model.name = {model!r}: parameters {before!r} and {after!r} share memory: make "
                f"them one parameter, under both names"
            )
    for name, tensor in tensors:
        start, end = _extent(tensor)
        if end - start < tensor.numel() * tensor.element_size():
            raise ConfigurationError(
                f"model.name = {model!r}: parameter {name!r} is one number in many places: clone it"
            )


def _extent(tensor: nn.Parameter) -> tuple[int, int]:
    start = tensor.data_ptr()
    last = sum(
        (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    return start, start + (last + 1) * tensor.element_size()
