"""Arrays of a `.safetensors` file, checked against the same rules as those of an `.npz` file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clients.datasets.files.data_archive import (
    MAX_FILE_BYTES,
    ArrayRule,
    require_file,
    require_form,
    require_names,
    require_rows,
    require_values,
)
from ledger.protocol.errors import ConfigurationError

_TYPES = {"F32": "<f4", "U8": "|u1", "I64": "<i8"}


def tensor_names(path: Path) -> frozenset[str]:
    """Return the names of a file's tensors."""
    return frozenset(_arrays(path, read=False))


def read_tensors(path: Path, rules: Mapping[str, ArrayRule]) -> dict[str, NDArray[Any]]:
    """Return the tensors of a file; it must hold those that have a rule, and no other."""
    arrays = _arrays(path)
    require_names(path, [*arrays], rules)
    for name, array in arrays.items():
        require_form(f"{path}: {name}", array.dtype.str, array.shape, rules[name])
    require_rows(path, {name: array.shape for name, array in arrays.items()}, rules)
    for name, array in arrays.items():
        require_values(f"{path}: {name}", array, rules[name])
    return arrays


def read_any_tensors(path: Path) -> dict[str, NDArray[Any]]:
    """Return all tensors of a file; each must have rows, and finite numbers."""
    arrays = _arrays(path)
    for name, array in arrays.items():
        if not array.size or not array.ndim:
            raise ConfigurationError(f"{path}: {name}: must have a shape with rows")
        require_values(f"{path}: {name}", array, ArrayRule(array.dtype.str, (None,)))
    return arrays


def _arrays(path: Path, *, read: bool = True) -> dict[str, NDArray[Any]]:
    """Return a file's arrays by name, empty ones if they are not to be read."""
    from safetensors import SafetensorError, safe_open  # noqa: PLC0415 - few files need it

    try:
        require_file(path)
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ConfigurationError(f"{path}: more than {MAX_FILE_BYTES} bytes")
        with safe_open(path, "numpy") as file:
            for name in file.keys():  # noqa: SIM118 - it is no map
                if (stated := file.get_slice(name).get_dtype()) not in _TYPES:
                    raise ConfigurationError(
                        f"{path}: {name}: must be of type {', '.join(_TYPES)}, is {stated}"
                    )
            return {
                name: file.get_tensor(name) if read else np.empty(0)
                for name in file.keys()  # noqa: SIM118
            }
    except (SafetensorError, OSError, ValueError) as error:
        raise ConfigurationError(f"{path}: not a readable .safetensors file ({error})") from error
