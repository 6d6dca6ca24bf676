"""Models, their tasks, what binds a model to a run, and a trial on real inputs.

The vector has the parameters that require a gradient, as float32, in the order of
`named_parameters`. Everything else in a module is the same for all and not in the vector. A module
maps collated inputs to scores, whose shape and loss follow from the data's task.

| task | scores | targets | loss | correct |
| --- | --- | --- | --- | --- |
| `classify` | (n, classes) | (n,) | cross-entropy | samples |
| `PER_TOKEN` | (n, length, classes) | (n, length) | the same | tokens |
| `regress` | (n, outputs) | (n, outputs) | squared error | none |

A token whose target is `NO_TARGET` counts nowhere, so that sequences may differ in length.

Calibrated training of `classify` and `token-classify` takes the loss on logits shifted by the
client's own class counts: the logit adjustment of Menon, Jayasumana, Rawat, Jain, Veit, Kumar 2021,
"Long-Tail Learning via Logit Adjustment". The model and its evaluation have no shift.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parameter import UninitializedParameter

from clients.datasets.federated_data import (
    LANGUAGE,
    NO_TARGET,
    PER_TOKEN,
    DataForm,
    FederatedData,
    Labels,
    Task,
)
from clients.devices import reproducible
from ledger.io.home import naming
from ledger.io.user_code import as_configuration_error
from ledger.protocol.documents.run import MAX_SIZES
from ledger.protocol.encoding import u32
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.inputs import NamedArray, frozen_state
from ledger.protocol.rules.distance import Layout
from ledger.protocol.types import NO_DIGEST, Digest

MAX_FOLDER_FILES = 10_000
RECORDED_FILE = "sha256:"  # prefix of an option file's digest in a run document


def folder_digest(name: str, folder: Path) -> str:
    """Return the digest of an option's folder, read again only if names, sizes or times change."""
    with naming(f"model.options.{name} = {str(folder)!r}: cannot be read"):
        states = [(path, path.stat()) for path in sorted(folder.rglob("*"))[: MAX_FOLDER_FILES * 2]]
    seen = tuple((str(path), state.st_size, state.st_mtime_ns) for path, state in states)
    return _folder_as_seen(name, folder, seen)


@lru_cache(maxsize=1)
def _folder_as_seen(name: str, folder: Path, _: object) -> str:
    return f"{RECORDED_FILE}{digest_at(name, folder)}"


def digest_at(name: str, path: Path) -> str:
    """Return the digest of an option's file, or over path and digest of each file in a folder."""
    try:
        if path.is_file():
            return _file_digest(path).hex()
        hashed = hashlib.sha256()
        for file in files_in(name, path):
            text = file.encode("utf-8", "surrogateescape")
            hashed.update(u32(len(text)) + text + _file_digest(path / file))
        return hashed.hexdigest()
    except OSError as error:
        failed = error.filename or path
        raise ConfigurationError(
            f"model.options.{name} = {str(path)!r}: cannot read {failed} ({error.strerror})"
        ) from error


def files_in(name: str, folder: Path) -> list[str]:
    """Return the paths of the files of a folder that its digest covers, ascending."""
    paths = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))
    files = [path for path in paths if (folder / path).is_file()]
    if len(files) > MAX_FOLDER_FILES:
        raise ConfigurationError(
            f"model.options.{name} = {str(folder)!r}: {len(files)} files, over {MAX_FOLDER_FILES}"
        )
    return files


def _file_digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def frozen_state_of(module: nn.Module) -> Digest:
    """Return the digest of a module's frozen parameters and buffers."""
    frozen = ((name, p) for name, p in module.named_parameters() if not p.requires_grad)
    arrays = []
    for name, tensor in (*frozen, *module.named_buffers()):
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type != "cpu":
            raise ConfigurationError(
                f"frozen {name!r} is {tensor.layout} on {tensor.device}, not a plain CPU tensor"
            )
        plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
        # As bytes: NumPy has no bfloat16. PyTorch only runs on little-endian machines.
        data = plain.reshape(-1).view(torch.uint8).numpy().data if plain.numel() else b""
        dtype = str(tensor.dtype).removeprefix("torch.")
        arrays.append(NamedArray(name, dtype, tuple(tensor.shape), data))
    return frozen_state(arrays)


def option_files(options: Mapping[str, object]) -> dict[str, str]:
    """Return the `sha256:` digest of each file, or folder (with a slash), that options name."""
    named = {name: Path(value) for name, value in options.items() if isinstance(value, str)}
    there = {name: path for name, path in named.items() if _exists(path)}
    return {name: f"{RECORDED_FILE}{digest_at(name, path)}" for name, path in there.items()}


def _exists(path: Path) -> bool:
    try:
        return path.is_file() or (len(path.parts) > 1 and path.is_dir())
    except (OSError, ValueError):  # too long for a path, or with a null byte
        return False


