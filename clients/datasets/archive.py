"""Reading arrays out of an `.npz` file that may be damaged or hostile.

`numpy.load` evaluates the header and allocates the shape it states before it reads. Here the
order is: size of the file, names and stated sizes in it, each array's header against one pattern,
then its bytes, piece by piece and no more than its header asks for, with their checksum. Nothing
is ever unpickled, whatever the file says.
"""

from __future__ import annotations

import math
import re
import struct
import zipfile
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

MAX_FILE_BYTES = 256 * 2**20
MAX_ARRAYS_BYTES = 1024 * 2**20

_PREAMBLE_BYTES = 10  # magic, version, length of the header
_LONGEST_HEADER = 4096
# `ZipFile.read` would unpack a member in one piece, whatever size the archive states for it.
_PIECE_BYTES = 2**20
_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00(?P<length>..)"
    rb"\{'descr': '(?P<dtype>[<>|][A-Za-z][0-9]{0,9})', 'fortran_order': False, "
    rb"'shape': \((?P<shape>(?:[0-9]{1,12}, ?){1,4}(?:[0-9]{1,12})?)\), \} *\n",
    re.DOTALL,
)
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
    """What one array of the file must be.

    Attributes:
        dtype: exact type of its elements, as NumPy writes it.
        shape: its shape; None where any length will do.
        low: smallest value allowed.
        high: largest value allowed.
    """

    dtype: str
    shape: tuple[int | None, ...]
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class _Form:
    """Where an array's bytes begin in its member, and its shape."""

    start: int
    shape: tuple[int, ...]


def read_arrays(path: Path, rules: Mapping[str, ArrayRule]) -> dict[str, NDArray[Any]]:
    """Return the arrays of an `.npz` file, each of them checked against its rule.

    Args:
        path: the file.
        rules: rule of every array that must be there; no other may be.

    Returns:
        The arrays by name; as many rows in each, at least one.

    Raises:
        ConfigurationError: the file is missing, damaged or too large, or breaks a rule.
    """
    try:
        if not path.is_file():
            raise ConfigurationError(f"{path}: no such file")
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise ConfigurationError(f"{path}: {size} bytes, more than {MAX_FILE_BYTES}")
        with zipfile.ZipFile(path) as archive:
            entries = _entries(path, archive, rules)
            stated = {
                name: _stated(f"{path}: {name}", archive, entry, rules[name])
                for name, entry in entries.items()
            }
            _require_rows(path, stated)
            arrays = {
                name: _array(f"{path}: {name}", archive, entries[name], form, rules[name])
                for name, form in stated.items()
            }
    except _DAMAGE as error:
        raise ConfigurationError(f"{path}: not a readable .npz file ({error})") from error
    return arrays


def _entries(
    path: Path, archive: zipfile.ZipFile, rules: Mapping[str, ArrayRule]
) -> dict[str, zipfile.ZipInfo]:
    found = archive.infolist()
    names = sorted(entry.filename for entry in found)
    expected = sorted(f"{name}.npy" for name in rules)
    if names != expected:
        raise ConfigurationError(
            f"{path}: holds {', '.join(names[:9])}; must hold exactly {', '.join(expected)}"
        )
    if any(entry.compress_type not in _COMPRESSIONS for entry in found):
        raise ConfigurationError(f"{path}: compressed by a method other than deflate")
    total = sum(entry.file_size for entry in found)
    if total > MAX_ARRAYS_BYTES:
        raise ConfigurationError(f"{path}: unpacks to {total} bytes, more than {MAX_ARRAYS_BYTES}")
    return {entry.filename.removesuffix(".npy"): entry for entry in found}


def _stated(where: str, archive: zipfile.ZipFile, entry: zipfile.ZipInfo, rule: ArrayRule) -> _Form:
    """Return what a member says of itself, from its first bytes alone.

    Raises:
        ConfigurationError: its header is not that of a plain array, or breaks the rule.
    """
    with archive.open(entry) as member:
        header = _HEADER.match(member.read(_LONGEST_HEADER))
    if header is None:
        raise ConfigurationError(f"{where}: no plain .npy array (version 1.0, C order)")
    dtype = header["dtype"].decode("ascii")
    if dtype != rule.dtype:
        raise ConfigurationError(f"{where}: must be of type {rule.dtype}, is {dtype}")
    shape = tuple(int(length) for length in header["shape"].split(b",") if length.strip())
    if len(shape) != len(rule.shape) or any(
        want not in (None, have) for have, want in zip(shape, rule.shape, strict=True)
    ):
        raise ConfigurationError(f"{where}: shape {shape} does not fit {rule.shape}")
    start = _PREAMBLE_BYTES + int.from_bytes(header["length"], "little")
    held = entry.file_size - start
    if header.end() != start or held != math.prod(shape) * np.dtype(rule.dtype).itemsize:
        raise ConfigurationError(f"{where}: {held} bytes of data do not make up shape {shape}")
    return _Form(start, shape)


def _require_rows(path: Path, stated: Mapping[str, _Form]) -> None:
    """Refuse arrays without rows, and those that do not belong together.

    Raises:
        ConfigurationError: names the number of rows of each.
    """
    lengths = {name: form.shape[0] for name, form in stated.items()}
    if len(set(lengths.values())) != 1 or 0 in lengths.values():
        raise ConfigurationError(f"{path}: arrays empty or of unequal length: {lengths}")


def _array(
    where: str, archive: zipfile.ZipFile, entry: zipfile.ZipInfo, form: _Form, rule: ArrayRule
) -> NDArray[Any]:
    """Return an array that is made of no more than what its header has asked for.

    Raises:
        ConfigurationError: the member ends before, or a value is out of its bounds.
    """
    content = bytearray(entry.file_size)
    with archive.open(entry) as member:
        filled = 0
        while filled < len(content) and (piece := member.read(_PIECE_BYTES)):
            content[filled : filled + len(piece)] = piece
            filled += len(piece)
    if filled < len(content):
        raise ConfigurationError(f"{where}: ends after {filled} of {len(content)} bytes")
    array = np.frombuffer(content, dtype=rule.dtype, offset=form.start).reshape(form.shape)
    array.flags.writeable = False
    if array.size and (array.min() < rule.low or array.max() > rule.high):
        raise ConfigurationError(
            f"{where}: values {array.min()} .. {array.max()}, outside {rule.low} .. {rule.high}"
        )
    return array
