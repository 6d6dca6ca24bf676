"""What the protocol asks of a model: one float32 vector, and a trial on real inputs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from clients.datasets.federated_data import PER_TOKEN, FederatedData
from clients.devices import reproducible
from clients.models.model import (
    ForeignFactory,
    Model,
    fits,
    model_error,
    score_shape,
    trainable,
    training_loss,
)
from ledger.io.user_code import as_configuration_error
from ledger.protocol.documents.run import MAX_SIZES

_ROWS = 8


def check_model(model: Model, data: FederatedData) -> None:
    """Reject a model that cannot be trained on these data by the protocol's rules.

    An update has to follow from the global model, the client's data and its batch order alone, so
    that its owner can repeat it: without chance in the forward pass (dropout), and without state
    outside the vector (batch normalisation).
    """
    cpu = torch.device("cpu")
    # Without the digest of its first module: random state is reported more precisely below.
    model = replace(model, frozen=None)
    with reproducible(cpu), torch.random.fork_rng(devices=[]):
        loss = _Trial(model, model.module()).loss(data)
        if isinstance(model.factory, ForeignFactory):
            _require_repeatable_start(model)
    if not math.isfinite(loss):
        raise model_error(model.name, f"its loss on the first inputs is {loss}; must be finite")


@dataclass(frozen=True, slots=True)
class _Trial:
    model: Model
    module: nn.Module

    def loss(self, data: FederatedData) -> float:
        """Return the loss on a few inputs of the first clients; refuse what breaks a rule."""
        name, few = self.model.name, data.train[:_ROWS]
        rows, y = (np.concatenate([p[:_ROWS] for p in of])[:_ROWS] for of in zip(*few, strict=True))
        x = torch.tensor(data.collate(rows))
        self.module.train()
        before = _state(self.module)
        scores = self._scores(x, "training")
        self._require_unchanged(before, "training")
        drawn = next((part for part, module in self.module.named_modules() if _draws(module)), None)
        again = (self._scores(x, "training") for _ in range(2))
        if drawn is not None or not all(_equal(each, scores) for each in again):
            location = "" if drawn is None else f" in {drawn!r}"
            raise model_error(
                name,
                f"its forward pass in training is not the same twice: there is chance{location} "
                f"(such as dropout, whose p can be 0), and its updates could not be repeated",
            )
        self._scores(x[:1], "training")
        with as_configuration_error(f"model.name = {name!r}: its backward pass fails"):
            loss = training_loss(self.model.form.task, scores, torch.tensor(y))
            loss.backward()
        unused = next((part for part, p in trainable(self.module) if p.grad is None), None)
        if unused is not None:
            raise model_error(
                name,
                f"its parameter {unused!r} takes no part in the forward pass, and would be sent "
                f"and voted on: take it out, or freeze it by requires_grad_(False)",
            )
        self.module.eval()
        before = _state(self.module)
        with torch.no_grad():
            self._scores(x, "evaluation")
        self._require_unchanged(before, "evaluation")
        return loss.item()

    def _scores(self, x: Tensor, mode: str) -> Tensor:
        name, form = self.model.name, self.model.form
        tried = f"its forward pass in {mode} fails on inputs of shape {tuple(x.shape)}"
        with as_configuration_error(f"model.name = {name!r}: {tried}"):
            scores = self.module(x.clone())
        if not isinstance(scores, Tensor):
            kind = type(scores).__name__
            raise model_error(name, f"its forward pass returns {kind}, and no tensor")
        if not fits(form, len(x), tuple(scores.shape)) or not scores.is_floating_point():
            each = "each of its tokens" if form.task in PER_TOKEN else f"each of {len(x)} inputs"
            column = "output" if form.task == "regress" else "class"
            raise model_error(
                name,
                f"its forward pass returns {str(scores.dtype).removeprefix('torch.')} of shape "
                f"{tuple(scores.shape)}; must be scores of shape {score_shape(form, len(x))}, one "
                f"row for {each} and one column for each {column}",
            )
        return scores

    def _require_unchanged(self, before: dict[str, Tensor], mode: str) -> None:
        for name, tensor in _state(self.module).items():
            if name not in before or not _equal(tensor, before[name]):
                raise model_error(
                    self.model.name,
                    f"its forward pass in {mode} changes {name!r}, which is not part of the vote "
                    f"(as BatchNorm does; GroupNorm and LayerNorm do not)",
                )


def _state(module: nn.Module) -> dict[str, Tensor]:
    """Return copies of a module's parameters and buffers, but for those of a shared base."""
    shared: frozenset[str] = getattr(module, "shared", frozenset())
    tensors = [*module.named_parameters(), *module.named_buffers()]
    return {name: tensor.detach().clone() for name, tensor in tensors if name not in shared}


