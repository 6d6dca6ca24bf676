"""A reader of arrays in a `.safetensors` file, which may be damaged or hostile.

The format is a length, a JSON header and the bytes of all tensors. The header is bounded and
checked against the rules and the size of the file before a tensor is read. As in the safetensors
library, the tensors' bytes follow each other without a gap or an overlap, up to the file's end.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from clients.datasets.files.data_archive import (
    MAX_FILE_BYTES,
    ArrayRule,
    require_file,
    require_values,
)
from ledger.io.json import parse_json
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

MAX_HEADER_BYTES = 65_536
_LENGTH_BYTES = 8
_METADATA = "__metadata__"
_MAX_ELEMENTS = 2**60
_TYPES = {"F32": "<f4", "U8": "|u1", "I64": "<i8"}
"""The format's names of the supported types, and NumPy's."""


def tensor_names(path: Path) -> frozenset[str]:
    """Return the names of a file's tensors.

    Raises:
        ConfigurationError: it is damaged or too large.
    """
    return frozenset(_header(path, _content(path)))


def read_tensors(path: Path, rules: Mapping[str, ArrayRule]) -> dict[str, NDArray[Any]]:
    """Return the tensors of a file, checked against their rules.

    Args:
        path: the file.
        rules: of every tensor; no other may exist.

    Returns:
        The arrays by name, not empty, read-only.

    Raises:
        ConfigurationError: the file is missing, damaged or too large, or breaks a rule.
    """
    content = _content(path)
    header = _header(path, content)
    if sorted(header) != sorted(rules):
        raise ConfigurationError(
            f"{path}: holds {', '.join(sorted(header)[:9])}; must hold exactly "
            f"{', '.join(sorted(rules))}"
        )
    data = memoryview(content)[_LENGTH_BYTES + int.from_bytes(content[:_LENGTH_BYTES], "little") :]
    arrays = {name: _array(f"{path}: {name}", header[name], data, rules[name]) for name in header}
    for rows in {rule.rows for rule in rules.values()}:
        lengths = {name: len(arrays[name]) for name in arrays if rules[name].rows == rows}
        if len(set(lengths.values())) != 1 or 0 in lengths.values():
            raise ConfigurationError(f"{path}: arrays empty or of unequal length: {lengths}")
    return arrays


def read_any_tensors(path: Path) -> dict[str, NDArray[Any]]:
    """Return all tensors of a file, whatever their type (of `_TYPES`) and shape.

    Raises:
        ConfigurationError: see `read_tensors`.
    """
    content = _content(path)
    rules = {}
    for name, entry in _header(path, content).items():
        stated = entry if isinstance(entry, dict) else {}
        dtype = _TYPES.get(str(stated.get("dtype")))
        if dtype is None:
            raise ConfigurationError(
                f"{path}: {name}: must be of type {', '.join(_TYPES)}, is "
                f"{str(stated.get('dtype'))[:20]}"
            )
        shape = _wholes(stated.get("shape"))
        if not shape:
            raise ConfigurationError(f"{path}: {name}: must have a shape with rows")
        rules[name] = ArrayRule(dtype, tuple(None for _ in shape), rows=name)
    return read_tensors(path, rules)


def _content(path: Path) -> bytes:
    try:
        require_file(path)
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    if len(content) > MAX_FILE_BYTES:
        raise ConfigurationError(f"{path}: more than {MAX_FILE_BYTES} bytes")
    return content


def _header(path: Path, content: bytes) -> dict[str, Any]:
    length = int.from_bytes(content[:_LENGTH_BYTES], "little")
    if not 0 < length <= min(MAX_HEADER_BYTES, len(content) - _LENGTH_BYTES):
        raise ConfigurationError(
            f"{path}: not a readable .safetensors file (its header must have 1 .. "
            f"{MAX_HEADER_BYTES} bytes and be whole)"
        )
    try:
        header = parse_json(content[_LENGTH_BYTES : _LENGTH_BYTES + length], unique_keys=True)
    except ValueError as error:
        raise ConfigurationError(
            f"{path}: not a readable .safetensors file ({error!s:.200})"
        ) from error
    if not isinstance(header, dict):
        raise ConfigurationError(
            f"{path}: not a readable .safetensors file (its header is not a map)"
        )
    metadata = header.pop(_METADATA, None)
    is_map = isinstance(metadata, dict) and all(isinstance(each, str) for each in metadata.values())
    if metadata is not None and not is_map:
        raise ConfigurationError(f"{path}: {_METADATA} must be a map of texts")
    _require_no_gap(path, header, len(content) - _LENGTH_BYTES - length)
    return header


def _require_no_gap(path: Path, header: Mapping[str, Any], size: int) -> None:
    """Reject bytes that belong to no tensor, or to several.

    Args:
        path: the file.
        header: entries of all tensors.
        size: bytes after the header.

    Raises:
        ConfigurationError: names the tensor and the position.
    """
    spans = []
    for name, entry in header.items():
        ends = _wholes(entry.get("data_offsets")) if isinstance(entry, dict) else ()
        if len(ends) != 2:
            raise ConfigurationError(f"{path}: {name[:80]}: must have data_offsets of two numbers")
        spans.append((*ends, name))
    position = 0
    for start, end, name in sorted(spans):
        if start != position or end < start:
            raise ConfigurationError(
                f"{path}: {name[:80]}: bytes {start} .. {end}, but the tensor before ends at "
                f"{position}; tensors must follow each other"
            )
        position = end
    if position != size:
        raise ConfigurationError(
            f"{path}: the tensors end at byte {position}, but {size} bytes follow the header"
        )


def _array(where: str, entry: object, data: memoryview, rule: ArrayRule) -> NDArray[Any]:
    """Return one tensor as a view of the file's bytes.

    Raises:
        ConfigurationError: its entry is malformed, or breaks the rule.
    """
    stated = entry if isinstance(entry, dict) else {}
    dtype = _TYPES.get(str(stated.get("dtype")))
    if dtype != rule.dtype:
        expected = next(name for name, known in _TYPES.items() if known == rule.dtype)
        raise ConfigurationError(
            f"{where}: must be of type {expected}, is {str(stated.get('dtype'))[:20]}"
        )
    shape, ends = _wholes(stated.get("shape")), _wholes(stated.get("data_offsets"))
    if len(shape) != len(rule.shape) or any(
        want not in (None, have) for have, want in zip(shape, rule.shape, strict=True)
    ):
        raise ConfigurationError(f"{where}: shape {shape} does not fit {rule.shape}")
    size = math.prod(shape) * np.dtype(dtype).itemsize
    is_countable = math.prod(length or 1 for length in shape) < _MAX_ELEMENTS
    if not is_countable or ends[1] - ends[0] != size:
        raise ConfigurationError(f"{where}: bytes {ends} do not make up shape {shape}")
    array = np.frombuffer(data[ends[0] : ends[1]], dtype=dtype).reshape(shape)
    if array.size:
        require_values(where, array, rule)
    return array


def _wholes(value: object) -> tuple[int, ...]:
    """Return a short list of whole numbers; empty for any other value."""
    if not isinstance(value, list) or len(value) > 8:
        return ()
    return tuple(value) if all(type(number) is int and number >= 0 for number in value) else ()
