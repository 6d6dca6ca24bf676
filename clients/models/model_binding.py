"""The binding of a model to the run document: its code, option files, and frozen state."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from ledger.protocol.bound_inputs import NamedArray, frozen_state
from ledger.protocol.encoding import u32
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import nn

    from ledger.protocol.types import Digest

MAX_FOLDER_FILES = 10_000
RECORDED_FILE = "sha256:"
"""Prefix of an option file's digest in a run document."""


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

    Raises:
        ConfigurationError: one of them cannot be read.
    """
    named = {name: Path(value) for name, value in options.items() if isinstance(value, str)}
    there = {name: path for name, path in named.items() if _exists(path)}
    return {name: f"{RECORDED_FILE}{_digest_at(name, path)}" for name, path in there.items()}


def folder_digest(name: str, folder: Path) -> str:
    """Return the recorded digest of the folder that an option names.

    It is read again only if the name, size or time of a file has changed.

    Raises:
        ConfigurationError: it cannot be read, or has too many files.
    """
    try:
        states = [(path, path.stat()) for path in sorted(folder.rglob("*"))[: MAX_FOLDER_FILES * 2]]
    except OSError as error:
        raise ConfigurationError(
            f"model.options.{name} = {str(folder)!r}: cannot be read: {error.strerror}"
        ) from error
    seen = tuple((str(path), state.st_size, state.st_mtime_ns) for path, state in states)
    return _folder_as_seen(name, folder, seen)


@lru_cache(maxsize=1)
def _folder_as_seen(name: str, folder: Path, _: object) -> str:
    return f"{RECORDED_FILE}{_digest_at(name, folder)}"


def require_same(subject: str, bound: str, here: str) -> None:
    """Reject a part of a model, named by `subject`, whose digest differs from the bound one."""
    if here != bound:
        raise ConfigurationError(f"{subject} was {bound}, and is {here}: restore it")


def _exists(path: Path) -> bool:
    try:
        return path.is_file() or (len(path.parts) > 1 and path.is_dir())
    except (OSError, ValueError):  # too long for a path, or with a null byte
        return False


def _digest_at(name: str, path: Path) -> str:
    try:
        if path.is_file():
            return _file_digest(path).hex()
        return _folder_digest(name, path).hex()
    except OSError as error:
        failed = error.filename or path
        raise ConfigurationError(
            f"model.options.{name} = {str(path)!r}: {failed} cannot be read: {error.strerror}"
        ) from error


def _folder_digest(name: str, folder: Path) -> bytes:
    """Return the sha256 over path and digest of each file of a folder, ascending by path.

    Raises:
        ConfigurationError: there are too many.
    """
    hashed = hashlib.sha256()
    paths = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))
    files = [path for path in paths if (folder / path).is_file()]
    if len(files) > MAX_FOLDER_FILES:
        raise ConfigurationError(
            f"model.options.{name} = {str(folder)!r}: {len(files)} files, and at most "
            f"{MAX_FOLDER_FILES}"
        )
    for path in files:
        text = path.encode("utf-8", "surrogateescape")
        hashed.update(u32(len(text)) + text + _file_digest(folder / path))
    return hashed.digest()


def _file_digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
