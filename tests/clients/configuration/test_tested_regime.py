"""Warnings of settings in which nobody has shown that the rules hold."""

from __future__ import annotations

import pytest

from clients.configuration.loading import load
from clients.configuration.tested_regime import regime_warnings

ATTACK = ("malice.attack=ipm",)


@pytest.mark.parametrize("preset", ["digits", "robust", "digits-by-writer"])
def test_what_was_tested_is_not_warned_of(preset: str) -> None:
    settings = (*ATTACK, "malice.malicious_rate=0.3", "data.path=x")
    assert regime_warnings(load(preset, settings=settings[: 3 if "writer" in preset else 2])) == []


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ((*ATTACK, "malice.malicious_rate=0.31"), "malice.malicious_rate = 0.31: beyond 0.3"),
        (("training.local_steps=1",), "training.local_steps = 1: "),
        (("data.partition.name=dirichlet", "data.partition.alpha=0.1"), "alpha = 0.1: below 0.3"),
        (("data.partition.alpha=0.1",), "alpha = 0.1: below 0.3"),
        (("protocol.active_rate=0.3",), "a committee of 7: "),
        (("model.name=mlp",), "model.name = mlp: the rules held with cnn and softmax; "),
    ],
)
def test_each_bound_is_warned_of_alone(settings: tuple[str, ...], named: str) -> None:
    (warning,) = regime_warnings(load("digits", settings=settings))
    assert named in warning


def test_another_division_has_no_concentration_of_classes() -> None:
    settings = ("data.partition.name=quantity", "data.partition.alpha=0.1")
    assert regime_warnings(load("digits", settings=settings)) == []


def test_epochs_are_no_single_step() -> None:
    settings = ("training.local_epochs=1", "training.local_steps=")
    assert regime_warnings(load("digits", settings=settings)) == []
