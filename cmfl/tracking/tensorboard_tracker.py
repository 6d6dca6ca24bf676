"""Runs in TensorBoard: scalars by round, settings and tags as text, the model as a file beside.

Events are written at once, by the calling thread: tensorboardX's own queue waits for ever if the
thread behind it has met a full disk. An event file cannot be corrected, so a resumed run is written
anew.
"""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cmfl.tracking.tracker import TrackedRow, TrackedRun

_EVENTS = "events.out.tfevents"
_VERSION = "brain.Event:2"
"""What every event file begins with."""
_TEXT_STEP = 0


class TensorboardTracker:
    """A folder of event files, with a folder for each run."""

    def __init__(self, place: str, project: str) -> None:  # noqa: ARG002 - TensorBoard has none
        """Use a folder."""
        from tensorboardX import RecordWriter

        self._place, self._writer_class = Path(place), RecordWriter
        self._writer: Any = None
        self._folder = self._place

    def open(self, run: TrackedRun, rows: Sequence[TrackedRow]) -> None:
        """Write the run's event file anew; see `ExperimentTracker`."""
        self._folder = self._place / run.title
        self._folder.mkdir(parents=True, exist_ok=True)
        for earlier in self._folder.glob(f"{_EVENTS}.*"):
            earlier.unlink()
        # TensorBoard reads the files of a folder in the order of their names.
        self._writer = self._writer_class(str(self._folder / f"{_EVENTS}.{time.time():.0f}.cmfl"))
        self._add(file_version=_VERSION)
        self._write_text("settings", run.parameters)
        self._write_text("run", run.tags)
        for row in rows:
            self._write(row)
        self._flush()

    def log(self, row: TrackedRow) -> None:
        """Add a round."""
        self._write(row)
        self._flush()

    def close(self, tags: Mapping[str, str], model: Path | None) -> str:
        """Write the tags, and copy the model."""
        self._write_text("end", tags)
        self._writer.close()
        if model is not None:
            shutil.copyfile(model, self._folder / model.name)
        return str(self._folder)

    def abort(self) -> None:
        """Close the file."""
        self._writer.close()

    def _write(self, row: TrackedRow) -> None:
        from tensorboardX.summary import scalar

        for name, value in row.metrics.items():
            self._add(summary=scalar(name, value), step=row.round)

    def _write_text(self, name: str, values: Mapping[str, str]) -> None:
        from tensorboardX.summary import text

        lines = [f"| {key} | {value.replace('|', '&#124;')} |" for key, value in values.items()]
        table = "\n".join(["| | |", "| --- | --- |", *lines])
        self._add(summary=text(name, table), step=_TEXT_STEP)

    def _add(self, **event: Any) -> None:
        from tensorboardX.proto.event_pb2 import Event

        self._writer.write(Event(wall_time=time.time(), **event).SerializeToString())

    def _flush(self) -> None:
        """Write what was added; a file that cannot be written is closed."""
        try:
            self._writer.flush()
        except OSError:
            with suppress(OSError):
                self._writer.close()
            raise
