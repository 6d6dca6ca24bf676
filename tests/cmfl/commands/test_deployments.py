"""What doctor and runs report of each deployment that the documents describe."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledger.actors.journal import FileJournal
from ledger.chain.embedded.reader import EmbeddedReader
from ledger.chain.rpc.server import RpcServer
from ledger.io.home import Home
from ledger.storage.blobs import FolderBlobs
from tests.cmfl.commands.conftest import cmfl, settings_of, succeeds

PLAYED, ROUNDS = 2, 5
UNREAD = "is on chain"


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the home of a run of which two of five rounds were played; tests take copies."""
    path = tmp_path_factory.mktemp("played") / "home"
    stop = settings_of("early_stop.target=1.0", "early_stop.patience=1", "early_stop.min_delta=1.0")
    size = settings_of(f"protocol.rounds={ROUNDS}")
    succeeds("run", "--preset", "smoke", "--home", path, *size, *stop, "--json")
    return path


@pytest.fixture
def played(stopped: Path, tmp_path: Path) -> Path:
    return shutil.copytree(stopped, tmp_path / "home")


@pytest.fixture
def coordinator(played: Path) -> Path:
    """Return the home of a deployment and its store; workers elsewhere play the run."""
    run = Home(played).run("run")
    for path in (run.journal, run.metrics, run.model, run.environments):
        path.unlink()
    return played


@pytest.fixture
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[object]]:
    """Return the options that name a node to which the chain of a home has been moved."""
    home = request.getfixturevalue(getattr(request, "param", "coordinator"))
    file = (home / "chain.sqlite").rename(tmp_path / "node.sqlite")
    (home / "chain.sqlite.head").unlink()
    with EmbeddedReader.open(file) as chain, RpcServer(chain) as server:
        yield ["--rpc-url", server.url, "--chain-id", chain.chain_id]


def checks(home: Path, *options: object, code: int = 0) -> dict[str, str]:
    """Return what doctor finds, by check; only failed checks where the exit code is 1."""
    result = cmfl("doctor", "--home", home, *options, "--json")
    assert (result.code, result.err) == (code, ""), result
    return {row["check"]: row["found"] for row in result.json if row["ok"] is (code == 0)}


def listed(home: Path, *options: object) -> dict[str, Any]:
    """Return the only run of a home, as `runs list` and `runs show` agree on it."""
    (row,) = succeeds("runs", "list", "--home", home, *options, "--json").json
    shown = succeeds("runs", "show", "run", "--home", home, *options, "--json").json
    assert {name: shown[name] for name in row} == row
    return dict(row)


@pytest.fixture(scope="module")
def head(stopped: Path) -> str:
    return str(json.loads(Home(stopped).run("run").metrics.read_text().splitlines()[-1])["head"])


def without_later_models(home: Path) -> None:
    """Remove all blobs but those of the deployment, as where workers publish in another store."""
    store, run = FolderBlobs(Home(home).blobs), Home(home).run("run")
    with EmbeddedReader.open(home / "chain.sqlite") as chain:
        from ledger.chain.contract.deploy import connect
        from ledger.chain.contract.ledger import read_run_manifest

        deployment = connect(chain, read_run_manifest(run)).deployment()
    kept = {deployment.config.hex(), deployment.model.hex()}
    for path in store.folder.glob("*/*"):
        if path.name not in kept:
            path.unlink()


def test_a_simulation_on_the_own_chain_is_healthy(played: Path, head: str) -> None:
    assert checks(played)["run run"].endswith(f"in round {PLAYED + 1} of {ROUNDS}")
    row = listed(played)
    assert (row["rounds"], row["of"], row["head"]) == (PLAYED, ROUNDS, head)
    assert row["unread"] is None


def test_a_simulation_without_its_journal_is_broken(played: Path) -> None:
    Home(played).run("run").journal.unlink()
    for kept in ("metrics.jsonl", "model.safetensors", "environments.jsonl"):
        copy = shutil.copytree(played, played.parent / kept)
        for name in {"metrics.jsonl", "model.safetensors", "environments.jsonl"} - {kept}:
            (copy / "runs" / "run" / name).unlink()
        assert "start another run" in checks(copy, code=1)["run run"], kept


@pytest.mark.parametrize("node", ["played"], indirect=True)
def test_rows_that_the_chain_contradicts_are_broken(node: list[object], tmp_path: Path) -> None:
    home = tmp_path / "home"
    metrics = Home(home).run("run").metrics
    lines = metrics.read_text().splitlines()
    later = json.loads(lines[-1]) | {"round": PLAYED + 1, "head": f"0x{'5c' * 32}"}
    metrics.write_text("\n".join([*lines, json.dumps(later), ""]))
    found = checks(home, *node, code=1)["run run"]
    assert f"after round {PLAYED + 1}, and that round has not ended on the chain" in found
    metrics.write_text("\n".join([lines[0], "{damaged", ""]))
    assert "run run" in checks(home, *node), "a resume makes damaged rows again"


