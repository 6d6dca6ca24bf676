"""Attacks on updates, by pencil and by property."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.adversaries.registry import ATTACKS, attack_named
from clients.adversaries.updates.attack import AttackInput, AttackParameters
from clients.adversaries.updates.min_max import largest_step, min_max
from ledger.protocol.errors import ConfigurationError

UPDATE = np.array([1.0, -2.0, 0.0, 4.0], dtype=np.float32)
OTHER = np.array([3.0, 2.0, 1.0, -2.0], dtype=np.float32)


def attacker(
    *colluders: np.ndarray, factor: float | None = None, attack: str = "same-value", seed: int = 0
) -> AttackInput:
    """The first of some attackers, as it is asked by an attack."""
    known = np.stack(colluders or (UPDATE,))
    number = attack_named(attack).factor_for(AttackParameters(factor))
    return AttackInput(known[0], known, np.random.default_rng(seed), number)


def sent(attack: str, *colluders: np.ndarray, factor: float | None = None) -> list[float]:
    asked = attacker(*colluders, factor=factor, attack=attack)
    found: list[float] = attack_named(attack).forge(asked).tolist()
    return found


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_sends_another_vector_of_the_same_kind_and_spares_the_original(
    name: str,
) -> None:
    asked, again = (attacker(UPDATE, OTHER, attack=name) for _ in range(2))
    forged = attack_named(name).forge(asked)
    assert forged.dtype == np.float32
    assert forged.shape == UPDATE.shape
    assert not np.array_equal(forged, UPDATE)
    assert np.array_equal(asked.own, UPDATE)
    assert np.array_equal(asked.colluders, np.stack([UPDATE, OTHER]))
    assert np.array_equal(forged, attack_named(name).forge(again))


def test_same_value_sends_zeros() -> None:
    assert sent("same-value") == [0, 0, 0, 0]


def test_back_gradient_sends_the_opposite_and_with_a_factor_of_ten_ten_times_that() -> None:
    assert sent("back-gradient") == [-1, 2, 0, -4]
    assert sent("back-gradient", factor=10) == [-10, 20, 0, -40]


def test_inner_product_sends_half_the_colluders_mean_backwards() -> None:
    # The mean is (2, 0, 0.5, 1).
    assert sent("inner-product", UPDATE, OTHER) == [-1, 0, -0.25, -0.5]
    assert sent("inner-product", UPDATE, OTHER, factor=4) == [-8, 0, -2, -4]


def test_min_max_goes_as_far_from_the_mean_as_the_colluders_are_from_each_other() -> None:
    # Updates 0 and 2: mean 1, widest distance 2. One step of the mean backwards is 0, which is 2
    # away from the update 2.
    first, second = (np.array([x], dtype=np.float32) for x in (0.0, 2.0))
    assert sent("min-max", first, second) == [0]


def test_one_attacker_alone_has_nobody_to_hide_among_and_sends_its_own_update() -> None:
    assert sent("min-max", UPDATE) == UPDATE.tolist()


@given(st.integers(0, 2**32 - 1), st.integers(2, 8), st.integers(1, 40))
def test_min_max_never_stands_out_and_could_not_go_farther(
    seed: int, colluders: int, dimension: int
) -> None:
    honest = np.random.default_rng(seed).standard_normal((colluders, dimension))
    pairs = np.linalg.norm(honest[:, None] - honest[None], axis=2)
    mean = honest.mean(axis=0)
    step = largest_step(honest, mean, -mean)

    def farthest(gamma: float) -> float:
        return float(np.linalg.norm(mean - gamma * mean - honest, axis=1).max())

    assert step >= 0
    assert farthest(step) <= pairs.max() * (1 + 1e-9)
    assert farthest(step * 1.001 + 1e-6) > pairs.max()
    asked = attacker(*honest.astype(np.float32))
    np.testing.assert_allclose(min_max(asked), (1 - step) * mean, atol=1e-4)


@given(floor=st.floats(0, 1), seed=st.integers(0, 2**32 - 1))
def test_gradient_scaling_multiplies_each_element_by_a_draw_of_its_own(
    floor: float, seed: int
) -> None:
    ones = np.ones(200, dtype=np.float32)
    asked = attacker(ones, factor=floor, attack="gradient-scaling", seed=seed)
    forged = attack_named("gradient-scaling").forge(asked)
    assert forged.min() >= np.float32(floor)
    assert forged.max() <= 1
    if floor < 0.9:
        assert len(np.unique(forged)) > 150


def test_an_unknown_attack_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match="'noise'; known are gradient-scaling, same"):
        attack_named("noise")


def test_an_attack_has_its_usual_factor_or_one_in_its_range() -> None:
    scaling = attack_named("gradient-scaling")
    assert scaling.factor_for(AttackParameters()) == 0.5
    assert scaling.factor_for(AttackParameters(0.0)) == 0
    for factor in (-0.1, 1.1, float("nan")):
        with pytest.raises(ConfigurationError, match=f"factor = {factor}: attack 'gradient-scal"):
            scaling.factor_for(AttackParameters(factor))


@pytest.mark.parametrize("name", ["same-value", "min-max"])
def test_an_attack_that_leaves_nothing_open_refuses_a_factor(name: str) -> None:
    attack_named(name).factor_for(AttackParameters())
    with pytest.raises(ConfigurationError, match=f"factor = 2: attack '{name}' takes none"):
        attack_named(name).factor_for(AttackParameters(2))
