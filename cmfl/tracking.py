"""Experiment trackers: a run's rounds in MLflow, TensorBoard and Weights & Biases.

A run is logged while it is played, or later from its own files. A tracker that fails is dropped
with one warning: the run and the other trackers go on.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import sqlite3
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from ledger.audit.engine import AuditOptions, audit
from ledger.audit.report import AuditReport
from ledger.chain.contract.deploy import connect
from ledger.chain.contract.ledger import read_run_manifest
from ledger.chain.ports import ChainReader
from ledger.claims import recorded_settings, whole_rows
from ledger.io.extras import missing_extra
from ledger.io.home import Home, naming
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import CmflError, ConfigurationError
from ledger.storage.blobs import BlobReader

if TYPE_CHECKING:
    from clients.configuration.schema import TrackSection
    from clients.runs.open_run import OpenedRun

NOT_AUDITED = "not audited"
DATABASE = "mlflow.db"
KEY, HEAD = "cmfl.key", "cmfl.head"

_PACKAGES = {"mlflow": "mlflow.tracking", "tensorboard": "tensorboardX", "wandb": "wandb"}
_ENVIRONMENT = {
    "WANDB_ERROR_REPORTING": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    # A server that is down stops one call for seconds, not for the minutes that MLflow would wait.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}
_EVENTS = "events.out.tfevents"
_MOST_VALUES = 1000
_MOST_NAMED = 100
_LONGEST = 6000  # MLflow's bounds: metrics and parameters in a call, and characters of a parameter
_SQLITE = "sqlite:///"
_BUSY_SECONDS = 5.0
_NOT_IN_NAMES = re.compile(r"[^\w./ -]")


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """A run as trackers describe it; the `key`, 16 hex digits, is its own in every tracker."""

    name: str
    key: str
    parameters: Mapping[str, str]
    tags: Mapping[str, str]

    @property
    def title(self) -> str:
        return f"{self.name}-{self.key[:8]}"


@dataclass(frozen=True, slots=True)
class TrackedRow:
    """One round: the step, the 0x-hex head after it, and its numbers by name."""

    round: int
    head: str
    metrics: Mapping[str, float]


def described_run(home: Path, name: str, section: TrackSection) -> TrackedRun:
    """Return what trackers are told of a run (CmflError: a file of the run is damaged)."""
    paths = Home(home).run(name)
    parameters = {
        key: text if text[:1] != '"' else json.loads(text)
        for key, text in recorded_settings(paths).items()
        if not key.startswith("track.")
    }
    tags = {"run": name, "link": section.link or str(home.absolute())}
    identity = f"memory {paths.path.absolute()}"
    if paths.manifest.exists():
        manifest = read_run_manifest(paths)
        # Chains of equal simulations and restarted chains have equal ids and addresses.
        identity = f"{manifest.genesis_hash} {manifest.address} {manifest.salt}"
        tags |= {
            "contract": manifest.address,
            "chain_id": str(manifest.chain_id),
            "run_document": manifest.config,
        }
    return TrackedRun(name, sha256(identity.encode()).hex()[:16], parameters, prefixed(tags))


def tracked_row(values: Mapping[str, Any]) -> TrackedRow:
    """Return a `RoundMetrics` as numbers; `views` is the slower vote's, from 1."""
    metrics: dict[str, float] = {}
    for name, value in values.items():
        if value is None or name in {"round", "head"}:
            continue
        if name == "client_accuracy":
            known = [each for each in value if each is not None]
            if known:
                metrics["client_accuracy_mean"] = sum(known) / len(known)
                metrics["client_accuracy_min"] = min(known)
        elif name == "views":
            metrics[name] = float(max(value) + 1)
        else:
            metrics[name] = float(len(value) if isinstance(value, list | tuple) else value)
    return TrackedRow(int(values["round"]), str(values["head"]), metrics)


def prefixed(tags: Mapping[str, str]) -> dict[str, str]:
    """Return tags under names that no other tool uses."""
    return {f"cmfl.{key}": value for key, value in tags.items()}


