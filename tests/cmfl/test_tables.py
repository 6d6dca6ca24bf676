"""Tables of rows, and the pandas frames that they become."""

from __future__ import annotations

import sys

import pytest

import cmfl
from tests.cmfl.conftest import FACE

pytestmark = FACE


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
