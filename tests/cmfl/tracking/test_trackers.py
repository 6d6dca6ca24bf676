"""Runs in MLflow, TensorBoard and W&B, read back with each one's own reader; nothing is sent."""

from __future__ import annotations

import json
import resource
import shutil
import sqlite3
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from clients.configuration.loading import load, shared_configuration
from clients.configuration.schema import TrackSection
from clients.runs.metrics import RoundMetrics
from clients.runs.open_run import open_run
from cmfl import tracking
from cmfl.tracking import (
    DATABASE,
    NOT_AUDITED,
    MlflowSink,
    TrackedRow,
    TrackedRun,
    TrackingSession,
    logged,
    make_database,
    tracked_row,
)
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.io.home import Home
from ledger.protocol.errors import ConfigurationError
from ledger.storage.blobs import FolderBlobs
from tests.clients.experiments.minis import plan_of
from tests.cmfl.commands.conftest import cmfl as command
from tests.cmfl.commands.conftest import refusal, settings_of, succeeds
from tests.cmfl.tracking.offline_run import OfflineRun, read_offline_run

ROUNDS = 3
RUN = TrackedRun("run", "0123456789abcdef", {"seed": "0"}, {"cmfl.run": "run"})


class CutError(BaseException):
    """What ends a session after a round."""


def rows_of(*heads: str) -> list[TrackedRow]:
    return [
        TrackedRow(number, head, {"decided": 1.0, "accuracy": number / 8})
        for number, head in enumerate(heads, 1)
    ]


def folders(place: Path) -> dict[str, str]:
    return {name: str(place / name) for name in ("mlflow", "tensorboard", "wandb")}


def metrics_file(home: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Home(home).run("run").metrics.read_text().splitlines()]


def mlflow_runs(place: Path) -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mlflow.tracking import MlflowClient

        client = MlflowClient(f"sqlite:///{place}/mlflow.db")
        experiments = [each.experiment_id for each in client.search_experiments()]
        return [(client, each) for each in client.search_runs(experiments)]


def mlflow_steps(place: Path, metric: str) -> list[tuple[int, float]]:
    ((client, run),) = mlflow_runs(place)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        history = client.get_metric_history(run.info.run_id, metric)
    return sorted((each.step, each.value) for each in history)


def tensorboard_events(place: Path) -> Any:
    """Return the events of the only run of a folder, by TensorBoard's own reader."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        (folder,) = place.iterdir()
        return EventAccumulator(str(folder)).Reload()


def tensorboard_steps(place: Path, metric: str) -> list[tuple[int, float]]:
    return [(each.step, each.value) for each in tensorboard_events(place).Scalars(metric)]


def tensorboard_text(place: Path, name: str) -> str:
    (tensor,) = tensorboard_events(place).Tensors(f"{name}/text_summary")
    return str(tensor.tensor_proto.string_val[0].decode())


def offline_run(place: Path) -> OfflineRun:
    (file,) = place.rglob("*.wandb")
    return read_offline_run(file)


@pytest.fixture(scope="module", autouse=True)
def _no_process_left() -> Iterator[None]:
    yield
    import wandb

    wandb.teardown()


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a database without runs, made where an attempt to make it was interrupted before.

    MLflow makes it by as many steps as it has had versions: once for all tests.
    """

    def interrupted(*_: object) -> None:
        raise CutError

    folder = tmp_path_factory.mktemp("database")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("mlflow.store.db.utils._upgrade_db", interrupted)
            with pytest.raises(CutError):
                MlflowSink(str(folder), "project", RUN, rows_of("0x01"))
        assert not [*folder.iterdir()], "a half database"
        make_database(folder)
    (path,) = folder.iterdir()
    return path


def with_database(place: Path, database: Path) -> Path:
    """Return a folder for MLflow that has been used before, and has no run."""
    place.mkdir(parents=True)
    shutil.copy(database, place)
    return place


@pytest.fixture(scope="module")
def tracked(tmp_path_factory: pytest.TempPathFactory, database: Path) -> Path:
    """Return the folder of a run's home, and of what three trackers got of it."""
    place = tmp_path_factory.mktemp("tracked")
    with_database(place / "mlflow", database)
    settings = [f"track.{name}={folder}" for name, folder in folders(place).items()]
    settings += ["track.project=mine", f"protocol.rounds={ROUNDS}", "evaluation.every=2"]
    played = succeeds(
        "run", "--preset", "smoke", "--home", place / "home", *settings_of(*settings), "--json"
    ).json
    assert list(played["tracked"]) == ["mlflow", "tensorboard", "wandb"]
    return place