def require_apart(section: TrackSection, home: Path) -> None:
    """Reject a tracker's folder among the runs or blobs of a home, which would take it for one."""
    for name, place in section.used.items():
        for own in (Home(home).runs, Home(home).blobs):
            with naming(f"track.{name} = {place!r}", ValueError):
                is_own = "://" not in place and Path(place).resolve().is_relative_to(own.resolve())
            if is_own:
                raise ConfigurationError(f"track.{name} = {place}: {own} is the home's own folder")


class TrackingSession:
    """The trackers in use; one that fails is dropped, with one warning."""

    def __init__(self, section: TrackSection, warn: Callable[[str], None]) -> None:
        """Import the packages in use: a missing one is named at once, by a call of `warn`."""
        self.warnings: list[str] = []
        self.places: dict[str, str] = {}
        self._warn = warn
        self._section = section
        self._used = dict(section.used)
        self._sinks: dict[str, Any] = {}
        for name in section.used:
            with self._guarded(name):
                for variable, value in _ENVIRONMENT.items():
                    os.environ.setdefault(variable, value)
                import_module(_PACKAGES[name])

    def open(self, run: TrackedRun, rows: Sequence[TrackedRow]) -> None:
        for name, place in [*self._used.items()]:
            with self._guarded(name):
                self._sinks[name] = SINKS[name](place, self._section.project, run, rows)

    def log(self, row: TrackedRow) -> None:
        for name, sink in [*self._sinks.items()]:
            with self._guarded(name):
                sink.log(row)

    def close(self, tags: Mapping[str, str], model: Path | None) -> None:
        for name, sink in [*self._sinks.items()]:
            with self._guarded(name):
                self.places[name] = sink.close(tags, model)

    def abort(self) -> None:
        for name, sink in [*self._sinks.items()]:
            with self._guarded(name):
                sink.abort()

    @contextmanager
    def _guarded(self, name: str) -> Iterator[None]:
        """Drop a tracker that fails, with a warning; hide its own warnings."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        except Exception as error:  # noqa: BLE001 - a run outlives whatever a tracker raises
            self._used.pop(name, None)
            self._sinks.pop(name, None)
            first = next(iter(str(error).splitlines()), "")
            reason = missing_extra(error) or f"{type(error).__name__}: {first}"[:200]
            self.warnings.append(f"track.{name}: {reason}; it gets nothing more")
            self._warn(f"warning: {self.warnings[-1]}")


@contextmanager
def logged(
    opened: OpenedRun,
    home: Path,
    session: TrackingSession,
    verdict: Callable[[], str] = lambda: NOT_AUDITED,
) -> Iterator[OpenedRun]:
    """Yield a run that logs its rounds and its end, with the audit's outcome from `verdict`."""
    section, paths = opened.configuration.track, opened.folder.paths
    if not section.used:
        yield opened
        return
    rows = [tracked_row(values) for _, values in whole_rows(paths)]
    session.open(described_run(home, paths.name, section), rows)
    try:
        yield replace(opened, on_row=lambda row: session.log(tracked_row(asdict(row))))
        outcome = verdict() if section.audit else NOT_AUDITED
    except BaseException:
        session.abort()
        raise
    state, stop = opened.ledger.state(), opened.stop_watch().stop
    tags = {"head": f"0x{state.head.hex()}", "audit": outcome}
    if stop is not None:
        tags["early_stop"] = stop.sentence
    session.close(prefixed(tags), paths.model if section.model else None)


def audited_in_place(opened: OpenedRun, chain: ChainReader, blobs: BlobReader) -> AuditReport:
    """Audit a run whose chain is open."""
    from clients.configuration.parsing import rule_sources

    assert opened.manifest is not None, "a run on a chain has a manifest"
    options = AuditOptions(rules=rule_sources(opened.configuration))
    return audit(connect(chain, opened.manifest), blobs, options)


def in_words(make_audit: Callable[[], AuditReport]) -> str:
    """Return an audit's outcome and how many rounds it is about, or why there was none."""
    try:
        report = make_audit()
    except (CmflError, OSError) as error:
        return f"not checkable: {error}"
    return f"{report.outcome}, {report.rounds} rounds"


