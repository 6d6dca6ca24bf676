"""Python objects as parts of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

import cmfl
from tests.cmfl.conftest import FACE
from tests.cmfl.own_parts import Net, city_block, plain_mean, reversed_mean, three_classes
from tests.processes import Forks

pytestmark = FACE

_OWN_PARTS = Path(__file__).with_name("own_parts.py")
LABELS = np.arange(240) % 3
INPUTS = (np.eye(4)[LABELS] + np.random.default_rng(1).normal(0, 0.2, (240, 4))).astype("f4")
OWNERS = np.arange(240) % 12

SCRIPT = """
import numpy as np
import torch
from torch import nn
import cmfl

WIDTH = 5

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 3))
    def forward(self, x):
        return self.layers(x)

def backwards(own, colluders, rng):
    return -own

y = np.arange(240) % 3
x = np.eye(4, dtype="f4")[y]
data = cmfl.Data(x, y, client=np.arange(240) % 12)
parts = {"model": Net, "data": data, "attack": backwards, "malicious_rate": 0.2}
run = cmfl.run("smoke", **parts, rounds=1, home="h")
assert cmfl.audit(run).passed
print(*sorted(path.name.partition("-")[0] for path in (run.home / "code").iterdir()))
"""


@pytest.fixture(scope="module")
def data() -> cmfl.Data:
    return cmfl.Data(INPUTS, LABELS, client=OWNERS)


def test_a_run_takes_model_data_and_attack_as_objects(tmp_path: Path, data: cmfl.Data) -> None:
    shared = cmfl.Data(INPUTS, LABELS, client=np.arange(240) % 60)
    run = cmfl.run(
        model=Net,
        data=shared,
        attack=reversed_mean,
        distance=city_block,
        home=tmp_path / "h",
        rounds=1,
    )
    assert cmfl.audit(run).passed
    here = Path(__file__).with_name("own_parts.py")
    assert run.settings["model.name"] == f"{here}:Net"
    assert run.settings["malice.attack"] == f"{here}:reversed_mean"
    assert run.settings["protocol.clients"] == 60
    assert run.settings["malice.malicious_rate"] == 0.3
    assert Path(run.settings["data.path"]).parent == tmp_path / "h" / "data"
    wider = cmfl.run(
        "smoke",
        home=tmp_path / "h",
        name="wider",
        rounds=1,
        model={"name": Net, "options": {"width": 9}},
        data=data,
    )
    assert wider.settings["model.options.width"] == 9


def test_a_run_takes_a_distance_as_an_object_and_its_audit_needs_it(tmp_path: Path) -> None:
    run = cmfl.run("smoke", home=tmp_path / "h", rounds=2, distance=city_block)
    assert cmfl.audit(run).passed
    # Of a home that somebody sent, no code is run.
    opened = cmfl.open(tmp_path / "h")
    assert cmfl.audit(opened).outcome == "incomplete"
    own_copy = Path(__file__).with_name("own_parts.py")
    assert cmfl.audit(opened, rules=[own_copy]).passed
    with pytest.raises(cmfl.ConfigurationError, match="sha256"):
        cmfl.audit(opened, rules=[_changed(own_copy, tmp_path)])


def _changed(path: Path, folder: Path) -> Path:
    other = folder / path.name
    other.write_text(path.read_text("utf-8") + "\n", encoding="utf-8")
    return other


def test_a_script_may_define_the_parts_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "study.py"
    script.write_text(SCRIPT, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    entry = "tests.processes:run_script"
    with Forks(tmp_path / "forks", entry) as forks, forks.start(script.name) as process:
        out, err = process.communicate()
        assert (process.wait(), out, err) == (0, "Net backwards\n", "")


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ({"model": Net()}, "model.name: is a module; give its class, model=Net"),
        ({"attack": lambda attacker: attacker.own}, "malice.attack: <function <lambda> at"),
        ({"distance": lambda own, _others: own}, "not a lambda"),
        ({"data": pandas.DataFrame({"a": [1.0], "y": [0]})}, "data: is a data frame; give"),
        ({"data": cmfl.Data(INPUTS, LABELS, client=OWNERS), "clients": 14}, "14"),
    ],
)
def test_what_is_no_part_is_refused_and_nothing_is_written(
    tmp_path: Path, parts: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(cmfl.ConfigurationError) as refused:
        cmfl.run("smoke", home=tmp_path / "h", **parts)
    assert sentence in str(refused.value)
    assert not (tmp_path / "h").exists()


def test_a_path_alone_is_data_of_a_file(tmp_path: Path) -> None:
    rows = [f"{','.join(map(str, x))},{y}" for x, y in zip(INPUTS.tolist(), LABELS, strict=True)]
    path = tmp_path / "mine.csv"
    path.write_text("\n".join(["a,b,c,d,label", *rows]) + "\n", encoding="utf-8")
    given: list[dict[str, Any]] = [{"data": path}, {"data": {"path": path}}, {"data.path": path}]
    heads = {cmfl.run("smoke", rounds=1, ledger="memory", **each).head for each in given}
    assert len(heads) == 1


def test_a_function_may_make_the_data(tmp_path: Path) -> None:
    run = cmfl.run(
        "smoke",
        home=tmp_path / "h",
        rounds=1,
        data=three_classes,
        settings={"data.options.samples": 240},
    )
    assert run.settings["data.name"].endswith("own_parts.py:three_classes")
    assert sum(int(client["samples"]) for client in run.clients) < 240  # some are for the test
    assert cmfl.audit(run).passed


def test_a_comparison_takes_objects_and_references(data: cmfl.Data) -> None:
    here = _OWN_PARTS
    mine = {"name": "mine", "strategy": 2, "distance": f"{here}:city_block"}
    compared = cmfl.compare(
        ["fedavg", plain_mean, f"{here}:plain_mean", mine],
        attacks=[reversed_mean, f"{here}:reversed_mean"],
        seeds=[1],
        preset="smoke",
        model=Net,
        data=data,
        rounds=1,
        malicious_rate=0.2,
    )
    methods = ["fedavg", "plain_mean", "own_parts.py:plain_mean", "mine"]
    attacks = ["reversed_mean", "own_parts.py:reversed_mean"]
    rows = {(row["method"], row["attack"]): row for row in compared.rows}
    assert [*rows] == [(method, attack) for attack in attacks for method in methods]
    # All clients have as many samples, and both attacks are the same.
    for method in methods[:3]:
        for attack in attacks:
            final = rows[method, attack]["final"]
            assert final == pytest.approx(rows["fedavg", attacks[0]]["final"])
    # The file of its rules is known to the audit, as everything else of this process.
    assert {rows["mine", attack]["audit"] for attack in attacks} == {"passed"}
