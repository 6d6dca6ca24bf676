"""What a run writes into its folder: configuration, metrics and the last model.

Whatever is replaced is replaced whole, and survives a power cut. A round's row is only appended:
what a power cut takes of it is made again from the chain.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from clients.models.model_file import StoredModel, encode_model, read_model_file
from ledger.io.home import DISK, Disk, Home, RunPaths, read_file
from ledger.io.json import parse_json
from ledger.protocol.errors import EncodingError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from clients.runs.metrics import RoundMetrics
    from ledger.protocol.rules.distance import Layout

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

    def write_metrics(self, lines: list[bytes]) -> None:
        """Replace all rows."""
        self._disk.write_whole(self.paths.metrics, b"".join(lines))

    def keep_metrics_aside(self, lines: list[bytes]) -> None:
        """Keep rows that the chain does not bear out in a file of their own."""
        self._disk.write_whole(self.paths.metrics_before_rollback(), b"".join(lines))

    def append_metrics(self, row: RoundMetrics) -> None:
        """Add a round's row."""
        self._disk.append(self.paths.metrics, line_of(row))

    def metrics_lines(self) -> list[bytes]:
        """Return the lines of the metrics as they are, damaged ones too; none without a file."""
        try:
            return read_file(self.paths.metrics, MAX_METRICS_BYTES).splitlines(keepends=True)
        except FileNotFoundError:
            return []

    def read_metrics(self) -> list[dict[str, Any]]:
        """Return the rows of a run that is taken up, which are whole."""
        return [parse_json(line) for line in self.metrics_lines()]

    def write_model(
        self, vector: NDArray[np.float32], layout: Layout, facts: Mapping[str, str] | None = None
    ) -> None:
        """Write the model's tensors by name.

        Args:
            vector: parameters, shape (d,).
            layout: name and shape of each tensor.
            facts: what the file says of itself.
        """
        self._disk.write_whole(self.paths.model, encode_model(vector, layout, facts))

    def read_model(self) -> StoredModel | None:
        """Return the model, None if there is no file of it, or one that is damaged or older."""
        try:
            return read_model_file(self.paths.model)
        except (FileNotFoundError, EncodingError):
            return None


def run_folder(home: Path, name: str, disk: Disk = DISK) -> RunFolder:
    """Return the folder of a run.

    Args:
        home: of chain, blobs and runs.
        name: of the run.
        disk: that its files are written on.

    Returns:
        The folder; it need not exist.

    Raises:
        ConfigurationError: the name is no plain file name.
    """
    return RunFolder(Home(home).run(name), disk)


def line_of(row: RoundMetrics) -> bytes:
    """Return a row as it stands in the file."""
    return f"{json.dumps(asdict(row), sort_keys=True, allow_nan=False)}\n".encode()