def model_error(name: str, rule: str) -> ConfigurationError:
    """Return the refusal of a model that breaks a rule."""
    return ConfigurationError(f"model.name = {name!r}: {rule}")


def require_same(subject: str, bound: str, here: str) -> None:
    """Reject a part of a model, named by `subject`, whose digest differs from the bound one."""
    if here != bound:
        raise ConfigurationError(f"{subject} was {bound}, and is now {here}; restore it")


def require_class_labels(task: Task) -> None:
    """Refuse `training.calibrated` for a task without class labels."""
    if task == "regress" or task in LANGUAGE:
        raise ConfigurationError(
            f"training.calibrated = true: goes with classify and token-classify, not with {task}"
        )


def class_shift(labels: Labels, classes: int) -> NDArray[np.float32]:
    """Return float32(log(n_y + 0.1)) of each class y among one client's labels."""
    counts = np.bincount(labels[labels != NO_TARGET], minlength=classes)
    # 0.1 keeps the shift of a class without samples finite.
    shift: NDArray[np.float32] = np.log(counts + 0.1).astype(np.float32)
    return shift


def training_loss(
    task: Task, scores: Tensor, targets: Tensor, shift: Tensor | None = None
) -> Tensor:
    """Return the mean loss of a batch; a shift, shape (classes,), is added to all logits."""
    if shift is not None:
        scores = scores + shift
    if task == "regress":
        return functional.mse_loss(scores, targets)
    if task in PER_TOKEN:
        return functional.cross_entropy(scores.flatten(0, 1), targets.flatten())
    return functional.cross_entropy(scores, targets)


def score(task: Task, scores: Tensor, targets: Tensor) -> tuple[int | None, float, int]:
    """Return how many are correct (None: no classes), the float64 sum of losses, and the count."""
    if task == "regress":
        error = functional.mse_loss(scores.double(), targets.double(), reduction="none")
        return None, float(error.mean(1).sum()), len(targets)
    if task in PER_TOKEN:
        scores, targets = scores.flatten(0, 1), targets.flatten()
    loss = functional.cross_entropy(scores.double(), targets, reduction="sum")
    counted = int((targets != NO_TARGET).sum()) if task in PER_TOKEN else len(targets)
    return int((scores.argmax(1) == targets).sum()), float(loss), counted


def perplexity(task: str | None, loss: float | None) -> float | None:
    """Return the perplexity of a mean loss; None if the task has none, or the loss is too large."""
    if task not in LANGUAGE or loss is None or loss > 700:
        return None
    return math.exp(loss)


def fits(form: DataForm, rows: int, shape: tuple[int, ...]) -> bool:
    """Return whether scores have the shape of the task."""
    expected = score_shape(form, rows)
    # A language model may have more tokens than the data: its table is often rounded up.
    is_rounded_up = form.task in LANGUAGE and len(shape) == 3 and shape[-1] >= expected[-1]
    return shape == expected or (is_rounded_up and shape[:-1] == expected[:-1])


def score_shape(form: DataForm, rows: int) -> tuple[int, ...]:
    """Return the shape of the scores of some rows."""
    length = form.input_shape[:1] if form.task in PER_TOKEN else ()
    return (rows, *length, form.classes)


ParameterVector = NDArray[np.float32]

Option = int | float | str | bool  # a setting of a model or a data set in TOML
ModuleFactory = Callable[["DataForm", Mapping[str, Option]], nn.Module]
"""Makes a module for the data; raises ConfigurationError if they do not fit."""


@runtime_checkable
class ForeignFactory(Protocol):
    """A factory of modules with code or files outside this project, which are identified."""

    @property
    def name(self) -> str: ...

    def recorded(self) -> dict[str, str]:
        """Return readable identification of the code."""

    def source(self) -> Digest:
        """Return the digest of the code, which the run document binds."""

    def files(self, options: Mapping[str, Option]) -> dict[str, str]:
        """Return the `sha256:` digest of each file or folder that options name."""

    def __call__(self, form: DataForm, options: Mapping[str, Option]) -> nn.Module: ...


