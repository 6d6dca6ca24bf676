"""What a run writes into its folder: configuration, metrics and the last model."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from safetensors.numpy import save

from ledger.home import DISK, Disk, Home, RunPaths

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from clients.metrics import RoundMetrics

MAX_METRICS_BYTES = 1 << 30


class RunFolder:
    """A run's own files.

    Attributes:
        paths: where they are.
    """

    def __init__(self, paths: RunPaths, disk: Disk = DISK) -> None:
        """Name the files.

        Args:
            paths: where they are.
            disk: that they are written on.
        """
        self.paths = paths
        self._disk = disk

    def write_configuration(self, text: str) -> None:
        """Write the configuration whole or not at all."""
        self._disk.write_whole(self.paths.configuration, text.encode())

    def write_metrics(self, rows: list[RoundMetrics]) -> None:
        """Replace all rows."""
        self._disk.write_whole(self.paths.metrics, "".join(map(_line, rows)).encode())

    def append_metrics(self, row: RoundMetrics) -> None:
        """Add a round's row."""
        self._disk.append(self.paths.metrics, _line(row).encode())

    def read_metrics(self) -> list[dict[str, Any]] | None:
        """Return the rows; None if there is no file, or a line is damaged or cut off."""
        if not self.paths.metrics.is_file():
            return None
        with self.paths.metrics.open("rb") as file:
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
        self._disk.write_whole(self.paths.model, save({"parameters": vector}))


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
    return RunFolder(Home(home).run(name))


def _line(row: RoundMetrics) -> str:
    return json.dumps(asdict(row), sort_keys=True, allow_nan=False) + "\n"
