"""The binding of a model to the run document: its code, option files, and frozen state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import nn

from clients.models.folder_digest import RECORDED_FILE, digest_at
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.inputs import NamedArray, frozen_state
from ledger.protocol.types import Digest


def frozen_state_of(module: nn.Module) -> Digest:
    """Return the digest of a module's frozen parameters and buffers; see `_frozen_arrays`."""
    return frozen_state(_frozen_arrays(module))


def _frozen_arrays(module: nn.Module) -> Iterator[NamedArray]:
    frozen = ((name, p) for name, p in module.named_parameters() if not p.requires_grad)
    for name, tensor in (*frozen, *module.named_buffers()):
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type != "cpu":
            raise ConfigurationError(
                f"frozen parameter or buffer {name!r} is {tensor.layout} on {tensor.device}: only "
                f"plain tensors on the CPU can be bound by the run document"
            )
        plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
        # As bytes: NumPy has no bfloat16. PyTorch only runs on little-endian machines.
        data = plain.reshape(-1).view(torch.uint8).numpy().data if plain.numel() else b""
        dtype = str(tensor.dtype).removeprefix("torch.")
        yield NamedArray(name, dtype, tuple(tensor.shape), data)


def option_files(options: Mapping[str, object]) -> dict[str, str]:
    """Return the `sha256:` digest of each file or folder that the options of a user's model name.

    An option's text names a file if there is one at that path, and a folder if it has a slash.
    """
    named = {name: Path(value) for name, value in options.items() if isinstance(value, str)}
    there = {name: path for name, path in named.items() if _exists(path)}
    return {name: f"{RECORDED_FILE}{digest_at(name, path)}" for name, path in there.items()}


def require_same(subject: str, bound: str, here: str) -> None:
    """Reject a part of a model, named by `subject`, whose digest differs from the bound one."""
    if here != bound:
        raise ConfigurationError(f"{subject} was {bound}, and is {here}: restore it")


def _exists(path: Path) -> bool:
    try:
        return path.is_file() or (len(path.parts) > 1 and path.is_dir())
    except (OSError, ValueError):  # too long for a path, or with a null byte
        return False
