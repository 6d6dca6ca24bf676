"""The trackers of one run: whatever one of them does, the run and the others go on."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ledger.io.extras import missing_extra
from ledger.io.home import Home
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from clients.configuration.schema import TrackSection
    from cmfl.tracking.tracker import ExperimentTracker, TrackedRow, TrackedRun

TRACKERS = {
    "mlflow": ("cmfl.tracking.mlflow_tracker", "MlflowTracker"),
    "tensorboard": ("cmfl.tracking.tensorboard_tracker", "TensorboardTracker"),
    "wandb": ("cmfl.tracking.wandb_tracker", "WandbTracker"),
}
"""Module and class of each tracker, by the setting that turns it on."""

_LONGEST = 200


def require_apart(section: TrackSection, home: Path) -> None:
    """Refuse a tracker's folder among the runs or the blobs of a home, which would take it for one.

    Raises:
        ConfigurationError: names the setting and the folder.
    """
    for name, place in section.used.items():
        for own in (Home(home).runs, Home(home).blobs):
            if "://" not in place and Path(place).resolve().is_relative_to(own.resolve()):
                raise ConfigurationError(f"track.{name} = {place}: {own} is the home's own folder")


class TrackingSession:
    """The trackers in use; one that fails is dropped, with one warning.

    Attributes:
        warnings: what went wrong so far.
        places: where each record is that was ended, by tracker.
    """

    def __init__(self, section: TrackSection, warn: Callable[[str], None]) -> None:
        """Load the trackers that are in use: a package that is missing is said at once.

        Args:
            section: the run's settings.
            warn: called with each warning, one sentence.
        """
        self.warnings: list[str] = []
        self.places: dict[str, str] = {}
        self._warn = warn
        self._trackers: dict[str, ExperimentTracker] = {}
        for name, place in section.used.items():
            with self._guarded(name):
                module, tracker = TRACKERS[name]
                self._trackers[name] = getattr(import_module(module), tracker)(
                    place, section.project
                )

    def open(self, run: TrackedRun, rows: Sequence[TrackedRow]) -> None:
        """Open the record of the run in each tracker."""
        self._each(lambda tracker: tracker.open(run, rows))

    def log(self, row: TrackedRow) -> None:
        """Add a round to each record."""
        self._each(lambda tracker: tracker.log(row))

    def close(self, tags: Mapping[str, str], model: Path | None) -> None:
        """End each record."""
        for name, tracker in [*self._trackers.items()]:
            with self._guarded(name):
                self.places[name] = tracker.close(tags, model)

    def abort(self) -> None:
        """End each record of a run that was cut off."""
        self._each(lambda tracker: tracker.abort())

    def _each(self, action: Callable[[ExperimentTracker], Any]) -> None:
        for name, tracker in [*self._trackers.items()]:
            with self._guarded(name):
                action(tracker)

    @contextmanager
    def _guarded(self, name: str) -> Iterator[None]:
        """Drop a tracker that fails, with a warning; its own warnings are nobody's concern."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        except Exception as error:  # noqa: BLE001 - a run outlives whatever a tracker raises
            self._trackers.pop(name, None)
            self.warnings.append(f"track.{name}: {_in_words(error)}; it gets nothing more")
            self._warn(f"warning: {self.warnings[-1]}")


def _in_words(error: Exception) -> str:
    sentence = missing_extra(error)
    if sentence is not None:
        return sentence
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first}"[:_LONGEST]
