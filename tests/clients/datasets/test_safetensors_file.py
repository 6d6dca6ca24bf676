"""A `.safetensors` file is read exactly where the safetensors library reads it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError
from safetensors.numpy import load

from clients.datasets.files.data_archive import ArrayRule
from clients.datasets.files.safetensors_file import read_any_tensors, read_tensors, tensor_names
from ledger.protocol.errors import ConfigurationError
from tests.faults import times

if TYPE_CHECKING:
    from pathlib import Path

TYPES = {"F32": 4, "U8": 1, "I64": 8}


def file_of(header: str, data: bytes, length: int | None = None) -> bytes:
    encoded = header.encode()
    stated = len(encoded) if length is None else length
    return stated.to_bytes(8, "little") + encoded + data


def entry(dtype: str, shape: list[int], start: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


X = entry("U8", [4, 2], 0, 8)
Y = entry("U8", [4], 8, 12)
DATA = bytes(range(12))
HOSTILE: dict[str, tuple[dict[str, Any], bytes]] = {
    "trailing bytes": ({"x": X, "y": Y}, DATA + b"\0"),
    "a truncated end": ({"x": X, "y": Y}, DATA[:-1]),
    "overlapping tensors": ({"x": X, "y": entry("U8", [4], 4, 8)}, DATA[:8]),
    "one tensor inside another": ({"x": X, "y": entry("U8", [4], 2, 6)}, DATA[:8]),
    "two names of the same bytes": ({"x": X, "z": X}, DATA[:8]),
    "a hole between tensors": ({"x": X, "y": entry("U8", [4], 9, 13)}, DATA + b"\0"),
    "a hole before the first": ({"y": entry("U8", [4], 8, 12)}, DATA),
    "offsets in reverse": ({"x": X, "y": entry("U8", [4], 12, 8)}, DATA),
    "a size that is not the shape's": ({"x": entry("U8", [4, 3], 0, 8)}, DATA[:8]),
    "a size that overflows": ({"x": entry("U8", [2**32, 2**32, 0], 0, 0)}, b""),
    "offsets beyond 64 bits": ({"x": entry("U8", [4], 2**64, 2**64 + 4)}, b""),
    "metadata of numbers": ({"__metadata__": {"a": 1}, "x": X}, DATA[:8]),
    "metadata in an empty list": ({"__metadata__": [], "x": X}, DATA[:8]),
    "metadata in a list": ({"__metadata__": ["a"], "x": X}, DATA[:8]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_the_library_rejects_is_rejected(tmp_path: Path, name: str) -> None:
    header, data = HOSTILE[name]
    content = file_of(json.dumps(header), data)
    with pytest.raises(SafetensorError):
        load(content)
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    for read in (tensor_names, read_any_tensors):
        if read is tensor_names and "size" in name:
            continue  # shapes are compared with sizes where the arrays are read
        with pytest.raises(ConfigurationError, match=r"x\.safetensors"):
            read(path)
    with pytest.raises(ConfigurationError, match=r"x\.safetensors"):
        read_tensors(path, {n: ArrayRule("|u1", (None,)) for n in header})


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """Draw a sound file, then a few changes to its offsets, shapes, header and end."""
    header: dict[str, Any] = {}
    end = 0
    for name in draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True)):
        dtype = draw(st.sampled_from(sorted(TYPES)))
        shape = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
        size = int(np.prod(shape)) * TYPES[dtype]
        header[name] = entry(dtype, shape, end, end + size)
        end += size
    data = draw(st.binary(min_size=end, max_size=end))
    change = st.sampled_from([-8, -1, 1, 4, 8, 2**64])
    for _ in range(draw(st.integers(0, 2))):
        name = draw(st.sampled_from(sorted(header)))
        field = draw(st.sampled_from(["data_offsets", "shape"]))
        place = draw(st.integers(0, len(header[name][field]) - 1))
        header[name][field][place] += draw(change)
    if draw(st.booleans()):
        metadata = st.dictionaries(st.sampled_from("mn"), st.text(max_size=3) | st.integers())
        header["__metadata__"] = draw(metadata | st.none() | st.just([]))
    items = draw(st.permutations(sorted(header.items())))
    text = json.dumps(dict(items)) + " " * draw(st.integers(0, 2))
    text = draw(st.sampled_from(["", "", " ", "\n"])) + text
    data += draw(st.sampled_from([b"", b"", b"\0", bytes(8)]))
    return file_of(text, data, len(text) + draw(st.sampled_from([0, 0, 0, -1, 1])))


@settings(
    max_examples=times(300, 20_000),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(files())
def test_a_file_is_read_where_the_library_reads_it(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    try:
        expected = load(content)
    except SafetensorError:
        with pytest.raises(ConfigurationError):
            read_any_tensors(path)
        return
    if not all(array.size and array.ndim for array in expected.values()):
        return
    if any(not np.isfinite(array).all() for array in expected.values()):
        return
    found = read_any_tensors(path)
    assert {name: (a.dtype, a.shape, a.tobytes()) for name, a in found.items()} == {
        name: (a.dtype, a.shape, a.tobytes()) for name, a in expected.items()
    }