def test_a_run_that_workers_elsewhere_play_is_healthy(coordinator: Path, head: str) -> None:
    found = checks(coordinator)
    assert "its workers run it" in found["run run"]
    assert f"in round {PLAYED + 1} of {ROUNDS}" in found["run run"]
    row = listed(coordinator)
    assert (row["rounds"], row["of"], row["head"]) == (PLAYED, ROUNDS, head)
    assert row["accuracy"] is None
    assert f"{PLAYED}/{ROUNDS}" in succeeds("runs", "list", "--home", coordinator).out
    assert "no round has ended" not in succeeds("runs", "show", "run", "--home", coordinator).out


def test_a_store_of_workers_elsewhere_that_lost_a_model_is_broken(coordinator: Path) -> None:
    with EmbeddedReader.open(coordinator / "chain.sqlite") as chain:
        from ledger.chain.contract.deploy import connect
        from ledger.chain.contract.ledger import read_run_manifest

        run = read_run_manifest(Home(coordinator).run("run"))
        model = connect(chain, run).state().model.hex()
    (coordinator / "blobs" / model[:2] / model).unlink()
    assert f"blob {model}, the model of round" in checks(coordinator, code=1)["run run"]


def test_workers_elsewhere_may_publish_in_another_store(coordinator: Path) -> None:
    without_later_models(coordinator)
    assert "blobs" in checks(coordinator)["run run"]
    assert listed(coordinator)["rounds"] == PLAYED


@pytest.mark.parametrize("node", ["played", "coordinator"], indirect=True)
def test_a_run_on_a_node_is_read_there(node: list[object], tmp_path: Path, head: str) -> None:
    home = tmp_path / "home"
    assert f"in round {PLAYED + 1} of {ROUNDS}" in checks(home, *node)["run run"]
    row = listed(home, *node)
    assert (row["rounds"], row["head"], row["unread"]) == (PLAYED, head, None)


@pytest.mark.parametrize("node", ["played", "coordinator"], indirect=True)
def test_a_run_on_a_node_that_is_not_named_has_no_rounds(
    node: list[object], tmp_path: Path
) -> None:
    home = tmp_path / "home"
    assert checks(home)["run run"] == f"{UNREAD} {node[-1]}; to check it, give --rpc-url"
    row = listed(home)
    assert (row["rounds"], row["head"], row["of"]) == (None, None, ROUNDS)
    assert "--rpc-url" in row["unread"]
    for command in (["list"], ["show", "run"]):
        assert "--rpc-url" in succeeds("runs", *command, "--home", home).out


def test_a_node_that_does_not_answer_is_reported(coordinator: Path) -> None:
    chain_id = EmbeddedReader.open(coordinator / "chain.sqlite").chain_id
    node = ["--rpc-url", "http://127.0.0.1:9", "--chain-id", chain_id]
    assert set(checks(coordinator, *node, code=1)) == {"node", "run run"}
    result = cmfl("runs", "list", "--home", coordinator, *node, "--json")
    assert result.code == 2
    assert [row["rounds"] for row in result.json] == [None]
    assert "127.0.0.1:9" in result.err


def test_a_folder_of_a_worker_shows_its_journal(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "workers" / "north"):
        folder.mkdir(parents=True, exist_ok=True)
        journal = FileJournal(folder / "votes.sqlite")
        journal.record(b"place", b"statement")
        journal.sync()
        journal.close()
    found = checks(tmp_path)["vote journals"]
    assert found == f"{tmp_path.name}: 1 statements, north: 1 statements"
    (tmp_path / "workers" / "north" / "votes.sqlite").write_bytes(b"no journal" * 500)
    assert "workers/north/votes.sqlite" in checks(tmp_path, code=1)["vote journals"]


def test_an_auditor_needs_a_node_and_no_home(coordinator: Path, tmp_path: Path) -> None:
    with EmbeddedReader.open(coordinator / "chain.sqlite") as chain, RpcServer(chain) as server:
        node = ["--rpc-url", server.url, "--chain-id", chain.chain_id]
        found = checks(tmp_path / "none", *node)
    assert found["node"].startswith(f"chain {node[-1]}, block ")
    assert found["account"].startswith("none; ")


def training_rows(*arguments: str | Path) -> list[dict[str, object]]:
    shown = succeeds("doctor", *arguments).json
    return [row for row in shown if row["check"] == "training"]


def test_doctor_says_how_the_clients_of_a_configuration_would_train(tmp_path: Path) -> None:
    home = ("--home", tmp_path / "none", "--json")
    assert not training_rows(*home)
    (row,) = training_rows(*home, "--preset", "digits")
    assert row == {
        "check": "training",
        "ok": True,
        "found": "lockstep path: 10 clients take each step at once; "
        "linear 64 to 10: one matrix for each client, in one call",
    }
    (plain,) = training_rows(*home, "--set", "training.path=plain")
    assert str(plain["found"]).startswith("plain path, as configured; auto")


def test_doctor_says_what_is_wrong_with_a_configuration(tmp_path: Path) -> None:
    result = cmfl("doctor", "--home", tmp_path / "none", "--set", "model.name=vgg")
    assert result.code == 1
    assert "unknown model 'vgg'" in result.out
