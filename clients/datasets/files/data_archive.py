"""A reader of arrays in an `.npz` file, which may be damaged or hostile.

`numpy.load` evaluates the header and allocates the stated shape before it reads. Here the order is:
size of the file, names and stated sizes in it, each array's header against one pattern, then its
bytes, piece by piece, no more than the header states, with their checksum. Nothing is ever
unpickled.
"""

from __future__ import annotations

import math
import re
import struct
import zipfile
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

MAX_FILE_BYTES = 256 * 2**20
MAX_ARRAYS_BYTES = 1024 * 2**20
MAX_OWN_BYTES = 2 * 2**30
"""Limit of a user's own data in a simulation, packed and unpacked."""
MAX_RATIO = 100
FREE_BYTES = 64 * 2**20
"""An archive that unpacks to more than this may unpack to at most `MAX_RATIO` times its size."""
LONGEST_TEXT = 200

_PREAMBLE_BYTES = 10  # magic, version, length of the header
_LONGEST_HEADER = 4096
# `ZipFile.read` would unpack a member in one piece, of any size.
_PIECE_BYTES = 2**20
_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00(?P<length>..)"
    rb"\{'descr': '(?P<dtype>[<>|][A-Za-z][0-9]{0,9})', 'fortran_order': (?P<columns>False|True), "
    rb"'shape': \((?P<shape>(?:[0-9]{1,12}, ?){1,4}(?:[0-9]{1,12})?)\), \} *\n",
    re.DOTALL,
)
_NOT_PLAIN = "no plain .npy array (version 1.0, C order)"
_LAST_CHARACTER = 0x10FFFF
_SURROGATE_BITS, _SURROGATES = 11, 0xD800 >> 11
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
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
        high: greatest value.
        rows: group name; arrays of one group have equally many rows.
        by_column: whether Fortran order is also allowed.
    """

    dtype: str
    shape: tuple[int | None, ...]
    low: float = -math.inf
    high: float = math.inf
    rows: str = "samples"
    by_column: bool = False


@dataclass(frozen=True, slots=True)
class _Form:
    """Position of an array's bytes in its member, with type, shape and order."""

    start: int
    dtype: str
    shape: tuple[int, ...]
    order: Literal["C", "F"]


def require_file(path: Path) -> None:
    """Reject a path that is not a regular file.

    Raises:
        ConfigurationError: it does not exist, or is a folder, a pipe or a device.
        OSError: it is not accessible.
    """
    if not path.exists():
        raise ConfigurationError(f"{path}: no such file")
    if not path.is_file():
        raise ConfigurationError(f"{path} is not a file, but a folder, a pipe or a device")