def _equal(first: Tensor, second: Tensor) -> bool:
    """Return whether two tensors have the same bytes, so that NaN equals itself."""
    one, other = (t.detach().contiguous().reshape(-1).view(torch.uint8) for t in (first, second))
    return first.shape == second.shape and torch.equal(one, other)


def _draws(part: nn.Module) -> bool:
    is_dropout = isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0
    return is_dropout or (isinstance(part, nn.RNNBase) and part.dropout > 0 and part.num_layers > 1)


def _require_repeatable_start(model: Model) -> None:
    """Reject a class whose initial values do not follow from the seed."""
    rule = "is not the same in two modules of one seed: draw it by torch's own generator"
    one, other = (_state(model.module()) for _ in range(2))
    for name in one.keys() - {name for name, _ in model.layout}:
        if name not in other or not _equal(one[name], other[name]):
            raise model_error(model.name, f"{name!r} {rule}")
    with as_configuration_error(f"model.name = {model.name!r}: its start cannot be drawn"):
        first, second = (model.initial(np.random.default_rng(0)) for _ in range(2))
    if not np.isfinite(first).all():
        raise model_error(model.name, "its start holds numbers that are not finite")
    if not np.array_equal(first, second):
        raise model_error(model.name, f"its start {rule}, or by the rng of draw_start")


MAX_NAMES = 100_000
"""Limit of the names' total length: layout and registry have to fit the run document."""


def require_tensors(model: str, module: nn.Module) -> None:
    """Reject a module whose trainable parameters do not form one float32 vector.

    One parameter under two names is one tensor of the vector. Two parameters that share memory are
    rejected: loading or training one of them would change the other.
    """
    tensors = trainable(module)
    if not tensors:
        raise model_error(model, "has no trainable parameters")
    for name, tensor in tensors:
        is_text = all(not "\ud800" <= character <= "\udfff" for character in name)
        rule = _broken_rule(tensor) if is_text else "has a name that is not Unicode text"
        if rule is not None:
            raise model_error(model, f"parameter {name!r} {rule}")
    if sum(len(name.encode("utf-8", "replace")) for name, _ in tensors) > MAX_NAMES:
        raise model_error(model, f"the names of its parameters have over {MAX_NAMES} characters")
    placed = sorted((*_extent(tensor), name) for name, tensor in tensors)
    for (_, end, before), (start, _, after) in pairwise(placed):
        if start < end:
            raise model_error(
                model,
                f"parameters {before!r} and {after!r} share memory: make "
                f"them one parameter, under both names",
            )
    for name, tensor in tensors:
        start, end = _extent(tensor)
        if end - start < tensor.numel() * tensor.element_size():
            raise model_error(model, f"parameter {name!r} is one number in many places: clone it")


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


def _extent(tensor: nn.Parameter) -> tuple[int, int]:
    """Return the addresses of the first byte and after the last."""
    start, steps = tensor.data_ptr(), zip(tensor.shape, tensor.stride(), strict=True)
    last = sum((size - 1) * stride for size, stride in steps)
    return start, start + (last + 1) * tensor.element_size()
