"""`cmfl.compare` and `cmfl.sweep`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import cmfl
from cmfl.comparison import METHODS
from tests.cmfl.conftest import FACE

pytestmark = FACE

SMALL: dict[str, Any] = {"preset": "smoke", "rounds": 2, "malicious_rate": 0.1}


SMALLEST = """
[protocol]
clients = 12
active_rate = 0.833333
rounds = 1
strategy = 3

[training]
local_steps = 2
"""


@pytest.fixture(scope="module")
def compared() -> cmfl.Comparison:
    """Return a comparison of three methods under two conditions, as small as it can be."""
    return cmfl.compare(
        ["fedavg", "krum", "cmfl-1"], attacks=[None, "back-gradient"], seeds=range(2), **SMALL
    )


def test_there_is_a_row_for_each_run(compared: cmfl.Comparison) -> None:
    rows = compared.rows
    assert rows.columns[:4] == ("method", "attack", "seed", "final")
    places = {(row["method"], row["attack"], row["seed"]) for row in rows}
    assert len(places) == len(rows) == 12
    audited = [row["method"] for row in rows if row["audit"] == "passed"]
    assert sorted(audited) == ["cmfl-1", "cmfl-1"]  # the first seed of each
    clean = [row for row in rows if row["attack"] == "no attack"]
    assert all(row["malicious_accepted"] == 0 for row in clean)


def test_there_is_a_row_for_each_round(compared: cmfl.Comparison) -> None:
    curves = compared.curves
    assert len(curves) == 24
    last = curves[1]
    assert (last["method"], last["seed"], last["round"]) == ("fedavg", 0, 2)
    first = compared.rows[0]
    assert first["final"] == pytest.approx((curves[0]["accuracy"] + last["accuracy"]) / 2)


def test_a_summary_pools_nothing_but_seeds(compared: cmfl.Comparison) -> None:
    summary = compared.summary()
    assert (len(summary), {row["seeds"] for row in summary}) == (6, {2})
    finals = [
        r["final"] for r in compared.rows if (r["method"], r["attack"]) == ("krum", "no attack")
    ]
    row = next(r for r in summary if (r["method"], r["attack"]) == ("krum", "no attack"))
    assert row["final"] == pytest.approx(sum(finals) / 2)
    assert "krum" in repr(compared)
    assert "krum" in compared._repr_html_()


def test_a_plot_has_a_panel_for_each_attack(compared: cmfl.Comparison) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    from matplotlib import pyplot as plt

    axes = compared.plot()
    assert [panel.get_title() for panel in axes] == ["no attack", "back-gradient"]
    assert [line.get_label() for line in axes[0].lines][:3] == ["fedavg", "krum", "cmfl-1"]
    plt.close("all")


def test_a_sweep_plays_every_combination(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {
        "over": {"strategy": [1, 3], "learning_rate": [0.1, 0.5]},
        "seeds": [5],
        "rounds": 1,
        "recorded": False,
        "out": tmp_path,
    }
    swept = cmfl.sweep("smoke", **arguments)
    values = [(row["strategy"], row["learning_rate"]) for row in swept.rows]
    assert values == [(1, 0.1), (1, 0.5), (3, 0.1), (3, 0.5)]
    assert {row["method"] for row in swept.rows} == {"cmfl"}
    # What is there is not played again: its seconds are those of the first time.
    assert cmfl.sweep("smoke", **arguments).rows == swept.rows


def test_every_method_by_name_can_be_played() -> None:
    names = [name for name in METHODS if name not in {"fedavg", "krum", "cmfl-1"}]
    compared = cmfl.compare(names, seeds=[1], preset="smoke", rounds=1, recorded=False)
    assert [row["method"] for row in compared.rows] == names
    assert not compared.failures


def test_own_presets_stand_beside_names(tmp_path: Path) -> None:
    small = {"protocol": {"clients": 12, "active_rate": 0.833333, "rounds": 1}, "local_steps": 2}
    path = tmp_path / "mine.toml"
    path.write_text(SMALLEST, encoding="utf-8")
    rules = {"name": "by-rules", "rules": path, "strategy": 2}
    compared = cmfl.compare(
        ["cmfl-1", "digits", path, rules], seeds=[1], preset=small, recorded=False
    )
    assert [row["method"] for row in compared.rows] == ["cmfl-1", "digits", "mine", "by-rules"]
    finals = compared.rows.column("final")
    assert finals[1] == finals[0] != finals[2]  # both are strategy 1, and mine is 3
    same: dict[str, Any] = {"seeds": [1], "recorded": False}
    by_path = cmfl.compare(["cmfl-1"], preset=path, **same)
    by_dict = cmfl.compare(["cmfl-1"], preset={**small, "strategy": 3}, **same)
    assert by_path.rows.column("final") == by_dict.rows.column("final") == finals[:1]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"methods": ["fedvg"]}, "unknown method 'fedvg'; known are fedavg"),
        ({"methods": [{"strategy": 1}]}, "has no name"),
        ({"methods": ["fedavg", "fedavg"]}, "method 'fedavg' is repeated"),
        ({"attacks": [{"factor": 1.0}]}, "names no attack"),
        ({"over": {"seed": [3]}}, "over: seed"),
        ({"seed": 3}, r"^seed: a comparison needs a list, seeds=\["),
        ({"methods": ["krum"], "attacks": ["alie"], "malicious_rate": 0.3}, "2f \\+ 2 < n must"),
    ],
)
def test_what_cannot_be_played_is_refused(arguments: dict[str, Any], sentence: str) -> None:
    given = {"methods": ["fedavg"], "seeds": [1], **SMALL, **arguments}
    with pytest.raises(cmfl.ConfigurationError, match=sentence):
        cmfl.compare(**given)
