"""The files of one run in its home: `runs/<name>/` beside the chain and the blobs."""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from safetensors.numpy import save_file

from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from clients.metrics import RoundMetrics

RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
MAX_METRICS_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Where a run keeps what is not on the chain and not a blob.

    Attributes:
        path: `runs/<name>`.
    """

    path: Path

    @property
    def configuration(self) -> Path:
        """The run's whole configuration, as TOML."""
        return self.path / "config.toml"

    @property
    def metrics(self) -> Path:
        """One JSON line per round."""
        return self.path / "metrics.jsonl"

    @property
    def manifest(self) -> Path:
        """What was deployed where."""
        return self.path / "deployment.json"

    @property
    def journal(self) -> Path:
        """What the keys of this run have signed."""
        return self.path / "votes.sqlite"

    @property
    def model(self) -> Path:
        """The last model."""
        return self.path / "model.safetensors"

    def write_configuration(self, text: str) -> None:
        """Write the configuration whole or not at all."""
        self.path.mkdir(parents=True, exist_ok=True)
        _replace(self.configuration, text.encode())

    def write_metrics(self, rows: list[RoundMetrics]) -> None:
        """Replace all rows."""
        _replace(self.metrics, "".join(map(_line, rows)).encode())

    def append_metrics(self, row: RoundMetrics) -> None:
        """Add a round's row."""
        with self.metrics.open("a", encoding="utf-8") as file:
            file.write(_line(row))

    def read_metrics(self) -> list[dict[str, Any]] | None:
        """Return the rows; None if there is no file, or a line is damaged or cut off."""
        if not self.metrics.is_file():
            return None
        with self.metrics.open("rb") as file:
            lines = file.read(MAX_METRICS_BYTES).splitlines(keepends=True)
        if lines and not lines[-1].endswith(b"\n"):
            return None
        try:
            rows = [json.loads(line) for line in lines]
        except (ValueError, RecursionError):
            return None
        return rows if all(isinstance(row, dict) for row in rows) else None

    def write_model(self, vector: NDArray[np.float32]) -> None:
        """Write the model's parameters as one flat tensor."""
        temporary = self.model.with_suffix(".writing")
        save_file({"parameters": vector}, temporary)
        temporary.replace(self.model)


def run_folder(home: Path, name: str) -> RunFolder:
    """Return the folder of a run.

    Args:
        home: of chain, blobs and runs.
        name: of the run.

    Returns:
        The folder; it need not exist.

    Raises:
        ConfigurationError: the name is no plain file name.
    """
    if not RUN_NAME.fullmatch(name):
        raise ConfigurationError(
            f"run name {name!r}: letters, digits, dot, dash and underscore, at most 64"
        )
    return RunFolder(home / "runs" / name)


def _line(row: RoundMetrics) -> str:
    return json.dumps(asdict(row), sort_keys=True, allow_nan=False) + "\n"


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_suffix(".writing")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
