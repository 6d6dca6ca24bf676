"""`cmfl.verify_training` on the shared run: honest updates repeated, choices, and refusals."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import cmfl
from clients.adversaries.attackers import malicious_clients
from clients.datasets.federated_data import named_stream
from tests.cmfl.conftest import FACE

pytestmark = FACE


def test_honest_updates_are_the_same_and_forged_ones_are_not(run: cmfl.Run) -> None:
    result = cmfl.verify_training(run)
    assert result.verdict == "other"
    attackers = malicious_clients(12, 0.3, named_stream(7, "malicious"))
    assert len(result.updates) == 30
    for update in result.updates:
        assert update["verdict"] == ("other" if update["client"] in attackers else "same")
    assert "losses" not in json.dumps(result.as_dict())


def test_forged_updates_of_a_run_played_here_are_other(run: cmfl.Run, tmp_path: Path) -> None:
    assert run.home is not None
    unknown = tmp_path / "home"
    shutil.copytree(run.home, unknown)
    for path in unknown.glob("runs/*/environments.jsonl"):
        path.unlink()
    assert cmfl.verify_training(unknown).verdict == "not checkable"
    result = cmfl.verify_training(unknown, trained_here=True)
    attackers = malicious_clients(12, 0.3, named_stream(7, "malicious"))
    assert result.verdict == "other"
    assert result.counts["not checkable"] == 0
    assert {u["client"] for u in result.updates if u["verdict"] == "other"} <= set(attackers)
    assert result.counts["other"] == sum(u["client"] in attackers for u in result.updates)
    assert all("as you say" in u["reason"] for u in result.updates if u["verdict"] == "other")


def test_a_draw_is_repeated_by_its_seed(run: cmfl.Run) -> None:
    drawn = [
        [(u["round"], u["client"]) for u in cmfl.verify_training(run, sample=4, seed=s).updates]
        for s in (1, 1, 2)
    ]
    assert len(drawn[0]) == 4
    assert drawn[0] == drawn[1] != drawn[2]


def test_an_interrupted_replay_goes_on_from_its_log(run: cmfl.Run, tmp_path: Path) -> None:
    log = tmp_path / "results"
    first = cmfl.verify_training(run, round=1, log=log)
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:-2]) + lines[-2][:50])
    again = cmfl.verify_training(run, round=1, log=log)
    assert again.result.updates == first.result.updates
    assert sorted(log.read_bytes().splitlines(keepends=True)) == sorted(lines)


@pytest.mark.parametrize(
    "wrong",
    [
        {"round": 9},
        {"rounds": (3, 2)},
        {"jobs": 0},
        {"rounds": (1, 2, 3)},
        {"settings": ["training.local_steps=3"]},
    ],
)
def test_what_cannot_be_repeated_is_refused(run: cmfl.Run, wrong: dict[str, object]) -> None:
    with pytest.raises(cmfl.ConfigurationError):
        cmfl.verify_training(run, **wrong)  # type: ignore[arg-type]


def test_poisoned_samples_need_an_attack_on_samples(run: cmfl.Run) -> None:
    with pytest.raises(cmfl.ConfigurationError, match="--poisoned"):
        cmfl.verify_training(run, poisoned=True)


def test_a_file_that_is_no_log_is_refused(run: cmfl.Run, tmp_path: Path) -> None:
    (tmp_path / "log").write_text("{}\n")
    with pytest.raises(cmfl.ConfigurationError, match="line 1"):
        cmfl.verify_training(run, log=tmp_path / "log")
    (tmp_path / "log").write_bytes(b"[" * 100_000 + b"\n")
    with pytest.raises(cmfl.ConfigurationError, match="line 1"):
        cmfl.verify_training(run, log=tmp_path / "log")
    with pytest.raises(cmfl.ConfigurationError, match="--log"):
        cmfl.verify_training(run, log=tmp_path / "nowhere" / "log")
