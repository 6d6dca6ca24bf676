"""A run on the memory ledger, and its accuracy when it has settled."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from clients.runs.open_run import open_memory_run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from clients.configuration.schema import Configuration
    from clients.runs.metrics import RoundMetrics
    from clients.runs.open_run import OpenedRun

LAST = 5
"""Rounds at the end whose accuracy is the mean of."""


@contextmanager
def memory_run(configuration: Configuration) -> Iterator[OpenedRun]:
    """Open a run that leaves nothing on the disk."""
    with (
        tempfile.TemporaryDirectory() as folder,
        open_memory_run(Path(folder), "run", configuration) as run,
    ):
        yield run


def late_accuracy(rows: Sequence[RoundMetrics]) -> float:
    """Return the mean test accuracy of the last rounds, of those that were evaluated."""
    return fmean(row.accuracy for row in rows[-LAST:] if row.accuracy is not None)
