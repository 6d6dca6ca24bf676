"""Runs in MLflow: parameters, metrics by round, tags, and the model as an artifact.

A folder holds a SQLite database and the artifacts. MLflow's own file store is not used: MLflow
refuses it since 3.7 unless a variable is set.
"""

from __future__ import annotations

import logging
import os
import re
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from cmfl.tracking.tracker import TrackedRow, TrackedRun

DATABASE = "mlflow.db"
KEY, HEAD = "cmfl.key", "cmfl.head"
EVERY_ROUND = "decided"
"""A metric that each round has: its last step is the last round that was logged."""

_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    # A server that is down stops one call for seconds, not for the minutes that MLflow would wait.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}
_MOST_VALUES = 1000
_MOST_NAMED = 100
_LONGEST = 6000
"""MLflow's bounds: metrics and parameters in a call, and characters of a parameter."""
_SQLITE = "sqlite:///"
_BUSY_SECONDS = 5.0
_NOT_IN_NAMES = re.compile(r"[^\w./ -]")


class MlflowTracker:
    """An MLflow tracking server, or a folder that is used like one."""

    def __init__(self, place: str, project: str) -> None:
        """Use a tracking URI, or a folder, and an experiment of this name."""
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        from mlflow.tracking import MlflowClient

        for name in ("mlflow", "alembic"):
            logging.getLogger(name).setLevel(logging.WARNING)
        is_uri = "://" in place
        self._folder = None if is_uri else Path(place).absolute()
        self._uri = place if is_uri else f"{_SQLITE}{self._folder}/{DATABASE}"
        self._client_class, self._project = MlflowClient, project
        self._client: Any = None
        self._run_id = ""

    def open(self, run: TrackedRun, rows: Sequence[TrackedRow]) -> None:
        """Go on with the run of this key, or start one; see `ExperimentTracker`."""
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._make_database(self._folder)
        _require_database(self._uri)
        self._client = self._client_class(tracking_uri=self._uri)
        experiment = self._experiment()
        last = self._resumed(experiment, run, rows)
        if last is None:
            last = 0
            created = self._client.create_run(
                experiment, run_name=run.title, tags={KEY: run.key, **run.tags}
            )
            self._run_id = created.info.run_id
            self._log_parameters(run.parameters)
        new = [row for row in rows if row.round > last]
        most = _MOST_VALUES // max([1, *(len(row.metrics) for row in new)])
        for start in range(0, len(new), most):
            self._log(new[start : start + most])

    def log(self, row: TrackedRow) -> None:
        """Add a round, and the head after it."""
        self._log([row])

    def close(self, tags: Mapping[str, str], model: Path | None) -> str:
        """Log tags and model, and finish the run."""
        from mlflow.entities import RunTag

        self._client.log_batch(self._run_id, tags=[RunTag(*tag) for tag in tags.items()])
        if model is not None:
            self._client.log_artifact(self._run_id, str(model))
        self._client.set_terminated(self._run_id, "FINISHED")
        return f"{self._uri}, run {self._run_id}"

    def abort(self) -> None:
        """Call the run killed until it is resumed."""
        self._client.set_terminated(self._run_id, "KILLED")

    def _make_database(self, folder: Path) -> None:
        """Make a folder's database, which takes seconds, and put it in place when it is whole.

        MLflow neither opens nor upgrades one that an interrupt has left half made.
        """
        if not (folder / DATABASE).exists():
            with TemporaryDirectory(dir=folder) as made:
                made_database = Path(made).absolute() / DATABASE
                self._client_class(f"sqlite:///{made_database}").search_experiments(max_results=1)
                made_database.replace(folder / DATABASE)

    def _experiment(self) -> str:
        experiment = self._client.get_experiment_by_name(self._project)
        if experiment is not None:
            return str(experiment.experiment_id)
        artifacts = None if self._folder is None else (self._folder / "artifacts").as_uri()
        return str(self._client.create_experiment(self._project, artifact_location=artifacts))

    def _resumed(self, experiment: str, run: TrackedRun, rows: Sequence[TrackedRow]) -> int | None:
        """Return the last logged round of the run's record; None if there is none to go on with.

        A record of rounds that the run does not have, since its chain was taken back, is deleted
        as MLflow deletes: it can be restored there.
        """
        known = self._client.search_runs([experiment], f"tags.`{KEY}` = '{run.key}'", max_results=1)
        if not known:
            return None
        self._run_id = known[0].info.run_id
        steps = [m.step for m in self._client.get_metric_history(self._run_id, EVERY_ROUND)]
        heads = {row.head for row in rows}
        head = known[0].data.tags.get(HEAD)
        if (head is not None and head not in heads) or max(steps, default=0) > len(rows):
            self._client.delete_run(self._run_id)
            return None
        # A process may have been killed after it made the record, and before it logged all of them.
        self._log_parameters(run.parameters, known[0].data.params)
        self._client.update_run(self._run_id, status="RUNNING")
        return max(steps, default=0)

    def _log(self, rows: Iterable[TrackedRow]) -> None:
        from mlflow.entities import Metric, RunTag

        now, head, metrics = int(1000 * time.time()), None, []
        for row in rows:
            head = row.head
            metrics += [Metric(name, x, now, row.round) for name, x in row.metrics.items()]
        tags = [] if head is None else [RunTag(HEAD, head)]
        self._client.log_batch(self._run_id, metrics=metrics, tags=tags)

    def _log_parameters(self, parameters: Mapping[str, str], logged: Collection[str] = ()) -> None:
        from mlflow.entities import Param

        params = [
            Param(name, value[:_LONGEST])
            for name, value in (
                (_NOT_IN_NAMES.sub("_", each), value) for each, value in parameters.items()
            )
            if name not in logged
        ]
        for start in range(0, len(params), _MOST_NAMED):
            self._client.log_batch(self._run_id, params=params[start : start + _MOST_NAMED])


def _require_database(uri: str) -> None:
    """Require that a database in a file can be written: MLflow would retry for minutes.

    Raises:
        ConfigurationError: names the file.
    """
    if not uri.startswith(_SQLITE):
        return
    path = Path(uri.removeprefix(_SQLITE).partition("?")[0]).absolute()
    if not path.exists() and path.parent.is_dir():
        return  # MLflow makes it
    try:
        with closing(
            sqlite3.connect(f"{path.as_uri()}?mode=rw", timeout=_BUSY_SECONDS, uri=True)
        ) as base:
            base.execute("BEGIN IMMEDIATE")
            base.rollback()
    except sqlite3.Error as error:
        raise ConfigurationError(f"{path} cannot be opened for writing: {error}") from error
