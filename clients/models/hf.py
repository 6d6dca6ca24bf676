"""`hf`: a transformer in a local folder with low-rank adapters (LoRA, Hu et al. 2021).

The vector is the adapters and, of a classifier, its head: float32, some hundred thousand numbers.
The base is frozen. Each process loads it once, from safetensors alone, and all modules of the
process share its memory; it is never sent or stored, and bound by its folder's digest and by the
frozen state. No code of the folder is executed, and no network is used.

There is no dropout: the base is always in evaluation mode, so that an update can be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import nn

from clients.datasets.federated_data import DataForm, Task
from clients.datasets.files.extra import imported
from clients.datasets.settings_table import FilePath, Positive, SettingsTable, parse_settings
from clients.models.adapted_model import Adapters, Base, adapted
from clients.models.base_folder import require_plain_base
from clients.models.folder_digest import folder_digest
from clients.models.model import Option, seed_torch
from clients.models.model_options import LARGEST_WIDTH, require_tokens
from clients.models.parameter_rules import require_tensors
from ledger.io.user_code import as_configuration_error
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import Digest

_PACKAGES = ("transformers", "peft")
_HEADS = ("score", "classifier")
"""Names that transformers gives to the layer of the classes."""
_AUTO = {
    "classify": "AutoModelForSequenceClassification",
    "regress": "AutoModelForSequenceClassification",
    "token-classify": "AutoModelForTokenClassification",
    "causal-lm": "AutoModelForCausalLM",
    "masked-lm": "AutoModelForMaskedLM",
}


class HfOptions(SettingsTable):
    """The base and its adapters.

    Attributes:
        path: folder of the base, with config.json and model.safetensors.
        sha256: of the folder, as `cmfl model digest` prints it; None to take what is there.
        rank: of the adapters.
        alpha: the adapters' scale is alpha / rank.
        targets: names of the layers that get adapters, separated by commas; empty for peft's usual
            ones of this kind of model.
        dtype: of the base; adapters are float32.
    """

    path: FilePath = Field(description="the folder of the base, with config.json")
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    rank: Annotated[int, Field(ge=1, le=LARGEST_WIDTH)] = 8
    alpha: Positive = 16.0
    targets: str = ""
    dtype: Literal["float32", "bfloat16"] = "float32"


class HfFactory:
    """Makes adapted modules of a base; pickled by its name alone."""

    __name__ = "hf"
    name = "hf"

    def recorded(self) -> dict[str, str]:
        """Return the packages whose code the model is."""
        return {"package": self._packages()}

    def source(self) -> Digest:
        """Return the digest of the packages' names and versions."""
        return sha256(f"hf:{self._packages()}".encode())

    def files(self, options: Mapping[str, Option]) -> dict[str, str]:
        """Return the recorded digest of the base."""
        settings = parse_settings(HfOptions, options, "model.options")
        return {"path": _checked_digest(settings)}

    def __call__(self, form: DataForm, options: Mapping[str, Option]) -> nn.Module:
        """Return a new module, whose base is that of every other in this process."""
        settings = parse_settings(HfOptions, options, "model.options")
        require_tokens(self.name, form)
        outputs = form.classes if form.task in {"classify", "regress", "token-classify"} else 0
        digest = _checked_digest(settings)
        base = _base(settings.path, digest, form.task, outputs, settings.dtype)
        _require_fit(base.module, form)
        adapters = Adapters(settings.rank, settings.alpha, settings.targets)
        module = adapted(base, adapters, form.task)
        require_tensors(self.name, module)
        return module

    @staticmethod
    def _packages() -> str:
        for package in _PACKAGES:
            imported(package, "transformers", "models of a base")
        return ", ".join(f"{package}=={version(package)}" for package in _PACKAGES)


hf = HfFactory()


def _checked_digest(settings: HfOptions) -> str:
    """Return the recorded digest of the base."""
    folder = Path(settings.path)
    if not (folder / "config.json").is_file():
        raise ConfigurationError(
            f"model.options.path = {settings.path!r}: must be the folder of a base, with "
            f"config.json and model.safetensors"
        )
    digest = folder_digest("path", folder)
    if settings.sha256 is not None and digest != f"sha256:{settings.sha256}":
        raise ConfigurationError(
            f"model.options.path = {settings.path!r}: its digest is {digest}, and "
            f"model.options.sha256 says {settings.sha256}"
        )
    return digest


@lru_cache(maxsize=1)
def _base(path: str, digest: str, task: Task, outputs: int, dtype: str) -> Base:
    """Load a base, once in a process.

    Args:
        outputs: classes or numbers of its head; 0 of a language model.
    """
    subject = f"model.options.path = {path!r}"
    require_plain_base(subject, Path(path))
    transformers = imported("transformers", "transformers", "models of a base")
    heads = {"num_labels": outputs} if outputs else {}
    with (
        as_configuration_error(f"{subject}: is no base for {task}"),
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
    return Base(module, _heads(module, missing) if outputs else (), tuple(sorted(missing)))


def _heads(module: nn.Module, missing: set[str]) -> tuple[str, ...]:
    heads = missing | {name for name in _HEADS if hasattr(module, name)}
    return tuple(
        sorted(name for name in heads if not any(name.startswith(f"{outer}.") for outer in heads))
    )


def _require_fit(module: Any, form: DataForm) -> None:
    """Reject sequences or tokens that a base has no place for."""
    positions, length = getattr(module.config, "max_position_embeddings", None), form.input_shape[0]
    for name, part in module.named_modules():
        # RoBERTa's kind begins to count after the token of padding.
        if name.endswith("position_embeddings") and getattr(part, "padding_idx", None) is not None:
            positions = part.num_embeddings - part.padding_idx - 1
    if positions is not None and length > positions:
        raise ConfigurationError(
            f"model.name = 'hf': sequences of {length} tokens, and the base has {positions} "
            f"positions: set data.options.length"
        )
    rows = module.get_input_embeddings().num_embeddings
    if form.vocabulary is not None and form.vocabulary > rows:
        raise ConfigurationError(
            f"model.name = 'hf': the data have {form.vocabulary} tokens, and the base {rows}: "
            f"take the tokenizer of this base"
        )


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Silence a library that reports each new head and each file."""
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
