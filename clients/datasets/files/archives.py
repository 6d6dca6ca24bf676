"""Arrays of `.npz` and `.safetensors` files, checked against rules; nothing is unpickled."""

from __future__ import annotations

import math
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from ledger.protocol.errors import ConfigurationError

MAX_FILE_BYTES = 256 * 2**20
MAX_ARRAYS_BYTES = 1024 * 2**20
MAX_OWN_BYTES = 2 * 2**30
"""Limit of a user's own data in a simulation, packed and unpacked."""
MAX_RATIO = 100
FREE_BYTES = 64 * 2**20
"""An archive that unpacks to more than this may unpack to at most `MAX_RATIO` times its size."""
LONGEST_TEXT = 200

_LAST_CHARACTER = 0x10FFFF
_SURROGATE_BITS, _SURROGATES = 11, 0xD800 >> 11
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # an LZMA header orders any memory
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    tokenize.TokenError,
    SyntaxError,
    EOFError,
    OSError,
    ValueError,
    LookupError,
    RuntimeError,  # encrypted members, and NotImplementedError: unknown zip features
)


@dataclass(frozen=True, slots=True)
class ArrayRule:
    """The required form of an array.

    Attributes:
        dtype: exact element type, in NumPy's notation; "<U" for text of up to `LONGEST_TEXT`.
        shape: its shape; None for any length.
        low: least value of numbers; they must be finite in any case.
        rows: group name; arrays of one group have equally many rows.
    """

    dtype: str
    shape: tuple[int | None, ...]
    low: float = -math.inf
    high: float = math.inf
    rows: str = "samples"
    by_column: bool = False


def require_file(path: Path) -> None:
    """Reject a path that is not a regular file."""
    if not path.exists():
        raise ConfigurationError(f"{path}: no such file")
    if not path.is_file():
        raise ConfigurationError(f"{path} is not a file, but a folder, a pipe or a device")


def stated_forms(
    path: Path, max_bytes: int | None = None
) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return type and shape that each array of an `.npz` file states; no array is read."""
    with _opened(path, max_bytes) as archive:
        forms = {entry.filename: _form(path, archive, entry) for entry in archive.infolist()}
        return {
            name.removesuffix(".npy"): (dtype, shape) for name, (dtype, shape, _) in forms.items()
        }


def read_arrays(
    path: Path, rules: Mapping[str, ArrayRule], max_bytes: int | None = None
) -> dict[str, NDArray[Any]]:
    """Return the arrays of an `.npz` file; it must hold those that have a rule, and no other.

    `max_bytes` limits the file and its arrays.
    """
    with _opened(path, max_bytes) as archive:
        entries = archive.infolist()
        require_names(path, [entry.filename.removesuffix(".npy") for entry in entries], rules)
        total, most = sum(entry.file_size for entry in entries), max_bytes or MAX_ARRAYS_BYTES
        if total > most:
            raise ConfigurationError(f"{path}: unpacks to {total} bytes, more than {most}")
        shapes = {}
        for entry in entries:
            name = entry.filename.removesuffix(".npy")
            dtype, shapes[name], by_column = _form(path, archive, entry)
            require_form(f"{path}: {name}", dtype, shapes[name], rules[name])
            if by_column and not rules[name].by_column:
                raise ConfigurationError(f"{path}: {name}: must be in C order")
        require_rows(path, shapes, rules)
        arrays = {}
        for entry in entries:
            name = entry.filename.removesuffix(".npy")
            with archive.open(entry) as member:
                arrays[name] = npy_format.read_array(member, allow_pickle=False)
            require_values(f"{path}: {name}", arrays[name], rules[name])
        return arrays


@contextmanager
def _opened(path: Path, max_bytes: int | None) -> Iterator[zipfile.ZipFile]:
    """Open an archive; any failure while it is open becomes one kind of error."""
    try:
        require_file(path)
        size, limit = path.stat().st_size, max_bytes or MAX_FILE_BYTES
        if size > limit:
            raise ConfigurationError(f"{path}: {size} bytes, more than {limit}")
        with zipfile.ZipFile(path) as archive:
            if any(entry.compress_type not in _COMPRESSIONS for entry in archive.infolist()):
                raise ConfigurationError(f"{path}: compressed by a method other than deflate")
            total = sum(entry.file_size for entry in archive.infolist())
            if total > max(FREE_BYTES, MAX_RATIO * size):
                raise ConfigurationError(
                    f"{path}: {size} bytes that unpack to {total}, more than {MAX_RATIO} times as "
                    f"many; save the arrays without compression (numpy.savez)"
                )
            yield archive
    except _DAMAGE as error:
        raise ConfigurationError(f"{path}: not a readable .npz file ({error})") from error


def _form(
    path: Path, archive: zipfile.ZipFile, entry: zipfile.ZipInfo
) -> tuple[str, tuple[int, ...], bool]:
    """Return an array's type, shape and whether it lies by column, from its header alone."""
    with archive.open(entry) as member:
        if npy_format.read_magic(member) != (1, 0):
            raise ValueError(f"{entry.filename}: not of version 1.0")
        shape, by_column, dtype = npy_format.read_array_header_1_0(member)
        size = entry.file_size - member.tell()
    if not dtype.hasobject and (
        size != math.prod(shape) * dtype.itemsize or min(shape, default=0) < 0
    ):
        raise ConfigurationError(
            f"{path}: {entry.filename}: {size} bytes of data do not make up shape {shape}"
        )
    return dtype.str, shape, by_column


