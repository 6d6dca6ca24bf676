"""The experiments that come with the package."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from clients.attacks.data.registry import DATA_ATTACKS
from clients.attacks.registry import ATTACKS
from clients.experiments.catalogue import definition_named, definition_of, names
from clients.experiments.plan import plan_experiment
from ledger.protocol.errors import ConfigurationError

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


def test_an_experiment_extends_another_and_overrides() -> None:
    base = definition_named("robustness-worst-digits")
    own = definition_of(
        """
        extends = "robustness-worst-digits"
        title = "Mine"
        methods = ["CMFL-I", { name = "Median", kind = "federated", aggregator = "Median" }]
        conditions = ["target", "none"]
        exclude = []
        quick = {}
        """,
        "mine",
    )
    assert (own.title, own.preset, own.seeds) == ("Mine", base.preset, base.seeds)
    assert [method.name for method in own.methods] == ["CMFL-I", "Median"]
    known = {condition.name: condition for condition in base.conditions}
    assert own.conditions == [known["target"], known["none"]]


@pytest.mark.parametrize(
    ("change", "value"),
    [('extends = "nothing"', "'nothing'"), ('extends = "normal"\nmethods = ["none"]', "methods.0")],
)
def test_what_is_not_in_the_other_experiment_is_refused(change: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=value):
        definition_of(change, "mine")


def test_strategy_three_is_played_against_the_whole_catalogue() -> None:
    plan = plan_experiment("robustness-worst", definition_named("robustness-worst"))
    attacked = [cell for cell in plan.cells if cell.configuration.malice.attack is not None]
    attacks = {cell.configuration.malice.attack for cell in attacked}
    assert attacks == {*ATTACKS, *DATA_ATTACKS}
    assert {cell.configuration.malice.malicious_rate for cell in attacked} == {0.3}
    assert {cell.seed for cell in plan.cells if cell.is_recorded} == {300, 301}


def test_no_seed_of_earlier_choices_is_reported() -> None:
    # The direction rule was chosen on seeds from 0, rates are on 100 and 101.
    assert all(min(definition_named(name).seeds) >= 200 for name in names())


def test_the_theorem_needs_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "benchmarks.paper.theorem.method_kind", raising=False)
    monkeypatch.setitem(sys.modules, "benchmarks.paper.theorem", None)
    with pytest.raises(ConfigurationError, match="kind 'theorem' needs"):
        plan_experiment("theorem", definition_named("theorem"))
