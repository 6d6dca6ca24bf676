"""Models: any `torch.nn.Module` whose trainable parameters are one flat vector.

The vector is trained, sent, scored, averaged and digested: the parameters that require a gradient,
as float32, in the order of `named_parameters`. Everything else in a module (frozen word vectors,
constant biases) is the same for everybody and not in the vector. A module maps collated inputs to
scores, whose shape and loss are those of the data's task (`clients/models/tasks.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from clients.datasets.federated_data import DataForm
from clients.models.model_binding import frozen_state_of, require_same
from ledger.protocol.rules.distance import Layout
from ledger.protocol.types import NO_DIGEST, Digest

ParameterVector = NDArray[np.float32]

Option = int | float | str | bool
"""A setting of a model or a data set in TOML."""

ModuleFactory = Callable[["DataForm", Mapping[str, Option]], nn.Module]
"""Makes a module for the data; raises ConfigurationError if they do not fit."""


@runtime_checkable
class DrawsItsStart(Protocol):
    """A module that draws its initial parameters itself, independently of torch's global state."""

    def draw_start(self, rng: np.random.Generator) -> None:
        """Set all trainable parameters from `rng` alone."""


@runtime_checkable
class SharesItsBase(Protocol):
    """A module with frozen parameters that its whole process shares, and nothing writes to."""

    @property
    def shared(self) -> frozenset[str]:
        """Names of these parameters."""


@runtime_checkable
class ForeignFactory(Protocol):
    """A factory of modules with code or files outside this project, which are identified."""

    @property
    def name(self) -> str:
        """Name of the model, the same on every machine."""

    def recorded(self) -> dict[str, str]:
        """Return readable identification of the code."""

    def source(self) -> Digest:
        """Return the digest of the code, which the run document binds."""

    def files(self, options: Mapping[str, Option]) -> dict[str, str]:
        """Return the `sha256:` digest of each file or folder that options name."""

    def __call__(self, form: DataForm, options: Mapping[str, Option]) -> nn.Module:
        """Return a new module."""


@dataclass(frozen=True, slots=True)
class Model:
    """A model that any process can build again; pickled by its ingredients.

    Attributes:
        factory: makes its module: a function of this project, or a `UserModule`.
        layout: name and shape of each trainable tensor, in the order of the vector.
        frozen: digest of frozen parameters and buffers; None if not known yet.
    """

    factory: ModuleFactory
    form: DataForm
    options: Mapping[str, Option] = field(default_factory=dict)
    layout: Layout = ()
    option_files: Mapping[str, str] = field(default_factory=dict)
    frozen: Digest | None = None

    @property
    def name(self) -> str:
        """A name in the registry, or file or package and class."""
        if isinstance(self.factory, ForeignFactory):
            return self.factory.name
        return getattr(self.factory, "__name__", type(self.factory).__name__)

    @property
    def dimension(self) -> int:
        """Number of trainable parameters d."""
        return sum(math.prod(shape) for _, shape in self.layout)

    @property
    def source(self) -> Digest:
        """Digest of the model's code; zeros for a built-in model, which its name identifies."""
        return self.factory.source() if isinstance(self.factory, ForeignFactory) else NO_DIGEST

    @property
    def frozen_state(self) -> Digest:
        """Digest of its initial frozen parameters and buffers; zeros if there are none."""
        return self.frozen or NO_DIGEST

    def recorded(self) -> dict[str, Any]:
        """Return the model's record in the run document, with digests instead of paths."""
        foreign = self.factory.recorded() if isinstance(self.factory, ForeignFactory) else {}
        return {"name": self.name, "options": {**self.options, **self.option_files}} | foreign

    def module(self) -> nn.Module:
        """Return a new module with arbitrary trainable parameters.

        Everything outside the vector is the same in every process, even if it is random.
        """
        files = self._files() if self.option_files else {}
        for name, digest in self.option_files.items():
            subject = f"model.options.{name} = {self.options[name]!r}: its file"
            require_same(subject, digest, files.get(name, "gone"))
        module = self._built(seed=0)
        if self.frozen is not None:
            subject = f"model.name = {self.name!r}: the digest of its frozen parameters and buffers"
            require_same(subject, self.frozen.hex(), frozen_state_of(module).hex())
        return module

    def initial(self, rng: np.random.Generator) -> ParameterVector:
        """Return starting parameters, shape (d,), that follow from `rng` alone."""
        module = self.module()
        if isinstance(module, DrawsItsStart):
            module.draw_start(rng)
        else:
            module = self._built(int(rng.integers(2**63)))
        return vector_of(module)

    def _files(self) -> dict[str, str]:
        factory = self.factory
        return factory.files(self.options) if isinstance(factory, ForeignFactory) else {}

    def _built(self, seed: int) -> nn.Module:
        # Building a module must not change torch's global random state.
        with torch.random.fork_rng(devices=[]):
            seed_torch(seed)
            return self.factory(self.form, self.options)


def model_of(
    factory: ModuleFactory, form: DataForm, options: Mapping[str, Option] | None = None
) -> Model:
    """Return a model, with the layout of its module."""
    options = dict(options or {})
    files = factory.files(options) if isinstance(factory, ForeignFactory) else {}
    module = Model(factory, form, options).module()
    layout = tuple((name, tuple(p.shape)) for name, p in trainable(module))
    return Model(factory, form, options, layout, files, frozen_state_of(module))


def seed_torch(seed: int) -> None:
    """Seed torch's global generators, as `torch.manual_seed` does.

    That one notes down its caller for each kind of card that is not there: 1.5 ms, more than a
    small model takes to be built.
    """
    if torch.accelerator.is_available():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)


def trainable(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Return name and tensor of each trainable parameter, in the order of the vector."""
    return [(name, p) for name, p in module.named_parameters() if p.requires_grad]


def vector_of(module: nn.Module) -> ParameterVector:
    """Return the trainable parameters of a module, shape (d,), float32."""
    parts = [p.detach().reshape(-1).float().cpu().numpy() for _, p in trainable(module)]
    return np.concatenate(parts).astype(np.float32, copy=False)


def load_vector(module: nn.Module, vector: torch.Tensor) -> None:
    """Copy a flat vector of shape (d,), on any device, into a module's trainable parameters."""
    tensors = [p for _, p in trainable(module)]
    sizes = [p.numel() for p in tensors]
    if vector.shape != (sum(sizes),):
        raise ValueError(f"{tuple(vector.shape)} parameters for a module of {sum(sizes)}")
    with torch.no_grad():
        for tensor, part in zip(tensors, vector.split(sizes), strict=True):
            tensor.copy_(part.view(tensor.shape))