def stated_forms(
    path: Path, max_bytes: int | None = None
) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return type and shape that each array of an `.npz` file states; no array is read.

    Raises:
        ConfigurationError: the file is missing, damaged or too large, or holds another thing than
            plain arrays.
    """
    with _opened(path, max_bytes) as archive:
        stated = {}
        for entry in archive.infolist():
            name = entry.filename.removesuffix(".npy")
            header = _header_of(f"{path}: {name}", archive, entry)
            stated[name] = header["dtype"].decode("ascii"), _shape_in(header)
    return stated


def read_arrays(
    path: Path, rules: Mapping[str, ArrayRule], max_bytes: int | None = None
) -> dict[str, NDArray[Any]]:
    """Return the arrays of an `.npz` file, checked against their rules.

    Args:
        path: the file.
        rules: of every array; no other may exist.
        max_bytes: limit of the file, and of its arrays; None for the usual ones.

    Returns:
        The arrays by name, not empty.

    Raises:
        ConfigurationError: the file is missing, damaged or too large, or breaks a rule.
    """
    with _opened(path, max_bytes) as archive:
        entries = _entries(path, archive, rules, max_bytes or MAX_ARRAYS_BYTES)
        stated = {
            name: _stated(f"{path}: {name}", archive, entry, rules[name])
            for name, entry in entries.items()
        }
        _require_rows(path, stated, rules)
        return {
            name: _array(f"{path}: {name}", archive, entries[name], form, rules[name])
            for name, form in stated.items()
        }


@contextmanager
def _opened(path: Path, max_bytes: int | None) -> Iterator[zipfile.ZipFile]:
    """Open an archive; any failure while it is open becomes one kind of error."""
    try:
        require_file(path)
        size = path.stat().st_size
        limit = max_bytes or MAX_FILE_BYTES
        if size > limit:
            raise ConfigurationError(f"{path}: {size} bytes, more than {limit}")
        with zipfile.ZipFile(path) as archive:
            _require_packing(path, archive, size)
            yield archive
    except _DAMAGE as error:
        raise ConfigurationError(f"{path}: not a readable .npz file ({error})") from error


def _require_packing(path: Path, archive: zipfile.ZipFile, size: int) -> None:
    """Reject an archive that unpacks to far more than its size, before a member is opened.

    Other methods than deflate are rejected: the header of an LZMA stream orders any memory.

    Raises:
        ConfigurationError: names the method or the sizes.
    """
    if any(entry.compress_type not in _COMPRESSIONS for entry in archive.infolist()):
        raise ConfigurationError(f"{path}: compressed by a method other than deflate")
    total = sum(entry.file_size for entry in archive.infolist())
    if total > max(FREE_BYTES, MAX_RATIO * size):
        raise ConfigurationError(
            f"{path}: {size} bytes that unpack to {total}, more than {MAX_RATIO} times as many; "
            f"save the arrays without compression (numpy.savez)"
        )


def _entries(
    path: Path, archive: zipfile.ZipFile, rules: Mapping[str, ArrayRule], max_unpacked: int
) -> dict[str, zipfile.ZipInfo]:
    found = archive.infolist()
    names = sorted(entry.filename for entry in found)
    expected = sorted(f"{name}.npy" for name in rules)
    if names != expected:
        raise ConfigurationError(
            f"{path}: holds {', '.join(names[:9])}; must hold exactly {', '.join(expected)}"
        )
    total = sum(entry.file_size for entry in found)
    if total > max_unpacked:
        raise ConfigurationError(f"{path}: unpacks to {total} bytes, more than {max_unpacked}")
    return {entry.filename.removesuffix(".npy"): entry for entry in found}


def _stated(where: str, archive: zipfile.ZipFile, entry: zipfile.ZipInfo, rule: ArrayRule) -> _Form:
    """Return a member's stated form, from its first bytes alone.

    Raises:
        ConfigurationError: its header is not that of a plain array, or breaks the rule.
    """
    header = _header_of(where, archive, entry)
    by_column = header["columns"] == b"True"
    if by_column and not rule.by_column:
        raise ConfigurationError(f"{where}: {_NOT_PLAIN}")
    dtype = header["dtype"].decode("ascii")
    if dtype != rule.dtype and not _is_text(rule.dtype, dtype):
        raise ConfigurationError(f"{where}: must be of type {rule.dtype}, is {dtype}")
    shape = _shape_in(header)
    if len(shape) != len(rule.shape) or any(
        want not in (None, have) for have, want in zip(shape, rule.shape, strict=True)
    ):
        raise ConfigurationError(f"{where}: shape {shape} does not fit {rule.shape}")
    if 0 in shape[1:]:
        raise ConfigurationError(f"{where}: shape {shape} holds nothing")
    start = _PREAMBLE_BYTES + int.from_bytes(header["length"], "little")
    data_bytes = entry.file_size - start
    if header.end() != start or data_bytes != math.prod(shape) * np.dtype(dtype).itemsize:
        raise ConfigurationError(
            f"{where}: {data_bytes} bytes of data do not make up shape {shape}"
        )
    return _Form(start, dtype, shape, "F" if by_column else "C")


def _header_of(where: str, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> re.Match[bytes]:
    with archive.open(entry) as member:
        header = _HEADER.match(member.read(_LONGEST_HEADER))
    if header is None:
        raise ConfigurationError(f"{where}: {_NOT_PLAIN}")
    return header


def _shape_in(header: re.Match[bytes]) -> tuple[int, ...]:
    return tuple(int(length) for length in header["shape"].split(b",") if length.strip())


def _is_text(prefix: str, dtype: str) -> bool:
    length = dtype.removeprefix(prefix)
    return prefix == "<U" and length.isdecimal() and 0 < int(length) <= LONGEST_TEXT


def _require_rows(path: Path, stated: Mapping[str, _Form], rules: Mapping[str, ArrayRule]) -> None:
    """Reject arrays without rows, or with different numbers of rows.

    Raises:
        ConfigurationError: names the number of rows of each.
    """
    for rows in {rule.rows for rule in rules.values()}:
        lengths = {name: form.shape[0] for name, form in stated.items() if rules[name].rows == rows}
        if len(set(lengths.values())) != 1 or 0 in lengths.values():
            raise ConfigurationError(f"{path}: arrays empty or of unequal length: {lengths}")


def _array(
    where: str, archive: zipfile.ZipFile, entry: zipfile.ZipInfo, form: _Form, rule: ArrayRule
) -> NDArray[Any]:
    """Return an array; memory is bounded by the stated size.

    Raises:
        ConfigurationError: the member is truncated, or a value is out of bounds.
    """
    content = bytearray(entry.file_size)
    with archive.open(entry) as member:
        filled = 0
        while filled < len(content) and (piece := member.read(_PIECE_BYTES)):
            content[filled : filled + len(piece)] = piece
            filled += len(piece)
    if filled < len(content):
        raise ConfigurationError(f"{where}: ends after {filled} of {len(content)} bytes")
    flat = np.frombuffer(content, dtype=form.dtype, offset=form.start)
    array = flat.reshape(form.shape, order=form.order)
    array.flags.writeable = False
    if array.dtype.kind == "U":
        _require_characters(where, array)
    else:
        require_values(where, array, rule)
    return array


def require_values(where: str, array: NDArray[Any], rule: ArrayRule) -> None:
    """Reject numbers out of bounds, and values that are not finite.

    Args:
        where: file and name of the array.
        array: numbers, not empty.
        rule: with the bounds.

    Raises:
        ConfigurationError: names the smallest and the largest, and the bounds.
    """
    # In this form: comparisons with NaN are false.
    if not (rule.low <= array.min() and array.max() <= rule.high and np.isfinite(array).all()):
        raise ConfigurationError(
            f"{where}: values {array.min()} .. {array.max()}, outside {rule.low} .. {rule.high}"
        )


def _require_characters(where: str, array: NDArray[Any]) -> None:
    """Reject text with invalid code points, which NumPy finds only on use.

    Raises:
        ConfigurationError: names the first.
    """
    points = array.reshape(-1).view("<u4")
    wrong = (points > _LAST_CHARACTER) | ((points >> _SURROGATE_BITS) == _SURROGATES)
    if wrong.any():
        raise ConfigurationError(f"{where}: {points[wrong][0]:#x} is not a character")