class TensorboardSink:
    """A folder for each run: scalars by round, settings and tags as text, and the model.

    Events are written at once, by the calling thread: tensorboardX's own queue waits without end
    on a full disk. An event file cannot be corrected, so each record is written from its start.
    """

    def __init__(
        self, place: str, _project: str, run: TrackedRun, rows: Sequence[TrackedRow]
    ) -> None:
        from tensorboardX import RecordWriter

        self._folder = Path(place) / run.title
        self._folder.mkdir(parents=True, exist_ok=True)
        for earlier in self._folder.glob(f"{_EVENTS}.*"):
            earlier.unlink()
        # TensorBoard reads the files of a folder in the order of their names.
        self._writer = RecordWriter(str(self._folder / f"{_EVENTS}.{time.time():.0f}.cmfl"))
        self._add(file_version="brain.Event:2")
        self._write_text("settings", run.parameters)
        self._write_text("run", run.tags)
        self.log(*rows)

    def log(self, *rows: TrackedRow) -> None:
        from tensorboardX.summary import scalar

        for row in rows:
            for name, value in row.metrics.items():
                self._add(summary=scalar(name, value), step=row.round)
        try:
            self._writer.flush()
        except OSError:
            with suppress(OSError):
                self._writer.close()
            raise

    def close(self, tags: Mapping[str, str], model: Path | None) -> str:
        self._write_text("end", tags)
        self._writer.close()
        if model is not None:
            shutil.copyfile(model, self._folder / model.name)
        return str(self._folder)

    def abort(self) -> None:
        self._writer.close()

    def _write_text(self, name: str, values: Mapping[str, str]) -> None:
        from tensorboardX.summary import text

        lines = [f"| {key} | {value.replace('|', '&#124;')} |" for key, value in values.items()]
        self._add(summary=text(name, "\n".join(["| | |", "| --- | --- |", *lines])), step=0)

    def _add(self, **event: Any) -> None:
        from tensorboardX.proto.event_pb2 import Event

        self._writer.write(Event(wall_time=time.time(), **event).SerializeToString())


class WandbSink:
    """An offline run for `wandb sync`; it takes no more rows, so a resumed one is rewritten."""

    def __init__(
        self, place: str, project: str, run: TrackedRun, rows: Sequence[TrackedRow]
    ) -> None:
        import wandb

        Path(place).mkdir(parents=True, exist_ok=True)
        for earlier in (Path(place) / "wandb").glob(f"offline-run-*-{run.key}"):
            shutil.rmtree(earlier)
        quiet = {"silent": True, "console": "off", "disable_git": True, "save_code": False}
        private = ("disable_stats", "disable_meta", "disable_machine_info")
        options = {f"x_{name}": True for name in private} | {"x_save_requirements": False}
        self._wandb: Any = wandb
        self._run: Any = wandb.init(
            project=project,
            dir=place,
            id=run.key,
            name=run.title,
            mode="offline",
            reinit="create_new",
            config={**run.parameters, **run.tags},
            settings=wandb.Settings(**quiet, **options),
        )
        self.log(*rows)

    def log(self, *rows: TrackedRow) -> None:
        for row in rows:
            self._run.log(dict(row.metrics), step=row.round)

    def close(self, tags: Mapping[str, str], model: Path | None) -> str:
        self._run.summary.update(dict(tags))
        if model is not None:
            name = f"model-{self._run.name}"[:100]
            artifact = self._wandb.Artifact(name, type="model", metadata=dict(tags))
            artifact.add_file(str(model))
            self._run.log_artifact(artifact)
        folder = Path(self._run.dir).parent
        self._run.finish()
        # W&B writes it in a process of its own, and reports no error of that.
        if not (folder / f"run-{self._run.id}.wandb").exists():
            raise FileNotFoundError(f"{folder} has no run-{self._run.id}.wandb")
        return str(folder)

    def abort(self) -> None:
        self._run.finish(exit_code=1)


