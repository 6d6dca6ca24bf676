"""The experiments that come with the package."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.paper import official_figures, targets
from benchmarks.paper.claims import efficiency, normal, robustness, theorem
from clients.experiments.catalogue import definition_named, names
from clients.experiments.plan import plan_experiment
from clients.experiments.report import TARGET_METHODS

REAL = Path(__file__).parents[4] / "shared" / "data"
QUICK_CELLS = 6
"""So many runs at most, so that `run all --quick` stays a matter of minutes."""


def test_there_is_an_experiment_of_every_number() -> None:
    assert {definition_named(name).number for name in names()} == {1, 2, 3, 4, 5, 6, 7}


@pytest.mark.parametrize("name", names())
def test_every_cell_of_an_experiment_can_exist(name: str) -> None:
    definition = definition_named(name)
    if definition.files and not REAL.is_dir():
        pytest.skip("shared/data is not beside us")
    plan = plan_experiment(name, definition, data=REAL)
    quick = plan_experiment(name, definition, data=REAL, is_quick=True)
    assert plan.cells
    assert 0 < len(quick.cells) <= QUICK_CELLS
    assert not quick.trials


@pytest.mark.parametrize("name", names())
def test_an_experiment_says_what_it_costs_and_is_calm_first(name: str) -> None:
    definition = definition_named(name)
    text = (Path(targets.__file__).parents[1] / "definitions" / f"{name}.toml").read_text("utf-8")
    assert "# Cost: about" in text
    assert all(len(line) <= 100 for line in text.splitlines() if line.startswith("#"))
    if definition.number == 2 and not name.startswith("authors"):
        # Rates are chosen there: nobody's rate is chosen under an attack.
        assert definition.conditions[0].settings == []


def test_claims_name_methods_that_experiments_have() -> None:
    for number, wanted in (
        (1, (normal.TYPICAL, normal.AS_MANY_AGGREGATED, normal.FIRST, normal.SECOND)),
        (2, (robustness.FIRST, robustness.SECOND, *robustness.COMPARED, *TARGET_METHODS)),
        (4, (efficiency.TYPICAL, efficiency.COMMITTEE, *efficiency.DECENTRALISED)),
        (6, (theorem.FEDAVG, theorem.FIRST, theorem.SECOND)),
    ):
        known = {
            method.name
            for name in names()
            if definition_named(name).number == number
            for method in definition_named(name).methods
        }
        assert set(wanted) <= known


def test_official_figures_stand_beside_experiments_that_there_are() -> None:
    for anchor in official_figures.OFFICIAL_FIGURES:
        for place in anchor.ours:
            conditions = {one.name for one in definition_named(place.experiment).conditions}
            assert place.condition in conditions
    for _, experiment, _, _ in official_figures.CLIENTS:
        assert experiment in names()
    assert set(targets.DATA) <= set(names())


def test_no_seed_of_earlier_choices_is_reported() -> None:
    # The direction rule was chosen on seeds from 0, rates are on 100 and 101.
    assert all(min(definition_named(name).seeds) >= 200 for name in names())
