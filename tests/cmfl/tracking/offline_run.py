"""Reads the files of an offline run of Weights & Biases: LevelDB's log format, W&B's own messages.

W&B's package has the messages, and no reader of the file in Python.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_BLOCK = 1 << 15
_MAGIC = b":W&B"
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_HEAD = struct.Struct("<IHB")


@dataclass
class OfflineRun:
    run_id: str = ""
    project: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    artifacts: list[str] = field(default_factory=list)


def read_offline_run(path: Path) -> OfflineRun:
    from wandb.proto import wandb_internal_pb2

    run = OfflineRun()
    for data in _records(path.read_bytes()):
        record = wandb_internal_pb2.Record.FromString(data)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run.run_id, run.project = record.run.run_id, record.run.project
            run.config |= _items(record.run.config.update)
        elif kind == "history":
            run.history.append(_items(record.history.item) | {"_step": record.history.step.num})
        elif kind == "summary":
            run.summary |= _items(record.summary.update)
        elif kind == "artifact":
            run.artifacts.append(record.artifact.name)
        elif kind == "request" and record.request.HasField("log_artifact"):
            run.artifacts.append(record.request.log_artifact.artifact.name)
    return run


def _items(items: Any) -> dict[str, Any]:
    return {(each.key or ".".join(each.nested_key)): json.loads(each.value_json) for each in items}


def _records(data: bytes) -> Iterator[bytes]:
    assert data[:4] == _MAGIC
    place, parts = _HEAD.size, b""
    while place + _HEAD.size <= len(data):
        if _BLOCK - place % _BLOCK < _HEAD.size:  # the rest of a block is padding
            place += _BLOCK - place % _BLOCK
            continue
        _, size, kind = _HEAD.unpack_from(data, place)
        place += _HEAD.size
        piece, place = data[place : place + size], place + size
        parts = piece if kind in {_FULL, _FIRST} else parts + piece
        if kind in {_FULL, _LAST}:
            yield parts
