"""Arrays of `.npz` and `.safetensors` files, checked against rules; nothing is unpickled."""

from __future__ import annotations

import math
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from ledger.protocol.errors import ConfigurationError

MAX_FILE_BYTES = 256 * 2**20
MAX_ARRAYS_BYTES = 1024 * 2**20
MAX_OWN_BYTES = 2 * 2**30  # limit of a user's own data in a simulation, packed and unpacked
MAX_RATIO = 100
FREE_BYTES = 64 * 2**20
"""An archive that unpacks to more than this may unpack to at most `MAX_RATIO` times its size."""
LONGEST_TEXT = 200
LONGEST_HEADER = 1024  # of an array; NumPy parses it as Python
TENSORS = ".safetensors"

_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # an LZMA header orders any memory
_DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, tokenize.TokenError, SyntaxError, EOFError),
    *(OSError, ValueError, LookupError, TypeError),
    RuntimeError,  # encrypted members, and NotImplementedError: unknown zip features
)


@dataclass(frozen=True, slots=True)
class ArrayRule:
    """The required form of an array."""

    dtype: str  # in NumPy's notation; "<U" for text of up to `LONGEST_TEXT`
    shape: tuple[int | None, ...]  # None for any length
    low: float = -math.inf
    high: float = math.inf
    rows: str = "samples"  # group name; arrays of one group have equally many rows
    by_column: bool = False


def require_file(path: Path) -> None:
    """Reject a path that is not a regular file."""
    if not path.exists():
        raise ConfigurationError(f"{path}: no such file")
    if not path.is_file():
        raise ConfigurationError(f"{path} is not a file, but a folder, a pipe or a device")


@dataclass(frozen=True, slots=True)
class _Held:
    """An open file of arrays, of `size` bytes in all; nothing is read before it is asked for."""

    names: list[str]
    size: int
    form: Callable[[str], tuple[str, tuple[int, ...], bool]]
    read: Callable[[str], NDArray[Any]]


def array_names(path: Path, max_bytes: int | None = None) -> frozenset[str]:
    """Return the names of the arrays of an `.npz` or `.safetensors` file."""
    with _opened(path, max_bytes) as held:
        return frozenset(held.names)


def stated_forms(
    path: Path, max_bytes: int | None = None
) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return type and shape that each array of a file states; no array is read."""
    with _opened(path, max_bytes) as held:
        return {name: held.form(name)[:2] for name in held.names}


def read_arrays(
    path: Path, rules: Mapping[str, ArrayRule], max_bytes: int | None = None
) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file, which must be exactly the arrays with a rule."""
    with _opened(path, max_bytes) as held:
        if sorted(held.names) != sorted(rules):
            found, wanted = ", ".join(sorted(held.names)[:9]), ", ".join(sorted(rules))
            raise ConfigurationError(f"{path}: holds {found}; must hold exactly {wanted}")
        most = max_bytes or MAX_ARRAYS_BYTES
        if held.size > most:
            raise ConfigurationError(f"{path}: unpacks to {held.size} bytes, more than {most}")
        shapes = {}
        for name in held.names:
            dtype, shapes[name], by_column = held.form(name)
            _require_form(f"{path}: {name}", dtype, shapes[name], rules[name])
            if by_column and not rules[name].by_column:
                raise ConfigurationError(f"{path}: array {name} must be in C order")
        for rows in {rule.rows for rule in rules.values()}:
            group = [name for name in shapes if rules[name].rows == rows]
            lengths = {name: shapes[name][0] if shapes[name] else 0 for name in group}
            if len(set(lengths.values())) != 1 or 0 in lengths.values():
                raise ConfigurationError(f"{path}: arrays empty or of unequal length ({lengths})")
        arrays = {}
        for name in held.names:
            arrays[name] = held.read(name)
            _require_values(f"{path}: {name}", arrays[name], rules[name])
        return arrays


def _opened(path: Path, max_bytes: int | None) -> AbstractContextManager[_Held]:
    """Open a file; any failure while it is open becomes one kind of error."""
    return _tensors(path) if path.suffix == TENSORS else _archive(path, max_bytes)