class MlflowSink:
    """A run of an MLflow server, or of a folder with a SQLite database: it refuses plain files."""

    def __init__(
        self, place: str, project: str, run: TrackedRun, rows: Sequence[TrackedRow]
    ) -> None:
        from mlflow.tracking import MlflowClient

        for name in ("mlflow", "alembic"):
            logging.getLogger(name).setLevel(logging.WARNING)
        folder = None if "://" in place else Path(place).absolute()
        self._uri = place if folder is None else f"{_SQLITE}{folder}/{DATABASE}"
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            make_database(folder)
        _require_database(self._uri)
        self._client: Any = MlflowClient(tracking_uri=self._uri)
        self._run_id = ""
        known = self._client.get_experiment_by_name(project)
        if known is None:
            artifacts = None if folder is None else (folder / "artifacts").as_uri()
            experiment = str(self._client.create_experiment(project, artifact_location=artifacts))
        else:
            experiment = str(known.experiment_id)
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
            self.log(*new[start : start + most])

    def log(self, *rows: TrackedRow) -> None:
        from mlflow.entities import Metric, RunTag

        now = int(1000 * time.time())
        metrics = [
            Metric(name, x, now, row.round) for row in rows for name, x in row.metrics.items()
        ]
        tags = [RunTag(HEAD, row.head) for row in rows[-1:]]
        self._client.log_batch(self._run_id, metrics=metrics, tags=tags)

    def close(self, tags: Mapping[str, str], model: Path | None) -> str:
        from mlflow.entities import RunTag

        self._client.log_batch(self._run_id, tags=[RunTag(*tag) for tag in tags.items()])
        if model is not None:
            self._client.log_artifact(self._run_id, str(model))
        self._client.set_terminated(self._run_id, "FINISHED")
        return f"{self._uri}, run {self._run_id}"

    def abort(self) -> None:
        self._client.set_terminated(self._run_id, "KILLED")

    def _resumed(self, experiment: str, run: TrackedRun, rows: Sequence[TrackedRow]) -> int | None:
        known = self._client.search_runs([experiment], f"tags.`{KEY}` = '{run.key}'", max_results=1)
        if not known:
            return None
        self._run_id = known[0].info.run_id
        # Each round has this metric.
        steps = [m.step for m in self._client.get_metric_history(self._run_id, "decided")]
        heads = {row.head for row in rows}
        head = known[0].data.tags.get(HEAD)
        if (head is not None and head not in heads) or max(steps, default=0) > len(rows):
            # The chain was taken back. MLflow can restore what it deletes.
            self._client.delete_run(self._run_id)
            return None
        # A process may have been killed after it made the record, and before it logged all of them.
        self._log_parameters(run.parameters, known[0].data.params)
        self._client.update_run(self._run_id, status="RUNNING")
        return max(steps, default=0)

    def _log_parameters(self, parameters: Mapping[str, str], logged: Collection[str] = ()) -> None:
        from mlflow.entities import Param

        values = {_NOT_IN_NAMES.sub("_", name): value for name, value in parameters.items()}
        params = [Param(n, value[:_LONGEST]) for n, value in values.items() if n not in logged]
        for start in range(0, len(params), _MOST_NAMED):
            self._client.log_batch(self._run_id, params=params[start : start + _MOST_NAMED])


SINKS = {"mlflow": MlflowSink, "tensorboard": TensorboardSink, "wandb": WandbSink}
"""The record of a run in one tracker, made with all rounds so far.

`log` adds rounds, `close` ends the record and returns where it is, `abort` leaves it open.
"""


def make_database(folder: Path) -> None:
    """Make MLflow's database in a folder, which takes seconds, and put it in place when whole."""
    from mlflow.tracking import MlflowClient

    if not (folder / DATABASE).exists():
        with TemporaryDirectory(dir=folder) as made:
            database = Path(made).absolute() / DATABASE
            MlflowClient(f"{_SQLITE}{database}").search_experiments(max_results=1)
            database.replace(folder / DATABASE)


def _require_database(uri: str) -> None:
    """Require that a database in a file can be written: MLflow would retry for minutes."""
    if not uri.startswith(_SQLITE):
        return
    path = Path(uri.removeprefix(_SQLITE).partition("?")[0]).absolute()
    if not path.exists() and path.parent.is_dir():
        return  # MLflow makes it
    place = f"{path.as_uri()}?mode=rw"
    with (
        naming(f"{path} cannot be opened for writing", sqlite3.Error),
        closing(sqlite3.connect(place, timeout=_BUSY_SECONDS, uri=True)) as base,
    ):
        base.execute("BEGIN IMMEDIATE")
        base.rollback()
