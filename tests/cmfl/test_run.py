"""`cmfl.run` and the run that it returns."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cmfl
from ledger.io.home import Home, run_lock
from tests.cmfl.conftest import FACE

pytestmark = FACE


def test_a_run_says_what_happened(run: cmfl.Run) -> None:
    assert [each.round for each in run.rounds] == [1, 2, 3]
    assert run.settings["malice.attack"] == "back-gradient"
    last = run.rounds[-1]
    assert (last.head, last.accuracy, last.floor) == (run.head, run.accuracy, run.floor)
    assert repr(run).startswith("<cmfl.Run run: 3 of 3 rounds, accuracy 0.")
    assert str(run.home) in repr(run)
    assert "<table>" in run._repr_html_()
    assert len(run.clients) == 12


def test_rounds_are_looked_up_by_their_numbers(run: cmfl.Run) -> None:
    rounds = run.rounds
    assert (rounds[2].round, rounds[-3].round, len(rounds[2:])) == (2, 1, 2)
    for number in (0, 4, -4):
        with pytest.raises(IndexError, match=f"no round {number}; must be one of 1 to 3"):
            rounds[number]


def test_a_round_is_explained_in_sentences(run: cmfl.Run) -> None:
    explanation = run.rounds[2].explain()
    assert explanation[0].startswith("Round 2 was decided")
    assert str(explanation) == repr(explanation) == "\n".join(explanation)
    updates = run.rounds[2].updates
    accepted = [row["client"] for row in updates if row["outcome"] == "accepted"]
    assert len(accepted) == run.rounds[2].accepted
    assert len(run.rounds[2].committee) == 4


def test_rows_are_tidy(run: cmfl.Run) -> None:
    rows = run.rounds.rows()
    assert rows.columns[:3] == ("round", "status", "accuracy")
    assert rows.column("round") == [1, 2, 3]
    assert rows[1:].column("round") == [2, 3]
    assert len(repr(rows[1:]).splitlines()) == 3
    with pytest.raises(cmfl.ConfigurationError, match="no column 'acuracy'"):
        rows.column("acuracy")


def test_an_opened_home_gives_the_same_run(run: cmfl.Run) -> None:
    assert run.home is not None
    opened = cmfl.open(run.home)
    assert (opened.rounds.rows(), opened.head) == (run.rounds.rows(), run.head)
    (row,) = cmfl.runs(run.home)
    assert (row["run"], row["rounds"], row["head"]) == ("run", 3, run.head)


def test_a_home_without_the_run_is_refused_with_the_names(run: cmfl.Run, tmp_path: Path) -> None:
    assert run.home is not None
    with pytest.raises(cmfl.ConfigurationError, match="no run 'other'; must be one of run"):
        cmfl.open(run.home, "other")
    with pytest.raises(cmfl.ConfigurationError, match="there is no run in"):
        cmfl.open(tmp_path)


def test_a_run_without_a_home_can_be_saved(tmp_path: Path) -> None:
    played = cmfl.run("smoke", rounds=1)
    saved = played.save(tmp_path / "kept")
    assert (saved.head, saved.home) == (played.head, tmp_path / "kept")
    with pytest.raises(cmfl.ConfigurationError, match="exists"):
        played.save(tmp_path / "kept")


def test_a_run_that_another_process_plays_is_refused(tmp_path: Path) -> None:
    with (
        run_lock(Home(tmp_path).run("run")),
        pytest.raises(cmfl.ConfigurationError, match="plays or deploys it"),
    ):
        cmfl.run("smoke", rounds=1, ledger="memory", home=tmp_path)
    assert cmfl.run("smoke", rounds=1, ledger="memory", home=tmp_path).rounds


def test_a_run_in_memory_has_rows_and_no_explanation(tmp_path: Path) -> None:
    played = cmfl.run("smoke", rounds=1, ledger="memory", home=tmp_path / "h")
    assert (played.address, len(played.rounds), "not recorded" in repr(played)) == (None, 1, True)
    with pytest.raises(cmfl.ConfigurationError, match="the memory ledger"):
        played.rounds[1].explain()
    with pytest.raises(cmfl.ConfigurationError, match="memory ledger"):
        cmfl.audit(played)


@pytest.mark.parametrize(
    ("keywords", "sentence"),
    [
        ({"stratgy": 3}, "stratgy: there is no such setting; near it: protocol.strategy"),
        ({"malice": {"attack": "alie"}}, "malice.attack = alie needs malice.malicious_rate"),
        ({"name": "a/b"}, "run name 'a/b'"),
        ({"resume": True}, "there is no run 'run' in"),
    ],
)
def test_a_wrong_argument_is_one_sentence_and_writes_nothing(
    tmp_path: Path, keywords: dict[str, Any], sentence: str
) -> None:
    arguments = {"preset": "smoke", **keywords} if "resume" not in keywords else keywords
    with pytest.raises(cmfl.ConfigurationError) as refused:
        cmfl.run(home=tmp_path / "h", **arguments)
    assert str(refused.value).startswith(sentence)
    assert not (tmp_path / "h").exists()


def test_a_file_is_no_home(tmp_path: Path) -> None:
    (tmp_path / "h").touch()
    with pytest.raises(cmfl.ConfigurationError, match="is not a folder"):
        cmfl.run("smoke", home=tmp_path / "h")


def test_a_run_of_the_same_name_is_not_played_twice(run: cmfl.Run) -> None:
    with pytest.raises(cmfl.ConfigurationError, match="already has a run 'run'"):
        cmfl.run("smoke", home=run.home)
    with pytest.raises(cmfl.ConfigurationError, match="uses the run's settings"):
        cmfl.run("smoke", home=run.home, resume=True)
    assert cmfl.run(home=run.home, resume=True).head == run.head


def test_progress_goes_to_standard_error_if_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    cmfl.run("smoke", rounds=1, ledger="memory", progress=True)
    shown = capsys.readouterr()
    assert (shown.out, shown.err.startswith("run, rounds: 1 of 1, accuracy 0.")) == ("", True)
    cmfl.run("smoke", rounds=1, ledger="memory")
    assert capsys.readouterr().err == ""


def test_a_plot_has_the_accuracy_of_each_round(run: cmfl.Run, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    from matplotlib import pyplot as plt

    axes = run.plot(tmp_path / "run.png")
    assert (tmp_path / "run.png").stat().st_size > 0
    with pytest.raises(cmfl.ConfigurationError, match=r"run\.xyz: "):
        run.plot(tmp_path / "run.xyz")
    line = axes.lines[0]
    assert np.asarray(line.get_xdata()).tolist() == [1, 2, 3]
    assert np.asarray(line.get_ydata()).tolist() == [each.accuracy for each in run.rounds]
    plt.close("all")


def test_rows_become_a_frame_of_the_same_columns(run: cmfl.Run) -> None:
    pytest.importorskip("pandas")
    frame = run.to_pandas()
    rows = run.rounds.rows()
    assert tuple(frame.columns) == rows.columns
    assert frame["round"].tolist() == [1, 2, 3]
    assert frame["accuracy"].tolist() == rows.column("accuracy")
    assert frame["accuracy"].dtype.kind == "f"
    assert frame["backdoor_success"].isna().all()
    assert run.rounds[2:].to_pandas()["round"].tolist() == [2, 3]


def test_a_comparison_becomes_a_frame_to_group(run: cmfl.Run) -> None:
    pandas = pytest.importorskip("pandas")
    rows = cmfl.Table(
        {"method": method, "seed": seed, "final": final}
        for method, seed, final in [("a", 1, 0.25), ("a", 2, 0.75), ("b", 1, 0.5)]
    )
    means = rows.to_pandas().groupby("method")["final"].mean()
    assert means.to_dict() == {"a": 0.5, "b": 0.5}
    assert cmfl.Table().to_pandas().empty
    assert isinstance(cmfl.Comparison([]).to_pandas(), pandas.DataFrame)
    assert len(run.rounds[1:1].to_pandas()) == 0


def test_without_pandas_it_is_named(run: cmfl.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(cmfl.ConfigurationError, match="needs pandas: pip install pandas"):
        run.to_pandas()
    with pytest.raises(cmfl.ConfigurationError, match="needs pandas"):
        cmfl.Table().to_pandas()
