"""Adding a rule touches its own file and one line of the registry, and nothing else."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ledger.protocol import encoding, rounds
from ledger.protocol.documents.run import RunDocument, decode_run, encode_run
from ledger.protocol.errors import ParametersError
from ledger.protocol.judgement import sets_of
from ledger.protocol.parameters import Parameters
from ledger.protocol.rules import registry
from ledger.protocol.rules.distance import DistanceRule, RelativeMeasure
from ledger.protocol.rules.scoring import ScoringRule
from ledger.protocol.rules.threshold import ThresholdRule
from ledger.protocol.types import AcceptanceForm
from tests.protocol.support import PENCIL, registry_of, small_round
from tests.protocol.test_rounds import (
    ACCEPTED,
    DECISION,
    RANKING,
    TRAINERS,
    certificates,
    committed,
    decided,
)
from tests.support.keys import ids

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ledger.protocol.rules.selection import SelectionRule

SOURCE = Path(__file__).parents[3]


def manhattan(update: NDArray[np.float32], reference: NDArray[np.float32]) -> float:
    return float(np.abs(update.astype(np.float64) - reference.astype(np.float64)).sum())


def largest(distances: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(distances.max(axis=0))


def twelve(member_distances: Sequence[NDArray[np.float64]], scoring: ScoringRule) -> float:
    return 12.0


def _sentence(accepted: int, _edge: float) -> str:
    return f"the {accepted} of the toy strategy were accepted."


TOY_DISTANCE = DistanceRule(
    name="manhattan",
    among=lambda _updates, _layout: RelativeMeasure(manhattan),
    sentence="sums of absolute differences",
)
TOY_SCORING = ScoringRule(name="largest", combine=largest, sentence="largest")
TOY_THRESHOLD = ThresholdRule(name="twelve", find=twelve, distance="manhattan", sentence="twelve")
TOY_SELECTION = replace(registry.SELECTIONS[3], number=9, name="toy", sentence=_sentence)


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    """List one toy of each kind of rule, for one test."""
    monkeypatch.setitem(registry.DISTANCES, "manhattan", TOY_DISTANCE)
    monkeypatch.setitem(registry.SCORINGS, "largest", TOY_SCORING)
    monkeypatch.setitem(registry.THRESHOLDS, "twelve", TOY_THRESHOLD)
    monkeypatch.setitem(registry.SELECTIONS, 9, TOY_SELECTION)


TOYS: dict[str, Any] = {
    "distance": "manhattan",
    "scoring": "largest",
    "threshold": "twelve",
    "strategy": 9,
}


@pytest.mark.usefixtures("toys")
def test_listed_toys_decide_a_round() -> None:
    # Members at 0, 1/4, 1/2; a trainer at x > 1/2 is at most x away from one.
    values = {0: 0.0, 1: 0.25, 2: 0.5, 3: 40.0, 4: 12.0, 5: 1.5, 6: 1.0, 7: 2.0, 8: 30.0}
    small = small_round(values, **TOYS).scored()
    judged = small.judged()
    distances = [encoding.word_distance(word) for word in judged.ranking.words]
    assert distances == [1.0, 1.5, 2.0, 12.0, 30.0, 40.0]
    assert judged.ranking.accepted == ids(6, 5)
    assert judged.ranking.candidates == ids(6, 5, 7)
    lying = small_round(values, **TOYS)
    vector = lying.vector(0)
    lying = lying.publish(0, replace(vector, distances=vector.distances + 1)).scored(1, 2)
    assert [entry.signed.scores.member for entry in lying.compose().refused] == [0]


@pytest.mark.usefixtures("toys")
def test_toy_rules_can_be_configured_deployed_and_decided_on() -> None:
    parameters = replace(PENCIL, **TOYS)
    run = RunDocument(parameters, registry_of(9), encoding.sha256(b"w"), (("w", (1,)),), {})
    assert decode_run(encode_run(run)).parameters == parameters
    assert parameters.form is AcceptanceForm.BELOW_TWO
    state = committed(parameters=parameters)
    after, _ = decided(state, DECISION, certificates(state, DECISION, ACCEPTED[:1], TRAINERS[:3]))
    assert after.committee == TRAINERS[:3]
    assert rounds.decide.__doc__


@pytest.mark.parametrize(("name", "value"), TOYS.items())
def test_what_is_not_listed_cannot_be_configured(name: str, value: Any) -> None:
    assert TOYS.keys() == {"distance", "scoring", "threshold", "strategy"}
    with pytest.raises(ParametersError, match=f"{name} = {value} is none of"):
        replace(PENCIL, **{name: value})


def settings_of_all_rules() -> Iterator[dict[str, Any]]:
    """Yield for each listed rule a configuration that has it."""
    for scoring in registry.SCORINGS:
        yield {"scoring": scoring}
    for distance in registry.DISTANCES:
        yield {"distance": distance}
    for reference in registry.REFERENCES.values():
        yield {"reference": reference.name, "distance": reference.distance or "squared"}
    for threshold in registry.THRESHOLDS.values():
        strategy = 3 if threshold.is_certified else 1
        distance = threshold.distance or "squared"
        yield {"threshold": threshold.name, "strategy": strategy, "distance": distance}
    for number, selection in registry.SELECTIONS.items():
        threshold_name = "spread" if selection.needs_threshold else "none"
        yield {"strategy": number, "threshold": threshold_name}


@pytest.mark.parametrize("settings", [*settings_of_all_rules()], ids=str)
def test_every_listed_rule_can_be_configured(settings: dict[str, Any]) -> None:
    parameters = replace(PENCIL, **settings)
    assert isinstance(parameters, Parameters)
    small = small_round({i: float(i + 1) for i in range(9)}, travel=(1.0,), **settings).scored()
    assert small.judged().ranking.accepted


def test_every_rule_is_listed_under_its_own_name() -> None:
    rules = (registry.DISTANCES, registry.REFERENCES, registry.SCORINGS, registry.THRESHOLDS)
    for listed in rules:
        assert all(name == rule.name for name, rule in listed.items())
    assert all(number == rule.number for number, rule in registry.SELECTIONS.items())
    names = [rule.name for rule in registry.SELECTIONS.values()]
    assert len(set(names)) == len(names)


def one_of_each_form() -> dict[AcceptanceForm, SelectionRule]:
    return {rule.form: rule for rule in registry.SELECTIONS.values()}


@pytest.mark.usefixtures("toys")
def test_strategies_of_one_form_select_alike_because_the_contract_does() -> None:
    # A strategy that selects otherwise is a form of its own, and a branch of the contract.
    assert set(one_of_each_form()) == set(AcceptanceForm)
    for rule in registry.SELECTIONS.values():
        assert rule.select is one_of_each_form()[rule.form].select
        parameters = replace(
            PENCIL,
            strategy=rule.number,
            threshold="spread" if rule.needs_threshold else "none",
        )
        accepted, _ = sets_of(parameters, RANKING)
        assert accepted == rule.select(RANKING, parameters.accepted)


CONSTANTS = (ast.Constant, ast.Tuple, ast.Set, ast.List)


def choices_by_strategy(source: str) -> list[int]:
    """Return the lines in which something called a strategy is compared with constants."""
    lines = []
    for node in ast.walk(ast.parse(source if "strategy" in source else "")):
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.Match):
            parts = [node.subject, ast.Constant(0)]
        else:
            continue
        named = any(getattr(part, "attr", getattr(part, "id", "")) == "strategy" for part in parts)
        fixed = any(isinstance(part, CONSTANTS) for part in parts)
        if named and fixed:
            lines.append(node.lineno)
    return lines


def test_nobody_but_the_rules_asks_which_strategy_it_is() -> None:
    assert choices_by_strategy("if parameters.strategy in (1, 2):\n    pass") == [1]
    assert choices_by_strategy("if strategy == 3:\n    pass") == [1]
    assert choices_by_strategy("match run.strategy:\n    case 1:\n        pass") == [1]
    assert not choices_by_strategy("rule = SELECTIONS[parameters.strategy]")
    found = {
        f"{path.relative_to(SOURCE)}:{line}"
        for folder in ("ledger", "clients", "api", "cmfl")
        for path in (SOURCE / folder).rglob("*.py")
        if "rules" not in path.parts
        for line in choices_by_strategy(path.read_text("utf-8"))
    }
    assert not found