@dataclass(frozen=True, slots=True)
class Model:
    """A model that any process can build again; pickled by its ingredients."""

    factory: ModuleFactory
    form: DataForm
    options: Mapping[str, Option] = field(default_factory=dict)
    layout: Layout = ()  # name and shape of each trainable tensor, in the order of the vector
    option_files: Mapping[str, str] = field(default_factory=dict)
    frozen: Digest | None = None  # digest of frozen parameters and buffers; None if not known yet

    @property
    def name(self) -> str:
        if isinstance(self.factory, ForeignFactory):
            return self.factory.name
        return getattr(self.factory, "__name__", type(self.factory).__name__)

    @property
    def dimension(self) -> int:
        return sum(math.prod(shape) for _, shape in self.layout)

    @property
    def source(self) -> Digest:
        return self.factory.source() if isinstance(self.factory, ForeignFactory) else NO_DIGEST

    @property
    def frozen_state(self) -> Digest:
        """Digest of its initial frozen parameters and buffers; zeros if there are none."""
        return self.frozen or NO_DIGEST

    def recorded(self) -> dict[str, Any]:
        foreign = self.factory.recorded() if isinstance(self.factory, ForeignFactory) else {}
        return {"name": self.name, "options": {**self.options, **self.option_files}} | foreign

    def module(self) -> nn.Module:
        """Return a new module; all outside of its vector is the same in every process."""
        files: Mapping[str, str] = {}
        if self.option_files and isinstance(self.factory, ForeignFactory):
            files = self.factory.files(self.options)
        for name, digest in self.option_files.items():
            subject = f"model.options.{name} = {self.options[name]!r}: its file"
            require_same(subject, digest, files.get(name, "gone"))
        module = self._built(seed=0)
        if self.frozen is not None:
            subject = f"model.name = {self.name!r}: the digest of its frozen parameters and buffers"
            require_same(subject, self.frozen.hex(), frozen_state_of(module).hex())
        return module

    def initial(self, rng: np.random.Generator) -> ParameterVector:
        """Return starting parameters, shape (d,), which follow from `rng` alone."""
        module = self.module()
        draw_start = getattr(module, "draw_start", None)
        if draw_start is not None:
            draw_start(rng)
        else:
            module = self._built(int(rng.integers(2**63)))
        return vector_of(module)

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
    model = Model(factory, form, options)
    with _named(model):
        module = model.module()
        layout = tuple((name, tuple(p.shape)) for name, p in trainable(module))
        return Model(factory, form, options, layout, files, frozen_state_of(module))


def _named(model: Model) -> AbstractContextManager[None]:
    """Name a user's own model in whatever its code raises."""
    if isinstance(model.factory, ForeignFactory):
        return as_configuration_error(f"model.name = {model.name!r}")
    return nullcontext()


def seed_torch(seed: int) -> None:
    """Seed torch's global generators, as `torch.manual_seed`, which takes 1.5 ms without a card."""
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


_ROWS = 8


def check_model(model: Model, data: FederatedData) -> None:
    """Reject a model that cannot be trained on these data by the protocol's rules.

    An update must follow from the global model, the client's data and its batch order alone, so
    that its owner can repeat it. So the forward pass may not draw (dropout), and no state may be
    outside the vector (batch normalisation).
    """
    cpu = torch.device("cpu")
    # Without the digest of its first module: random state is reported more precisely below.
    model = replace(model, frozen=None)
    with _named(model), reproducible(cpu), torch.random.fork_rng(devices=[]):
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
                f"its forward pass in training is random{location} (for example, dropout with "
                "p above 0), so its updates could not be repeated",
            )
        self._scores(x[:1], "training")
        with as_configuration_error(f"model.name = {name!r}: its backward pass fails"):
            loss = training_loss(self.model.form.task, scores, torch.tensor(y))
            loss.backward()
        unused = next((part for part, p in trainable(self.module) if p.grad is None), None)
        if unused is not None:
            raise model_error(
                name,
                f"its parameter {unused!r} is not used in the forward pass; remove it, or "
                "freeze it with requires_grad_(False)",
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
            raise model_error(name, f"its forward pass returns {kind}; must return a tensor")
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
    rule = "is not the same in two modules of one seed: draw it by torch's own generator"
    one, other = (_state(model.module()) for _ in range(2))
    for name in one.keys() - {name for name, _ in model.layout}:
        if name not in other or not _equal(one[name], other[name]):
            raise model_error(model.name, f"{name!r} {rule}")
    with as_configuration_error(f"model.name = {model.name!r}: its start cannot be drawn"):
        first, second = (model.initial(np.random.default_rng(0)) for _ in range(2))
    if not np.isfinite(first).all():
        raise model_error(model.name, "its initial parameters are not all finite")
    if not np.array_equal(first, second):
        raise model_error(model.name, f"its start {rule}, or by the rng of draw_start")


MAX_NAMES = 100_000  # length of all names: layout and registry have to fit the run document


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
                f"parameters {before!r} and {after!r} share memory; make them one parameter "
                "with both names",
            )
    for name, tensor in tensors:
        start, end = _extent(tensor)
        if end - start < tensor.numel() * tensor.element_size():
            raise model_error(model, f"parameter {name!r} repeats one number in memory; clone it")


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
    start, steps = tensor.data_ptr(), zip(tensor.shape, tensor.stride(), strict=True)
    last = sum((size - 1) * stride for size, stride in steps)
    return start, start + (last + 1) * tensor.element_size()
