"""Low-rank adapters on a frozen base whose memory all modules of a process share."""

from __future__ import annotations

import copy
import math
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from clients.datasets.federated_data import NO_TOKEN, Task
from clients.datasets.files.extra import imported
from clients.models.model import trainable
from ledger.io.user_code import as_configuration_error
from ledger.protocol.errors import ConfigurationError

_HEAD_DEVIATION = 0.02


@dataclass(frozen=True, slots=True)
class Base:
    """A loaded base, which nothing writes to.

    Attributes:
        module: of transformers, in evaluation mode, without gradients.
        drawn: those of them that the folder has no weights of.
    """

    module: Any
    heads: tuple[str, ...]
    drawn: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Adapters:
    """Settings of adapters.

    Attributes:
        targets: names of the layers that get one, separated by commas; empty for peft's usual ones.
    """

    rank: int
    alpha: float
    targets: str

    def target_names(self) -> list[str] | None:
        """Return the names of the layers; None for the usual ones."""
        names = [name.strip() for name in self.targets.split(",")]
        return [name for name in names if name] or None


class AdaptedModel(nn.Module):
    """A base with adapters, as a model of one input."""

    def __init__(self, model: Any, drawn: tuple[str, ...]) -> None:
        super().__init__()
        self.model = model
        self._drawn = drawn
        self._padding = model.config.pad_token_id
        for part in self.modules():
            if isinstance(part, nn.modules.dropout._DropoutNd):
                part.p = 0.0
        self.train(mode=False)

    @property
    def shared(self) -> frozenset[str]:
        """Names of the parameters that all modules of this process share."""
        return frozenset(name for name, p in self.named_parameters() if not p.requires_grad)

    def train(self, mode: bool = True) -> AdaptedModel:
        """Leave the base in evaluation mode, in which nothing is drawn."""
        super().train(mode)
        self.model.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of sequences x, (n, length), which end with `NO_TOKEN`, in float32."""
        is_token = x != NO_TOKEN
        tokens = x.masked_fill(~is_token, self._padding)
        scores: Tensor = self.model(input_ids=tokens, attention_mask=is_token.long()).logits
        return scores.float()

    def draw_start(self, rng: np.random.Generator) -> None:
        """Draw adapters that change nothing yet, as LoRA starts, and small weights of new heads.

        Of an adapter B A, A is uniform within 1 / sqrt(inputs), as peft draws it, and B is zero. An
        embedding's is the other way round.
        """
        with torch.no_grad():
            for name, tensor in trainable(self):
                values = _start(name, tuple(tensor.shape), self._drawn, rng)
                if values is not None:
                    tensor.copy_(torch.from_numpy(values.astype(np.float32)))

    def save_adapter(self, folder: Path) -> None:
        """Write the adapters as `peft.PeftModel.from_pretrained` reads them."""
        with warnings.catch_warnings(action="ignore"):
            self.model.save_pretrained(str(folder), save_embedding_layers=False)


def adapted(base: Base, adapters: Adapters, task: Task) -> AdaptedModel:
    """Return a model with new adapters on a copy of a base that shares its memory."""
    peft = imported("peft", "transformers", "models of a base")
    names = [name for name, _ in base.module.named_modules()]
    targets = adapters.target_names()
    for target in targets or ():
        if not any(name == target or name.endswith(f".{target}") for name in names):
            raise ConfigurationError(
                f"model.options.targets = {adapters.targets!r}: the base has no layer {target!r}; "
                f"it has {', '.join(sorted({n.rpartition('.')[2] for n in names} - {''}))[:300]}"
            )
    kinds = {"causal-lm": "CAUSAL_LM", "token-classify": "TOKEN_CLS", "masked-lm": None}
    config = peft.LoraConfig(
        r=adapters.rank,
        lora_alpha=adapters.alpha,
        target_modules=targets,
        modules_to_save=list(base.heads) or None,
        task_type=kinds.get(task, "SEQ_CLS"),
        lora_dropout=0.0,
        init_lora_weights=True,
    )
    with (
        as_configuration_error(f"model.options.targets = {adapters.targets!r}: no adapters"),
        warnings.catch_warnings(action="ignore"),  # of Conv1D, whose matrices are transposed
    ):
        model = peft.get_peft_model(_sharing(base.module), config)
    for part in model.modules():
        if isinstance(part, peft.utils.ModulesToSaveWrapper):
            part.modules_to_save.float()
            part.register_forward_pre_hook(_in_float32)
    return AdaptedModel(model, base.drawn)


def _start(
    name: str, shape: tuple[int, ...], drawn: tuple[str, ...], rng: np.random.Generator
) -> NDArray[np.float64] | None:
    """Return the first values of a trained tensor; None to leave those of the folder."""
    if ".lora_B." in name or ".lora_embedding_A." in name:
        return np.zeros(shape)
    if ".lora_A." in name:
        limit = math.prod(shape[1:]) ** -0.5
        return rng.uniform(-limit, limit, shape)
    if ".lora_embedding_B." in name:
        return rng.standard_normal(shape)
    if len(shape) > 1 and any(f".{head}." in name for head in drawn):
        return _HEAD_DEVIATION * rng.standard_normal(shape)
    return None


def _sharing(module: nn.Module) -> nn.Module:
    """Return a copy of a module on the same memory: its tensors are new, their numbers are not."""
    shared: dict[int, Any] = {
        id(tensor): nn.Parameter(tensor.data, requires_grad=False) for tensor in module.parameters()
    }
    shared |= {id(buffer): buffer for buffer in module.buffers()}
    return copy.deepcopy(module, shared)


def _in_float32(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return the inputs of a head whose base may compute in bfloat16."""
    return tuple(value.float() for value in inputs)