def expected_tags(place: Path) -> dict[str, str]:
    manifest = json.loads(Home(place / "home").run("run").manifest.read_text())
    return {
        "cmfl.run": "run",
        "cmfl.link": str(place / "home"),
        "cmfl.contract": manifest["address"],
        "cmfl.chain_id": str(manifest["chain_id"]),
        "cmfl.run_document": manifest["config"],
        "cmfl.head": metrics_file(place / "home")[-1]["head"],
        "cmfl.audit": f"passed, {ROUNDS} rounds",
    }


def measured(place: Path, metric: str) -> list[tuple[int, float]]:
    rows = metrics_file(place / "home")
    return [(row["round"], row[metric]) for row in rows if row[metric] is not None]


def test_mlflow_has_parameters_rounds_tags_and_model(tracked: Path) -> None:
    ((_, run),) = mlflow_runs(tracked / "mlflow")
    assert (run.info.run_name[:4], run.info.status) == ("run-", "FINISHED")
    assert run.data.params["protocol.rounds"] == str(ROUNDS)
    assert run.data.params["data.name"] == "digits"
    assert not [name for name in run.data.params if name.startswith("track.")]
    assert expected_tags(tracked).items() <= run.data.tags.items()
    for metric in ("accuracy", "loss"):
        assert mlflow_steps(tracked / "mlflow", metric) == measured(tracked, metric)
    accepted = [(row["round"], len(row["accepted"])) for row in metrics_file(tracked / "home")]
    assert mlflow_steps(tracked / "mlflow", "accepted") == accepted
    (model,) = (tracked / "mlflow" / "artifacts").rglob("model.safetensors")
    assert model.read_bytes() == Home(tracked / "home").run("run").model.read_bytes()


def test_tensorboard_has_parameters_rounds_tags_and_model(tracked: Path) -> None:
    place = tracked / "tensorboard"
    steps, expected = tensorboard_steps(place, "accuracy"), measured(tracked, "accuracy")
    assert [step for step, _ in steps] == [number for number, _ in expected]
    assert [value for _, value in steps] == pytest.approx([value for _, value in expected])
    assert f"| protocol.rounds | {ROUNDS} |" in tensorboard_text(place, "settings")
    text = tensorboard_text(place, "run") + tensorboard_text(place, "end")
    for name, value in expected_tags(tracked).items():
        assert f"| {name} | {value} |" in text
    (model,) = place.rglob("model.safetensors")
    assert model.read_bytes() == Home(tracked / "home").run("run").model.read_bytes()


def test_wandb_has_parameters_rounds_tags_and_model(tracked: Path) -> None:
    run = offline_run(tracked / "wandb")
    assert (run.project, len(run.run_id)) == ("mine", 16)
    assert run.config["protocol.rounds"] == str(ROUNDS)
    rows = [(row["_step"], row["accuracy"]) for row in run.history if "accuracy" in row]
    assert rows == measured(tracked, "accuracy")
    assert [row["_step"] for row in run.history] == [1, 2, 3]
    assert expected_tags(tracked).items() <= (run.config | run.summary).items()
    assert run.artifacts == [f"model-run-{run.run_id[:8]}"]


def test_a_recorded_run_is_logged_later_and_nothing_twice(
    tracked: Path, tmp_path: Path, database: Path
) -> None:
    with_database(tmp_path / "mlflow", database)
    settings = settings_of(*(f"track.{each}={place}" for each, place in folders(tmp_path).items()))
    link = ("--set", "track.link=https://service.example/run")
    for _ in range(2):
        said = succeeds("track", "--home", tracked / "home", *settings, *link).out
        assert said.count("3 rounds of run are tracked by ") == 3
        __import__("wandb").teardown()  # as at the end of each command's process
    for metric in ("accuracy", "loss"):
        assert mlflow_steps(tmp_path / "mlflow", metric) == measured(tracked, metric)
    assert [step for step, _ in tensorboard_steps(tmp_path / "tensorboard", "decided")] == [1, 2, 3]
    run = offline_run(tmp_path / "wandb")
    assert [row["_step"] for row in run.history] == [1, 2, 3]
    assert run.config["cmfl.link"] == "https://service.example/run"
    assert run.summary["cmfl.audit"] == f"passed, {ROUNDS} rounds"


def test_a_run_of_others_has_what_the_chain_knows(tracked: Path, tmp_path: Path) -> None:
    home = Path(shutil.copytree(tracked / "home", tmp_path / "home"))
    Home(home).run("run").metrics.unlink()
    place = ("--set", f"track.tensorboard={tmp_path / 'tb'}", "--set", "track.mlflow=")
    succeeds("track", "--home", home, *place, "--set", "track.wandb=", "--set", "track.audit=false")
    rows = metrics_file(tracked / "home")
    assert tensorboard_steps(tmp_path / "tb", "accepted") == [
        (row["round"], len(row["accepted"])) for row in rows
    ]
    assert tensorboard_events(tmp_path / "tb").Tags()["scalars"] == ["decided", "accepted", "views"]
    assert "| cmfl.audit | not audited |" in tensorboard_text(tmp_path / "tb", "end")