def require_names(path: Path, names: Sequence[str], rules: Mapping[str, ArrayRule]) -> None:
    """Reject a file that holds other arrays than those of the rules."""
    if sorted(names) != sorted(rules):
        raise ConfigurationError(
            f"{path}: holds {', '.join(sorted(names)[:9])}; must hold exactly "
            f"{', '.join(sorted(rules))}"
        )


def require_form(where: str, dtype: str, shape: tuple[int, ...], rule: ArrayRule) -> None:
    """Reject another type or shape than the rule's."""
    length = dtype.removeprefix("<U")
    is_text = rule.dtype == "<U" and length.isdecimal() and 0 < int(length) <= LONGEST_TEXT
    if dtype != rule.dtype and not is_text:
        raise ConfigurationError(f"{where}: must be of type {rule.dtype}, is {dtype}")
    if len(shape) != len(rule.shape) or any(
        want not in (None, have) for have, want in zip(shape, rule.shape, strict=True)
    ):
        raise ConfigurationError(f"{where}: shape {shape} does not fit {rule.shape}")
    if 0 in shape[1:]:
        raise ConfigurationError(f"{where}: shape {shape} holds nothing")


def require_rows(
    path: Path, shapes: Mapping[str, tuple[int, ...]], rules: Mapping[str, ArrayRule]
) -> None:
    """Reject arrays of one group that are empty or of unequal length."""
    for rows in {rule.rows for rule in rules.values()}:
        lengths = {name: shape[0] for name, shape in shapes.items() if rules[name].rows == rows}
        if len(set(lengths.values())) != 1 or 0 in lengths.values():
            raise ConfigurationError(f"{path}: arrays empty or of unequal length: {lengths}")


def require_values(where: str, array: NDArray[Any], rule: ArrayRule) -> None:
    """Reject numbers outside the rule's bounds and text that is none; make the array read-only."""
    array.flags.writeable = False
    if array.dtype.kind == "U":
        points = np.ascontiguousarray(array).reshape(-1).view("<u4")
        wrong = (points > _LAST_CHARACTER) | ((points >> _SURROGATE_BITS) == _SURROGATES)
        if wrong.any():
            raise ConfigurationError(f"{where}: {points[wrong][0]:#x} is not a character")
    # In this form: comparisons with NaN are false.
    elif not (rule.low <= array.min() and array.max() <= rule.high and np.isfinite(array).all()):
        raise ConfigurationError(
            f"{where}: values {array.min()} .. {array.max()}, outside {rule.low} .. {rule.high}"
        )


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