@contextmanager
def _archive(path: Path, max_bytes: int | None) -> Iterator[_Held]:
    try:
        size = size_of(path, max_bytes or MAX_FILE_BYTES)
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            if any(entry.compress_type not in _COMPRESSIONS for entry in entries):
                raise ConfigurationError(f"{path}: compressed by a method other than deflate")
            total = sum(entry.file_size for entry in entries)
            if total > max(FREE_BYTES, MAX_RATIO * size):
                raise ConfigurationError(
                    f"{path}: {size} bytes unpack to {total}, more than {MAX_RATIO} times as "
                    "many; save the arrays without compression (numpy.savez)"
                )
            names = [entry.filename.removesuffix(".npy") for entry in entries]
            named = dict(zip(names, entries, strict=True))

            def read(name: str) -> NDArray[Any]:
                with archive.open(named[name]) as member:
                    array: NDArray[Any] = npy_format.read_array(member, allow_pickle=False)
                return array

            yield _Held(names, total, lambda name: _form(path, archive, named[name]), read)
    except _DAMAGE as error:
        raise ConfigurationError(f"{path}: not a readable .npz file ({error})") from error


def size_of(path: Path, limit: int) -> int:
    """Return the size of a regular file; reject a larger one than the limit."""
    require_file(path)
    size = path.stat().st_size
    if size > limit:
        raise ConfigurationError(f"{path}: {size} bytes, more than {limit}")
    return size


def _form(
    path: Path, archive: zipfile.ZipFile, entry: zipfile.ZipInfo
) -> tuple[str, tuple[int, ...], bool]:
    """Return an array's type, shape and whether it lies by column, from its header alone."""
    with archive.open(entry) as member:
        if npy_format.read_magic(member) != (1, 0):
            raise ValueError(f"{entry.filename}: not of version 1.0")
        shape, by_column, dtype = npy_format.read_array_header_1_0(
            member, max_header_size=LONGEST_HEADER
        )
        size = entry.file_size - member.tell()
    is_whole = size == math.prod(shape) * dtype.itemsize and min(shape, default=0) >= 0
    if not dtype.hasobject and not is_whole:
        raise ConfigurationError(f"{path}: {entry.filename} has {size} bytes, unlike {shape}")
    return dtype.str, shape, by_column


def _require_form(where: str, dtype: str, shape: tuple[int, ...], rule: ArrayRule) -> None:
    length = dtype.removeprefix("<U")
    is_text = rule.dtype == "<U" and length.isdecimal() and 0 < int(length) <= LONGEST_TEXT
    if dtype != rule.dtype and not is_text:
        raise ConfigurationError(f"{where}: must be of type {rule.dtype}, is {dtype}")
    if len(shape) != len(rule.shape) or any(
        want not in (None, have) for have, want in zip(shape, rule.shape, strict=True)
    ):
        raise ConfigurationError(f"{where}: shape {shape} does not fit {rule.shape}")
    if 0 in shape[1:]:
        raise ConfigurationError(f"{where}: shape {shape} is empty")


def _require_values(where: str, array: NDArray[Any], rule: ArrayRule) -> None:
    """Reject numbers outside the rule's bounds and wrong text; make the array read-only."""
    array.flags.writeable = False
    if array.dtype.kind == "U":
        points = np.ascontiguousarray(array).reshape(-1).view("<u4")
        wrong = (points > 0x10FFFF) | ((points >= 0xD800) & (points <= 0xDFFF))
        if wrong.any():
            raise ConfigurationError(f"{where}: {points[wrong][0]:#x} is not a character")
    # In this form: comparisons with NaN are false.
    elif not (rule.low <= array.min() and array.max() <= rule.high and np.isfinite(array).all()):
        raise ConfigurationError(
            f"{where}: values {array.min()} .. {array.max()}, outside {rule.low} .. {rule.high}"
        )


_TYPES = {"F32": "<f4", "U8": "|u1", "I64": "<i8"}


@contextmanager
def _tensors(path: Path) -> Iterator[_Held]:
    from safetensors import SafetensorError, safe_open  # noqa: PLC0415 - few files need it

    try:
        size = size_of(path, MAX_FILE_BYTES)
        with safe_open(path, "numpy") as file:
            names = list(file.keys())
            slices = {name: file.get_slice(name) for name in names}
            for name, stated in slices.items():
                if (kind := stated.get_dtype()) not in _TYPES:
                    raise ConfigurationError(f"{path}: {name} is {kind}, not {', '.join(_TYPES)}")

            def form(name: str) -> tuple[str, tuple[int, ...], bool]:
                return _TYPES[slices[name].get_dtype()], tuple(slices[name].get_shape()), False

            yield _Held(names, size, form, file.get_tensor)
    except (SafetensorError, OSError, ValueError) as error:
        raise ConfigurationError(f"{path}: not a readable .safetensors file ({error})") from error