@contextmanager
def session_of(
    place: Path, cut: int | None, verdict: Callable[[], str] = lambda: NOT_AUDITED
) -> Iterator[list[str]]:
    """Play a tracked run on, to its end or until a round, and yield the warnings."""
    tracks = [f"track.{each}={folder}" for each, folder in folders(place).items()]
    configuration = load("smoke", settings=(*tracks, f"protocol.rounds={ROUNDS}"))
    said: list[str] = []

    def watch(row: RoundMetrics) -> None:
        if row.round == cut:
            raise CutError

    home = place / "home"
    home.mkdir(exist_ok=True)
    with (
        suppress(CutError),
        EmbeddedChain.open_or_create(home / "chain.sqlite") as chain,
        open_run(home, "run", configuration, chain, FolderBlobs(home / "blobs")) as opened,
        logged(opened, home, TrackingSession(configuration.track, said.append), verdict) as run,
    ):
        run.go_on(watch)
    __import__("wandb").teardown()  # as at the end of a process: the next one goes on
    yield said


def test_a_run_that_is_resumed_is_logged_once(tmp_path: Path, database: Path) -> None:
    with_database(tmp_path / "mlflow", database)
    with session_of(tmp_path, cut=2) as said:
        assert said == []
        ((_, killed),) = mlflow_runs(tmp_path / "mlflow")
        assert killed.info.status == "KILLED"
    with session_of(tmp_path, cut=None) as said:
        assert said == []
    ((_, run),) = mlflow_runs(tmp_path / "mlflow")
    assert (run.info.run_id, run.info.status) == (killed.info.run_id, "FINISHED")
    rows = measured(tmp_path, "accuracy")
    assert [number for number, _ in rows] == [1, 2, 3]
    assert mlflow_steps(tmp_path / "mlflow", "accuracy") == rows
    steps = tensorboard_steps(tmp_path / "tensorboard", "accuracy")
    assert [step for step, _ in steps] == [1, 2, 3]
    history = offline_run(tmp_path / "wandb").history
    assert [(row["_step"], row["accuracy"]) for row in history] == rows


@pytest.mark.parametrize("content", ["garbage", "folder", "locked"])
def test_a_database_that_cannot_be_opened_is_one_warning(
    tmp_path: Path, database: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    monkeypatch.setattr(tracking, "_BUSY_SECONDS", 0.01)
    place = with_database(tmp_path / "mlflow", database)
    path = place / DATABASE
    if content != "locked":
        path.unlink()
    if content == "folder":
        path.mkdir()
    if content == "garbage":
        path.write_bytes(b"no database" * 1000)
    said: list[str] = []
    with closing(sqlite3.connect(":memory:" if content != "locked" else path)) as other:
        other.execute("BEGIN IMMEDIATE")
        for named in str(place), f"sqlite:///{path}":
            with patch("mlflow.tracking.MlflowClient.__init__", side_effect=AssertionError):
                session = TrackingSession(TrackSection(mlflow=named), said.append)
                session.open(RUN, rows_of("0x01"))
                session.close({}, None)
    assert len(said) == 2
    for line in said:
        assert line.startswith(f"warning: track.mlflow: ConfigurationError: {path} cannot be")


def test_rounds_that_were_taken_back_are_not_mixed_with_new_ones(
    tmp_path: Path, database: Path
) -> None:
    section = TrackSection(mlflow=str(with_database(tmp_path / "mlflow", database)))
    for heads in (("0x01", "0x02"), ("0x01", "0x03", "0x04")):
        said: list[str] = []
        session = TrackingSession(section, said.append)
        session.open(RUN, rows_of(*heads))
        session.close({}, None)
        assert said == []
    assert [step for step, _ in mlflow_steps(tmp_path / "mlflow", "decided")] == [1, 2, 3]
    ((_, run),) = mlflow_runs(tmp_path / "mlflow")
    assert run.data.tags["cmfl.head"] == "0x04"


def test_a_failing_tracker_fails_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is down, a folder that is a file, and a package that is not there."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setitem(sys.modules, "wandb", None)
    (tmp_path / "file").write_text("")
    settings = (
        "track.mlflow=http://127.0.0.1:9",
        f"track.tensorboard={tmp_path / 'file'}",
        f"track.wandb={tmp_path / 'wandb'}",
        "protocol.rounds=2",
        "machine.ledger=memory",
    )
    home = tmp_path / "home"
    played = command("run", "--preset", "smoke", "--home", home, *settings_of(*settings), "--json")
    assert played.code == 0
    lines = played.err.splitlines()
    assert [line.partition(": ")[2].split(":")[1].strip() for line in lines] == [
        "track.wandb", "track.mlflow", "track.tensorboard",
    ]  # fmt: skip
    assert "this needs the extra [wandb]: pip install " in lines[0]
    assert "tracked" not in played.json
    assert [row["round"] for row in metrics_file(home)] == [1, 2]


def test_a_full_disk_ends_a_record_and_nothing_else(tmp_path: Path) -> None:
    said: list[str] = []
    session = TrackingSession(TrackSection(tensorboard=str(tmp_path)), said.append)
    session.open(RUN, rows_of("0x01"))
    (file,) = tmp_path.rglob("events.out.tfevents.*")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size, limits[1]))
    try:
        session.log(rows_of("0x01", "0x02")[1])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    session.log(rows_of("0x01", "0x02", "0x03")[2])
    session.close({}, None)
    assert len(said) == 1
    assert said[0].startswith("warning: track.tensorboard: OSError: ")
    assert session.places == {}


