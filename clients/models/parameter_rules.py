"""Rules for the parameters of a module, which have to form one flat vector."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn
from torch.nn.parameter import UninitializedParameter

from ledger.protocol.documents.run import MAX_SIZES
from ledger.protocol.errors import ConfigurationError

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
