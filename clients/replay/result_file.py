"""Results of repeated training in a file, so that an interrupted replay goes on where it ended.

A line is one result with all that it follows from: run, round, client, commitment, environment,
model code and samples. A result counts only for the same. The losses are in it: the file is its
auditor's own, like a key. Several processes may add to one file.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from clients.replay.replayed_update import ReplayedUpdate, UpdateDifference
from ledger.io.home import read_file
from ledger.io.parsing import parse_json
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.training_replay import ReplayVerdict, TrainingEnvironment
from ledger.protocol.types import Digest

MAX_RESULT_BYTES = 1 << 30


class ResultFile:
    """Results by the digest of what they follow from, appended one by one."""

    def __init__(self, path: Path) -> None:
        """Read a file, or begin one."""
        self._path = path
        self._results: dict[str, dict[str, Any]] = {}
        try:
            data = read_file(path, MAX_RESULT_BYTES) if path.exists() else b""
            path.parent.stat()  # before anything is trained
        except OSError as error:
            raise ConfigurationError(f"--log {path}: {error.strerror}") from error
        *lines, torn = data.split(b"\n")
        for number, line in enumerate(lines, 1):
            self._read(number, line)
        self._whole = len(data) - len(torn)

    def find(self, origin: Digest, environment: TrainingEnvironment) -> ReplayedUpdate | None:
        """Return the result of the same update from the same inputs; None if there is none."""
        values = self._results.get(origin.hex())
        return None if values is None else _update(values, environment)

    def add(self, origin: Digest, update: ReplayedUpdate) -> None:
        """Append a result."""
        plain = replace(update, losses=None)
        values = asdict(plain) | {
            "origin": origin.hex(),
            "environment": None,
            "losses": None if update.losses is None else update.losses.hex(),
        }
        try:
            with open(self._path, "a+b", opener=_private) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                whole = file.seek(min(self._whole, file.seek(0, os.SEEK_END)))
                others = file.read(MAX_RESULT_BYTES)
                file.truncate(whole + others.rfind(b"\n") + 1)  # a line cut short is none
                file.write(f"{json.dumps(values, allow_nan=False)}\n".encode())
                file.flush()
                os.fsync(file.fileno())
                self._whole = file.tell()
        except OSError as error:
            raise ConfigurationError(f"--log {self._path}: {error.strerror}") from error

    def _read(self, number: int, line: bytes) -> None:
        try:
            values = parse_json(line)
            here = TrainingEnvironment("-", "-", "-", "-", "-", 1)
            _update(values, here)
            self._results[values["origin"]] = values
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigurationError(
                f"--log {self._path}: line {number} is no result of a replay: name a new file"
            ) from error


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _update(values: dict[str, Any], environment: TrainingEnvironment) -> ReplayedUpdate:
    recorded, difference = values["recorded"], values["difference"]
    return ReplayedUpdate(
        round=values["round"],
        client=values["client"],
        verdict=ReplayVerdict(values["verdict"]),
        reason=values["reason"],
        environment=environment,
        recorded=None if recorded is None else TrainingEnvironment(**recorded),
        losses=None if values["losses"] is None else bytes.fromhex(values["losses"]),
        difference=None if difference is None else UpdateDifference(**difference),
    )