def test_a_row_becomes_numbers() -> None:
    measured = {"decided": True, "accuracy": 0.5, "loss": None, "views": [0, 2]}
    lists = {"client_accuracy": [0.25, None, 0.75], "accepted": [3, 1]}
    row = tracked_row({"round": 4, "head": "0x01", **measured, **lists})
    assert (row.round, row.head) == (4, "0x01")
    numbers = {"decided": 1.0, "accuracy": 0.5, "accepted": 2.0, "views": 3.0}
    assert row.metrics == numbers | {"client_accuracy_mean": 0.5, "client_accuracy_min": 0.25}


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (('track.tensorboard="\\u0000"',), "track.tensorboard = '\\x00': embedded"),
        (("track.project=mine",), "track: project is set, but none of track.mlflow"),
        (("track.mlflow=http://me:secret@host",), "track.mlflow: a URL must not contain a user"),
        (("track.tensorboard=s3://bucket",), "track.tensorboard: must be a folder, not a URL"),
        (("track.comet=w",), "track.comet: there is no such setting"),
    ],
)
def test_wrong_settings_are_refused(
    tmp_path: Path, tracked: Path, settings: tuple[str, ...], named: str
) -> None:
    chosen = settings_of(*settings)
    said = refusal("run", "--preset", "smoke", "--home", tmp_path / "home", *chosen)
    assert said.startswith(named)
    assert "secret" not in said
    off = settings_of("track.mlflow=", "track.tensorboard=", "track.wandb=", "track.project=")
    assert refusal("track", "--home", tracked / "home", *off, *chosen).startswith(named)


def test_track_needs_a_tracker_and_takes_no_other_setting(tracked: Path) -> None:
    off = settings_of("track.mlflow=", "track.tensorboard=", "track.wandb=", "track.project=")
    said = refusal("track", "--home", tracked / "home", *off)
    assert said.startswith("no tracker is configured")
    other = refusal("track", "--home", tracked / "home", "--set", "protocol.rounds=3")
    assert other.startswith("--set protocol.rounds=3: only track.KEY=VALUE")


def test_no_tracker_writes_among_runs_and_blobs(tracked: Path, tmp_path: Path) -> None:
    for ledger in ("chain", "memory"):
        chosen = settings_of(
            f"track.wandb={tmp_path / 'home/runs/run'}", f"machine.ledger={ledger}"
        )
        said = refusal("run", "--preset", "smoke", "--home", tmp_path / "home", *chosen)
        assert said.startswith("track.wandb = ")
    assert not (tmp_path / "home").exists()
    chosen = settings_of(f"track.tensorboard={tracked / 'home/runs/run'}")
    assert refusal("track", "--home", tracked / "home", *chosen).startswith("track.tensorboard = ")


def test_trackers_change_no_document_and_no_digest(tracked: Path) -> None:
    plain = load("smoke", settings=(f"protocol.rounds={ROUNDS}", "evaluation.every=2"))
    path = Home(tracked / "home").run("run").configuration
    recorded = load(path=path)
    assert recorded.track.used == folders(tracked)
    assert recorded.recorded() == plain.on_path(recorded.training.path).recorded()
    assert "track" not in plain.to_toml()
    listed = succeeds("runs", "show", "run", "--home", tracked / "home", "--json").json
    manifest = json.loads(Home(tracked / "home").run("run").manifest.read_text())
    assert listed["configuration"] == manifest["configuration"]


def test_runs_of_several_owners_are_not_tracked_live(tmp_path: Path) -> None:
    settings = (f"track.wandb={tmp_path}",)
    with pytest.raises(ConfigurationError, match="track: applies to `cmfl run` only"):
        shared_configuration("smoke", settings=settings)
    with pytest.raises(ConfigurationError, match="track: applies to `cmfl run` only"):
        plan_of(("settings = [", f'settings = ["{settings[0]}", '))
