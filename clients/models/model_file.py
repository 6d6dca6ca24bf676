"""`model.safetensors`: a model's tensors by name, readable by other programs, and their order.

The flat vector is the concatenation of the tensors in the order stated in the file's metadata. The
rest of the metadata is for people: nothing is executed or loaded because a file names it. All of it
is under one key, as safetensors writes several keys in random order.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ledger.io.home import read_file
from ledger.io.parsing import parse_json
from ledger.protocol.documents.run import RunDocument
from ledger.protocol.errors import EncodingError
from ledger.protocol.rules.distance import Layout
from ledger.protocol.types import NO_DIGEST, Digest
from ledger.storage.blobs import MAX_BLOB_BYTES

MAX_HEADER_BYTES = 1 << 20
_LENGTH_BYTES = 8
MAX_MODEL_BYTES = _LENGTH_BYTES + MAX_HEADER_BYTES + MAX_BLOB_BYTES

_METADATA, _KEY, _ORDER, _FACTS = "__metadata__", "cmfl", "order", "facts"
OPTIONS = "options"
BOUND_FACTS = ("model_source", "frozen_state")


def facts_of(
    recorded: Mapping[str, Any], source: Digest = NO_DIGEST, frozen_state: Digest = NO_DIGEST
) -> dict[str, str]:
    """Return the metadata of a model; the digests of code and frozen parts may be zeros."""
    options = json.dumps(recorded.get(OPTIONS, {}), sort_keys=True, default=str)
    named = ("name", "sha256", "package")
    facts = {name: str(recorded[name]) for name in named if name in recorded}
    return facts | {OPTIONS: options} | bound_facts(source, frozen_state)


def bound_facts(source: Digest, frozen_state: Digest) -> dict[str, str]:
    """Return the digests that the tensors depend on, 0x-hex, without zeros."""
    bound = dict(zip(BOUND_FACTS, (source, frozen_state), strict=True))
    return {name: f"0x{value.hex()}" for name, value in bound.items() if value != NO_DIGEST}


@dataclass(frozen=True, slots=True, eq=False)
class StoredModel:
    """The content of a model file: parameters, shape (d,), and name and shape of each tensor."""

    vector: NDArray[np.float32]
    layout: Layout
    facts: Mapping[str, str]


def encode_model(
    vector: NDArray[np.float32], layout: Layout, facts: Mapping[str, str] | None = None
) -> bytes:
    """Return the bytes of a model file, its tensors in the order of the vector."""
    if _METADATA in dict(layout):
        raise EncodingError(f"no tensor of a model file can be named {_METADATA!r}")
    sizes = [math.prod(shape) for _, shape in layout]
    if vector.shape != (sum(sizes),):
        raise ValueError(f"{vector.shape} parameters for tensors of {sum(sizes)}")
    parts = np.split(vector, np.cumsum(sizes)[:-1])
    tensors = {name: part.reshape(shape) for (name, shape), part in zip(layout, parts, strict=True)}
    metadata = {_ORDER: [name for name, _ in layout], _FACTS: dict(facts or {})}
    data = bytes(save(tensors, {_KEY: json.dumps(metadata, sort_keys=True)}))
    if int.from_bytes(data[:_LENGTH_BYTES], "little") > MAX_HEADER_BYTES:
        raise EncodingError("names, shapes and facts of a model file are over 1 MiB")
    return data


def mean_model(vectors: Iterable[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Return the mean of models, summed in order in float64 and rounded once to float32."""
    models = iter(vectors)
    total, count = next(models).astype(np.float64), 1
    for vector in models:
        total += vector
        count += 1
    return (total / count).astype(np.float32)


def run_facts(document: RunDocument, round_number: int, head: Digest) -> dict[str, str]:
    """Return the metadata of a run's model after a round."""
    described = document.experiment.get("model")
    recorded = described if isinstance(described, dict) else {}
    facts = facts_of(recorded, document.model_source, document.frozen_state)
    return facts | {"round": str(round_number), "head": f"0x{head.hex()}"}


def decode_model(data: bytes) -> StoredModel:
    """Return the content of a model file."""
    header = _header(data)
    order, facts = _order_and_facts(header.pop(_METADATA, {}), set(header))
    try:
        tensors = load(data)
    except (SafetensorError, ValueError, TypeError, KeyError) as error:
        raise EncodingError(f"it is damaged: {error!s:.200}") from error
    layout = tuple((name, tuple(tensors[name].shape)) for name in order)
    return StoredModel(np.concatenate([tensors[name].reshape(-1) for name in order]), layout, facts)


def read_model_file(path: Path) -> StoredModel:
    """Return the content of a model file; its size is bounded before it is read."""
    data = read_file(path, MAX_MODEL_BYTES)
    if len(data) > MAX_MODEL_BYTES:
        raise EncodingError(f"{path}: it is over {MAX_MODEL_BYTES} bytes")
    try:
        return decode_model(data)
    except EncodingError as error:
        raise EncodingError(f"{path}: {error}") from error


def _header(data: bytes) -> dict[str, Any]:
    """Return the safetensors header, with a tighter bound than the library's 100 MB."""
    length = int.from_bytes(data[:_LENGTH_BYTES], "little")
    if length > MAX_HEADER_BYTES or len(data) < _LENGTH_BYTES + length:
        raise EncodingError("not a safetensors file, or its header is over 1 MiB")
    try:
        header = parse_json(data[_LENGTH_BYTES : _LENGTH_BYTES + length], unique_keys=True)
    except ValueError as error:
        raise EncodingError(f"not a safetensors file: {error!s:.200}") from error
    if not isinstance(header, dict) or len(header) == 0:
        raise EncodingError("not a safetensors file, because its header is not a map of tensors")
    for name, entry in header.items():
        if name != _METADATA and (not isinstance(entry, dict) or entry.get("dtype") != "F32"):
            raise EncodingError(f"tensor {name[:80]!r} is not of type F32")
    return header


def _order_and_facts(metadata: Any, names: set[str]) -> tuple[list[str], dict[str, str]]:
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
        content = parse_json(metadata[_KEY])
        order = list(content[_ORDER])
        if order and sorted(order) == sorted(names):
            return order, {str(name): str(fact) for name, fact in content[_FACTS].items()}
    raise EncodingError("its metadata do not state the order of its tensors")
