"""Hugging Face models with adapters, and rules for the folder of their base.

transformers lets the folder's files name attention kernels, which are code from a network, and
files of weights, which may be pickles or lie elsewhere.

The vector is the adapters and, of a classifier, its head: float32, some hundred thousand numbers.
The base is frozen. Each process loads it once, from safetensors alone, and all modules of the
process share its memory; it is never sent or stored, and bound by its folder's digest and by the
frozen state. No code of the folder is executed, and no network is used.

There is no dropout: the base is always in evaluation mode, so that an update can be repeated.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from clients.datasets.federated_data import (
    NO_TOKEN,
    DataForm,
    FilePath,
    Positive,
    SettingsTable,
    Task,
    parse_settings,
)
from clients.datasets.files.tables import imported, read_object
from clients.models.builtin import LARGEST_WIDTH, require_tokens
from clients.models.model import Option, folder_digest, require_tensors, seed_torch, trainable
from ledger.io.user_code import as_configuration_error
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import Digest

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
MAX_FILE_BYTES = 1 << 26


def require_plain_base(subject: str, folder: Path) -> None:
    """Reject a folder that names code, pickles, or files elsewhere."""
    if (folder / "adapter_config.json").exists():
        raise ConfigurationError(f"{subject}: contains adapters without a base")
    for name in (CONFIG, "generation_config.json"):
        if (folder / name).exists():
            content = read_object(folder / name, MAX_FILE_BYTES)
            _require_own_code(f"{subject}: {name}", content)
    if (folder / INDEX).exists():
        where, files = f"{subject}: {INDEX}", read_object(folder / INDEX, MAX_FILE_BYTES)
        weights = files.get("weight_map")
        named = list(weights.values()) if isinstance(weights, dict) else []
        for file in named:
            is_own = isinstance(file, str) and PurePath(file).name == file
            if not is_own or not file.endswith(".safetensors"):
                raise ConfigurationError(
                    f"{where}: names {file!r:.80}, not a .safetensors file here"
                )
        if not named:
            raise ConfigurationError(f"{where}: has no weight_map that names files")


def _require_own_code(where: str, content: dict[str, Any]) -> None:
    implementations = (None, "eager", "sdpa", "grouped_mm", "batched_mm")
    for name, value in _members(content):
        if name in {"transformers_weights", "quantization_config"} and value is not None:
            raise ConfigurationError(f"{where}: {name} is not supported in a base")
        if name.strip("_").startswith(("attn_implementation", "experts_implementation")):
            values = list(value.values()) if isinstance(value, dict) else [value]
            if any(chosen not in implementations for chosen in values):
                raise ConfigurationError(f"{where}: {name} = {value!r:.80} must be eager or sdpa")


def _members(content: object) -> Iterator[tuple[str, Any]]:
    rest = [content]
    while rest:
        value = rest.pop()
        if isinstance(value, dict):
            yield from value.items()
            rest.extend(value.values())
        elif isinstance(value, list):
            rest.extend(value)


@dataclass(frozen=True, slots=True)
class Base:
    """A loaded base in evaluation mode; the folder has no weights of the heads in `drawn`."""

    module: Any
    heads: tuple[str, ...]
    drawn: tuple[str, ...]


class HfOptions(SettingsTable):
    """The base and its adapters."""

    path: FilePath
    """the folder of the base, with config.json"""
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    """of the folder, as `cmfl model digest` prints it; None to take what is there"""
    rank: Annotated[int, Field(ge=1, le=LARGEST_WIDTH)] = 8
    alpha: Positive = 16.0
    """the adapters' scale is alpha / rank"""
    targets: str = ""
    """the layers that get adapters, separated by commas; empty for peft's usual ones"""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """of the base; adapters are float32"""


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
        """Leave the base in evaluation mode, which draws nothing."""
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
        """Draw LoRA's start: B zero, A uniform within 1 / sqrt(inputs); embeddings reversed."""
        with torch.no_grad():
            for name, tensor in trainable(self):
                shape = tuple(tensor.shape)
                if ".lora_B." in name or ".lora_embedding_A." in name:
                    values = np.zeros(shape)
                elif ".lora_A." in name:
                    limit = math.prod(shape[1:]) ** -0.5
                    values = rng.uniform(-limit, limit, shape)
                elif ".lora_embedding_B." in name:
                    values = rng.standard_normal(shape)
                elif len(shape) > 1 and any(f".{head}." in name for head in self._drawn):
                    values = 0.02 * rng.standard_normal(shape)
                else:  # the folder's own stay
                    continue
                tensor.copy_(torch.from_numpy(values.astype(np.float32)))

    def save_adapter(self, folder: Path) -> None:
        with warnings.catch_warnings(action="ignore"):
            self.model.save_pretrained(str(folder), save_embedding_layers=False)


def adapted(base: Base, settings: HfOptions, task: Task) -> AdaptedModel:
    """Return a model with new adapters on a copy of a base that shares its memory."""
    peft = imported("peft", "transformers", "models of a base")
    names = [name for name, _ in base.module.named_modules()]
    targets = [target.strip() for target in settings.targets.split(",") if target.strip()] or None
    for target in targets or ():
        if not any(name == target or name.endswith(f".{target}") for name in names):
            raise ConfigurationError(
                f"model.options.targets = {settings.targets!r}: the base has no layer {target!r}; "
                f"it has {', '.join(sorted({n.rpartition('.')[2] for n in names} - {''}))[:300]}"
            )
    kinds = {"causal-lm": "CAUSAL_LM", "token-classify": "TOKEN_CLS", "masked-lm": None}
    config = peft.LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        target_modules=targets,
        modules_to_save=list(base.heads) or None,
        task_type=kinds.get(task, "SEQ_CLS"),
        lora_dropout=0.0,
        init_lora_weights=True,
    )
    with (
        as_configuration_error(f"model.options.targets = {settings.targets!r}: no adapters"),
        warnings.catch_warnings(action="ignore"),  # of Conv1D, whose matrices are transposed
    ):
        model = peft.get_peft_model(_sharing(base.module), config)
    for part in model.modules():
        if isinstance(part, peft.utils.ModulesToSaveWrapper):
            part.modules_to_save.float()
            # The base may compute in bfloat16, and the head does not.
            part.register_forward_pre_hook(lambda _, inputs: tuple(x.float() for x in inputs))
    return AdaptedModel(model, base.drawn)


