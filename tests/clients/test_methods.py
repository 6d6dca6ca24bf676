"""What a comparison runs: FedAvg of two sizes, and a committee by the rules of a preset."""

from __future__ import annotations

import pytest

from clients.configuration.loading import load
from clients.methods import METHODS, Averaging, Committee
from ledger.io.home import RUN_NAME
from ledger.protocol.rules import registry

BASE = load("smoke", settings=("protocol.scoring=median", "malice.members.silent=1"))


def test_fedavg_is_compared_with_as_many_clients_as_are_active_and_as_train() -> None:
    parameters = load("digits").parameters(650)
    sizes = [method for method in METHODS if isinstance(method, Averaging)]
    assert [method.participants(parameters) for method in sizes] == [30, 18]
    assert [method.title(parameters) for method in sizes] == [
        "FedAvg, 30 clients",
        "FedAvg, 18 clients",
    ]


def test_there_is_a_method_for_each_strategy_of_the_registry() -> None:
    strategies = [m.configured(BASE).protocol.strategy for m in METHODS if isinstance(m, Committee)]
    assert strategies == list(registry.SELECTIONS)
    names = [method.name for method in METHODS if isinstance(method, Committee)]
    assert names == [registry.SELECTIONS[number].name for number in strategies]


@pytest.mark.parametrize(
    ("name", "rules"),
    [
        ("I", (1, "mean", "squared", "none")),
        ("II", (2, "mean", "squared", "none")),
        ("III", (3, "median", "direction", "direction")),
    ],
)
def test_a_method_brings_its_rules_and_leaves_all_else(
    name: str, rules: tuple[int, str, str, str]
) -> None:
    method = next(method for method in METHODS if method.name == name)
    assert isinstance(method, Committee)
    configuration = method.configured(BASE)
    found = configuration.parameters(650)
    assert (found.strategy, found.scoring, found.distance, found.threshold) == rules
    assert configuration.model_dump(exclude={"protocol"}) == BASE.model_dump(exclude={"protocol"})
    kept = {"strategy", "scoring", "distance", "threshold"}
    assert configuration.protocol.model_dump(exclude=kept) == BASE.protocol.model_dump(exclude=kept)


def test_a_robust_base_does_not_change_the_other_methods() -> None:
    nearest = next(method for method in METHODS if method.name == "I")
    assert isinstance(nearest, Committee)
    assert nearest.configured(load("robust")) == load("digits")


def test_names_are_those_of_runs_and_stand_once() -> None:
    names = [method.name for method in METHODS]
    assert len(set(names)) == len(names)
    assert all(RUN_NAME.fullmatch(name) for name in names)
