"""`cmfl verify training` on the shared home: verdicts, exit codes, reports and refusals."""

from __future__ import annotations

import json
import shutil
import sys
from typing import TYPE_CHECKING
from unittest.mock import patch

import numpy as np
import pytest

import clients.replay
from clients.runs.run_folder import manifest_of
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.rpc.server.http_server import RpcServer
from ledger.io.home import MANIFEST, Home
from tests.cmfl.commands.conftest import SHARED, cmfl, refusal, succeeds

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = SHARED


@pytest.fixture(scope="module")
def honest(home: Path) -> list[int]:
    """Clients all of whose updates are the same, whatever else they did."""
    rows = cmfl("verify", "training", "--home", home, "--json").json["updates"]
    differing = {row["client"] for row in rows if row["verdict"] != "same"}
    assert len(differing) == 1, "one trainer sends infinities"
    return sorted({row["client"] for row in rows} - differing)


def test_honest_clients_end_with_0_and_a_report(
    home: Path, honest: list[int], tmp_path: Path
) -> None:
    chosen = [part for client in honest[:3] for part in ("--client", client)]
    report = tmp_path / "report.json"
    asked = ("verify", "training", "--home", home, *chosen, "--rounds", "1..2")
    shown = succeeds(*asked, "--json", "--report", report).json
    assert json.loads(report.read_text()) == shown
    assert shown["verdict"] == "same"
    assert {row["round"] for row in shown["updates"]} == {1, 2}
    first, second = succeeds(*asked).out.splitlines()
    assert first.endswith(" updates same, 0 other, 0 not checkable")
    assert "torch" in second
    lines = cmfl(*asked, "-v").out.splitlines()
    assert len(lines) == 2 + len(shown["updates"])


def test_an_interrupted_replay_prints_what_it_kept(home: Path, tmp_path: Path) -> None:
    log = tmp_path / "results.jsonl"
    with patch("cmfl.replaying.replay_target", side_effect=KeyboardInterrupt):
        for options, kept in (
            ((), "without --log no result was kept"),
            (("--log", log), f"{log} has all results so far; repeat the same command to continue"),
        ):
            found = cmfl("verify", "training", "--home", home, "--round", 1, *options)
            assert (found.code, found.err) == (130, f"cmfl: interrupted; {kept}\n")


def test_a_node_and_a_folder_of_blobs_are_enough(
    home: Path, honest: list[int], tmp_path: Path
) -> None:
    address = manifest_of(home, "run").address
    shutil.copy(home / "chain.sqlite", tmp_path)
    with (
        EmbeddedChain.open(tmp_path / "chain.sqlite", accept_rollback=True) as chain,
        RpcServer(chain) as server,
    ):
        node = ("--rpc-url", server.url, "--chain-id", chain.chain_id, "--address", address)
        asked = ("--blobs", home / "blobs", "--client", honest[0], "--json")
        shown = succeeds("verify", "training", *node, *asked).json
    near = succeeds("verify", "training", "--home", home, "--client", honest[0], "--json").json
    # The environments of a simulation are in its home alone.
    recorded = [{u.pop("recorded_environment") for u in each["updates"]} for each in (shown, near)]
    assert recorded == [{None}, {near["environment"]["class"]}]
    assert shown == near


def test_damaged_files_of_another_run_change_nothing(
    home: Path, honest: list[int], tmp_path: Path
) -> None:
    damaged = tmp_path / "home"
    shutil.copytree(home, damaged)
    runs = Home(damaged)
    for other, file in (("earlier", MANIFEST), ("later", "environments.jsonl")):
        shutil.copytree(runs.run("run").path, runs.run(other).path)
        (runs.run(other).path / file).write_text("[]\n")
    asked = ("verify", "training", "--home", damaged, "--run", "run", "--client", honest[0])
    shown = succeeds(*asked, "--round", "1", "--json").json
    assert shown["updates"][0]["recorded_environment"] == shown["environment"]["class"]


def test_an_audit_reports_training_apart_from_its_steps(home: Path) -> None:
    plain = succeeds("audit", "--home", home, "--json").json
    beside = succeeds("audit", "--home", home, "--json", "--training", 3).json
    training = beside.pop("training")
    assert beside == plain
    assert training["drawn"] == sum(training["counts"].values()) == 3
    (line,) = (
        line
        for line in succeeds("audit", "--home", home, "--training", 3).out.splitlines()
        if line.startswith("training, apart from the ten steps: 3 updates drawn")
    )
    assert "same" in line


def test_an_audit_without_torch_says_that_nothing_was_repeated(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "replay", clients.replay)  # put back what is imported below
    for name in [name for name in sys.modules if name.startswith("clients.replay")]:
        monkeypatch.delitem(sys.modules, name)

    class NoTorch:
        def find_spec(self, name: str, *_: object) -> None:
            if name.startswith("clients.replay."):
                raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr(sys, "meta_path", [NoTorch(), *sys.meta_path])
    shown = succeeds("audit", "--home", home, "--json", "--training", 3).json
    assert shown["training"]["counts"] is None
    assert "extra [clients]: pip install " in shown["training"]["reason"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--round", "1", "--rounds", "1..2"], "--round and --rounds: give one of them"),
        (["--salt", "0x12", "--client", "1"], "--salt: must be 64 hex digits"),
        (["--report", "/"], "--report /: is a folder"),
    ],
)
def test_wrong_options_are_refused_in_one_sentence(
    home: Path, options: list[str], message: str
) -> None:
    assert message in refusal("verify", "training", "--home", home, *options)


def test_files_that_are_not_the_runs_data_accuse_nobody(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    for name in ("mine", "others"):
        samples = {"x": rng.random((120, 8, 8), np.float32), "y": np.arange(120) % 10}
        np.savez(tmp_path / f"{name}.npz", **samples)  # type: ignore[arg-type]
    whole = (tmp_path / "mine.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[:-100])
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 1
    (tmp_path / "damaged.npz").write_bytes(damaged)
    home = tmp_path / "home"
    own = f"data.path={tmp_path / 'mine.npz'}"
    succeeds("run", "--preset", "smoke", "--home", home, "--set", own, "--set", "protocol.rounds=1")
    asked = ("verify", "training", "--home", home)
    assert "0 other, 0 not checkable" in succeeds(*asked).out
    for name in ("others.npz", "cut.npz", "damaged.npz"):
        result = cmfl(*asked, "--data", tmp_path / name)
        assert result.code == 3
        first, _, reason = result.out.splitlines()
        assert first.startswith("0 of 10 updates same, 0 other, 10 not checkable")
        assert name in reason
    (tmp_path / "mine.npz").unlink()
    assert "name the files" in cmfl(*asked).out