def _sharing(module: nn.Module) -> nn.Module:
    """Return a copy of a module on the same memory: its tensors are new, their numbers are not."""
    shared: dict[int, Any] = {
        id(tensor): nn.Parameter(tensor.data, requires_grad=False) for tensor in module.parameters()
    }
    shared |= {id(buffer): buffer for buffer in module.buffers()}
    return copy.deepcopy(module, shared)


_PACKAGES = ("transformers", "peft")
_AUTO = {
    "classify": "AutoModelForSequenceClassification",
    "regress": "AutoModelForSequenceClassification",
    "token-classify": "AutoModelForTokenClassification",
    "causal-lm": "AutoModelForCausalLM",
    "masked-lm": "AutoModelForMaskedLM",
}


class HfFactory:
    """Makes adapted modules of a base; pickled by its name alone."""

    __name__ = "hf"
    name = "hf"

    def recorded(self) -> dict[str, str]:
        return {"package": self._packages()}

    def source(self) -> Digest:
        return sha256(f"hf:{self._packages()}".encode())

    def files(self, options: Mapping[str, Option]) -> dict[str, str]:
        return {"path": _checked_digest(parse_settings(HfOptions, options, "model.options"))}

    def __call__(self, form: DataForm, options: Mapping[str, Option]) -> nn.Module:
        settings = parse_settings(HfOptions, options, "model.options")
        require_tokens(self.name, form)
        outputs = form.classes if form.task in {"classify", "regress", "token-classify"} else 0
        base = _base(settings.path, _checked_digest(settings), form.task, outputs, settings.dtype)
        _require_fit(base.module, form)
        module = adapted(base, settings, form.task)
        require_tensors(self.name, module)
        return module

    @staticmethod
    def _packages() -> str:
        for package in _PACKAGES:
            imported(package, "transformers", "models of a base")
        return ", ".join(f"{package}=={version(package)}" for package in _PACKAGES)


hf = HfFactory()


def _checked_digest(settings: HfOptions) -> str:
    folder = Path(settings.path)
    if not (folder / CONFIG).is_file():
        raise ConfigurationError(f"model.options.path = {settings.path!r}: has no {CONFIG}")
    digest = folder_digest("path", folder)
    if settings.sha256 is not None and digest != f"sha256:{settings.sha256}":
        raise ConfigurationError(
            f"model.options.sha256 = {settings.sha256}: the digest of {settings.path!r} is {digest}"
        )
    return digest


@lru_cache(maxsize=1)
def _base(path: str, digest: str, task: Task, outputs: int, dtype: str) -> Base:
    """Load a base, once in a process; a language model has no outputs of its head, and 0 here."""
    subject = f"model.options.path = {path!r}"
    require_plain_base(subject, Path(path))
    transformers = imported("transformers", "transformers", "models of a base")
    heads = {"num_labels": outputs} if outputs else {}
    with (
        as_configuration_error(f"{subject}: is not a base for {task}"),
        torch.random.fork_rng(devices=[]),
        _quiet(transformers),
    ):
        seed_torch(0)  # new heads; `draw_start` draws them again
        module, report = getattr(transformers, _AUTO[task]).from_pretrained(
            path,
            dtype=getattr(torch, dtype),
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
            **heads,
        )
    if folder_digest("path", Path(path)) != digest:
        raise ConfigurationError(f"{subject}: has changed while it was loaded")
    module.eval().requires_grad_(False)
    for tensor in (*module.parameters(), *module.buffers()):
        tensor.data = tensor.data.clone()  # of a mapped file, which may change
    module.config.use_cache = False
    padding = module.config.pad_token_id
    if padding is None or not 0 <= padding < module.get_input_embeddings().num_embeddings:
        module.config.pad_token_id = 0  # masked, wherever it is padding
    missing = {key.rpartition(".")[0] for key in report["missing_keys"]}
    if missing and not outputs:
        raise ConfigurationError(f"{subject}: has no weights of {min(missing)!r}")
    # transformers names the layer of the classes so.
    named = missing | {name for name in ("score", "classifier") if hasattr(module, name)}
    inner = {name for name in named for outer in named if name.startswith(f"{outer}.")}
    return Base(module, tuple(sorted(named - inner)) if outputs else (), tuple(sorted(missing)))


def _require_fit(module: Any, form: DataForm) -> None:
    positions, length = getattr(module.config, "max_position_embeddings", None), form.input_shape[0]
    for name, part in module.named_modules():
        # RoBERTa's kind begins to count after the token of padding.
        if name.endswith("position_embeddings") and getattr(part, "padding_idx", None) is not None:
            positions = part.num_embeddings - part.padding_idx - 1
    if positions is not None and length > positions:
        raise ConfigurationError(f"data.options.length = {length}: must be at most {positions}")
    rows = module.get_input_embeddings().num_embeddings
    if form.vocabulary is not None and form.vocabulary > rows:
        raise ConfigurationError(
            f"the data have {form.vocabulary} tokens, and the base {rows}; use the base's tokenizer"
        )


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    logging = transformers.utils.logging
    level, has_bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if has_bar:
            logging.enable_progress_bar()
