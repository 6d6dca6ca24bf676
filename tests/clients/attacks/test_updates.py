"""Attacks on updates, a user's own among them, by pencil and by property."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.attacks.registry import ATTACKS, GROUP, attack_named, try_attack
from clients.attacks.updates import (
    AttackHistory,
    AttackInput,
    AttackParameters,
    largest_step,
    largest_z,
    min_max,
)
from clients.configuration.loading import load
from clients.runs.population import populate, run_document
from ledger.protocol.encoding import RegisteredClient
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.inputs import Inputs, Participants, RoundClosing
from ledger.protocol.judgement import next_model
from ledger.protocol.types import NO_DIGEST, Address, ClientId, Domain
from tests.cmfl.commands.conftest import cmfl, refusal, succeeds

UPDATE = np.array([1.0, -2.0, 0.0, 4.0], dtype=np.float32)
OTHER = np.array([3.0, 2.0, 1.0, -2.0], dtype=np.float32)

ALONE = {"alie": 1, "min-max": 1, "mimic": 1, "adaptive": 1, "ipm": -0.5, "false-reference": -0.5}
"""What one attacker alone sends where an attack is made of the colluders': its own, times this."""


def attacker(
    *colluders: np.ndarray,
    factor: float | None = None,
    attack: str = "same-value",
    seed: int = 0,
    **context: Any,
) -> AttackInput:
    known = np.stack(colluders or (UPDATE,))
    number = attack_named(attack).factor_for(AttackParameters(factor))
    model = np.zeros_like(known[0])
    history = AttackHistory(model - 1, ((known[0] / 2,),))
    context = {"model": model, "history": history} | context
    return AttackInput(known[0], known, np.random.default_rng(seed), number, **context)


def sent(
    attack: str, *colluders: np.ndarray, factor: float | None = None, **context: Any
) -> list[float]:
    asked = attacker(*colluders, factor=factor, attack=attack, **context)
    found: list[float] = attack_named(attack).forge(asked).tolist()
    return found


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_returns_a_new_vector_of_equal_shape(name: str) -> None:
    first, second = (
        dataclasses.replace(
            # Two of three: half of a round's, which one attack waits for.
            attacker(OTHER, UPDATE, attack=name, trainers=3, attacking_trainers=2),
            own=UPDATE,
        )
        for _ in range(2)
    )
    forged = attack_named(name).forge(first)
    assert forged.dtype == np.float32
    assert forged.shape == UPDATE.shape
    assert not np.array_equal(forged, UPDATE)
    assert np.array_equal(first.own, UPDATE)
    assert np.array_equal(first.colluders, np.stack([OTHER, UPDATE]))
    assert np.array_equal(forged, attack_named(name).forge(second))


@given(
    name=st.sampled_from(list(ATTACKS)),
    seed=st.integers(0, 2**32 - 1),
    colluders=st.integers(1, 5),
    dimension=st.integers(1, 8),
    scale=st.sampled_from([0.0, 1e-30, 1.0, 1e12]),
    is_member=st.booleans(),
)
def test_of_finite_updates_an_attack_makes_a_finite_one(
    name: str, seed: int, colluders: int, dimension: int, scale: float, is_member: bool
) -> None:
    rng = np.random.default_rng(seed)
    known = (scale * rng.standard_normal((colluders, dimension))).astype(np.float32)
    asked = attacker(
        *known, attack=name, trainers=7, attacking_trainers=colluders, is_member=is_member
    )
    forged = attack_named(name).forge(asked)
    assert forged.dtype == np.float32
    assert forged.shape == (dimension,)
    assert np.isfinite(forged).all()


@pytest.mark.parametrize("name", ALONE)
def test_a_single_attacker_uses_its_own_update_as_mean(name: str) -> None:
    assert sent(name, UPDATE, trainers=9) == (ALONE[name] * UPDATE).tolist()


def test_duplicate_forged_updates_are_marked_as_such() -> None:
    for name, attack in ATTACKS.items():
        if attack.forge_all is not None:
            continue
        asked = attacker(UPDATE, OTHER, attack=name, trainers=9, attacking_trainers=2)
        other = dataclasses.replace(asked, own=OTHER, rng=np.random.default_rng(1))
        is_same = np.array_equal(attack.forge(asked), attack.forge(other))
        assert is_same == (attack.is_common or name in {"same-value", "false-reference"}), name


def test_same_value_sends_zeros() -> None:
    assert sent("same-value") == [0, 0, 0, 0]


def test_back_gradient_sends_the_opposite_times_its_factor() -> None:
    assert sent("back-gradient") == [-1, 2, 0, -4]
    assert sent("back-gradient", factor=10) == [-10, 20, 0, -40]


def test_ipm_sends_half_the_colluders_mean_backwards() -> None:
    # The mean is (2, 0, 0.5, 1).
    assert sent("ipm", UPDATE, OTHER) == [-1, 0, -0.25, -0.5]
    assert sent("ipm", UPDATE, OTHER, factor=4) == [-8, 0, -2, -4]


def test_false_reference_is_ipm_for_trainers_and_tenfold_for_members() -> None:
    assert sent("false-reference", UPDATE, OTHER) == sent("ipm", UPDATE, OTHER)
    assert sent("false-reference", UPDATE, OTHER, is_member=True) == [-10, 20, 0, -40]
    tripled = sent("false-reference", UPDATE, OTHER, is_member=True, factor=3)
    assert tripled == [-3, 6, 0, -12]


def test_mimic_sends_the_first_colluders_honest_update_whoever_it_is() -> None:
    assert sent("mimic", OTHER, UPDATE) == OTHER.tolist()
    second = dataclasses.replace(attacker(OTHER, UPDATE, attack="mimic"), own=UPDATE)
    assert attack_named("mimic").forge(second).tolist() == OTHER.tolist()


def test_alie_moves_each_element_by_z_standard_deviations() -> None:
    # Mean (2, 0, 0.5, 1), standard deviation (1, 2, 0.5, 3).
    assert sent("alie", UPDATE, OTHER, factor=1) == [1, -2, 0, -2]
    # 2 of 20 need 9 of the 18 honest ones to lie farther out, which half of them do: z = 0.
    assert sent("alie", UPDATE, OTHER, trainers=20, attacking_trainers=2) == [2, 0, 0.5, 1]


@pytest.mark.parametrize(
    ("clients", "attackers", "z"),
    [
        # s = 51 - 30 = 21 supporters of 70: the quantile of 0.7.
        (100, 30, 0.5244005),
        # The paper's own figures: n = 50, f = 12 (24 %) gives s = 14 of 38.
        (50, 12, 0.3360382),
        (10, 1, 0.0),
        # A majority needs one honest client beyond it: 3 of 4.
        (10, 6, 0.6744898),
        (10, 10, 0.0),
    ],
)
def test_alies_z_leaves_supporters_for_a_majority(clients: int, attackers: int, z: float) -> None:
    assert largest_z(clients, attackers) == pytest.approx(z, abs=1e-6)


def test_gaussian_noise_has_the_length_of_the_replaced_update() -> None:
    own = np.full(20_000, 3.0, dtype=np.float32)
    noise, larger = np.array([sent("gaussian", own), sent("gaussian", own, factor=10)])
    assert noise.std() == pytest.approx(3.0, rel=0.02)
    assert abs(noise.mean()) < 0.1
    np.testing.assert_allclose(larger, 10 * noise, rtol=1e-5)
    assert sent("gaussian", np.zeros(3, dtype=np.float32)) == [0, 0, 0]


def test_min_max_goes_as_far_as_the_colluders_differ() -> None:
    # Updates 0 and 2: mean 1, widest distance 2. One step of the mean backwards is 0, which is 2
    # away from the update 2.
    first, second = (np.array([x], dtype=np.float32) for x in (0.0, 2.0))
    assert sent("min-max", first, second) == [0]


@given(st.integers(0, 2**32 - 1), st.integers(2, 8), st.integers(1, 40))
def test_min_max_goes_as_far_as_it_can(seed: int, colluders: int, dimension: int) -> None:
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
def test_gradient_scaling_multiplies_each_element_by_its_own_draw(floor: float, seed: int) -> None:
    ones = np.ones(200, dtype=np.float32)
    asked = attacker(ones, factor=floor, attack="gradient-scaling", seed=seed)
    forged = attack_named("gradient-scaling").forge(asked)
    assert forged.min() >= np.float32(floor)
    assert forged.max() <= 1
    if floor < 0.9:
        assert len(np.unique(forged)) > 150


def test_an_attack_has_its_default_factor_or_one_in_range() -> None:
    scaling = attack_named("gradient-scaling")
    assert scaling.factor_for(AttackParameters()) == 0.5
    assert scaling.factor_for(AttackParameters(0.0)) == 0
    for factor in (-0.1, 1.1, float("nan")):
        with pytest.raises(ConfigurationError, match=f"factor = {factor}: attack 'gradient-scal"):
            scaling.factor_for(AttackParameters(factor))


@pytest.mark.parametrize("name", ["same-value", "min-max", "mimic", "adaptive"])
def test_an_attack_that_leaves_nothing_open_refuses_a_factor(name: str) -> None:
    attack_named(name).factor_for(AttackParameters())
    with pytest.raises(ConfigurationError, match=f"factor = 2: attack '{name}' takes no factor"):
        attack_named(name).factor_for(AttackParameters(2))


OWN = np.arange(4, dtype=np.float32)
RUN = ("--preset", "smoke", "--set", "malice.malicious_rate=0.3")


def own_attack_attacker(factor: float = 1.0) -> AttackInput:
    return AttackInput(OWN, np.stack([OWN, -OWN]), np.random.default_rng(0), factor)


def written(folder: Path, text: str) -> str:
    path = folder / "evil.py"
    path.write_text(text, "utf-8")
    return f"{path}:evil"


def test_a_function_of_arrays_is_an_attack(tmp_path: Path) -> None:
    text = "def evil(own, colluders, rng, factor=3):\n    return -factor * own + colluders.sum(0)\n"
    attack = attack_named(written(tmp_path, text))
    assert attack.name == "evil.py:evil"
    assert attack.forge(own_attack_attacker(factor=2.0)).tolist() == (-2 * OWN).tolist()
    assert attack.factor_for(AttackParameters()) == 3
    assert attack.factor_for(AttackParameters(factor=5.0)) == 5
    assert attack.forge(own_attack_attacker()).dtype == np.float32


def test_a_function_may_take_the_whole_input(tmp_path: Path) -> None:
    text = "def evil(attacker):\n    return attacker.own + attacker.trainers\n"
    attack = attack_named(written(tmp_path, text))
    assert attack.forge(own_attack_attacker()).tolist() == (OWN + 1).tolist()
    assert attack.factor is None


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return own[:2]", r"returns float32 \(2,\); must be floats \(4,\)"),
        ("own[0] = 1; return own", "changes its input: ValueError: assignment destination"),
        ("colluders *= 2; return own", r"changes its input: .* \(evil.py, line 3\)"),
        ("raise KeyError('x')", "it fails, or changes its input: KeyError: 'x'"),
    ],
)
def test_a_function_that_breaks_a_rule_is_refused(tmp_path: Path, body: str, message: str) -> None:
    text = f"import numpy as np\ndef evil(own, colluders, rng):\n    {body}\n"
    attack = attack_named(written(tmp_path, text))
    with pytest.raises(ConfigurationError, match=f"evil.py:evil.*{message}"):
        try_attack(attack, 4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("raise RuntimeError('no')", "evil.py cannot be loaded: RuntimeError: no"),
        ("good = 1", "has no function 'evil'"),
        ("from shutil import rmtree as evil", "is not a function defined there"),
        ("def evil(own, colluders):\n    return own", "takes own, colluders; must take"),
        ("def evil(own, colluders, rng, factor):\n    return own", "must have a number as default"),
    ],
)
def test_a_file_without_such_a_function_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        attack_named(written(tmp_path, text))


def test_an_unknown_attack_is_refused_with_the_form_of_own_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"known are gradient-scaling, .*file\.py:NAME"):
        attack_named("evil")
    assert GROUP == "cmfl.attacks"


def test_the_run_document_names_an_own_attack_by_digest(tmp_path: Path) -> None:
    reference = written(tmp_path, "def evil(own, colluders, rng):\n    return -own\n")
    settings = (f"malice.attack={reference}", "malice.malicious_rate=0.3")
    configuration = load("smoke", settings=settings)
    experiment = run_document(configuration, populate(configuration)).experiment
    assert experiment["malice"]["attack"] == "evil.py:evil"
    assert set(experiment["sources"]["attack"]) == {"name", "sha256"}
    plain = load("smoke", settings=("malice.attack=ipm", "malice.malicious_rate=0.3"))
    assert "sources" not in run_document(plain, populate(plain)).experiment


def test_a_run_with_an_own_attack_is_bound_and_audited(tmp_path: Path) -> None:
    reference = written(tmp_path, "def evil(own, colluders, rng):\n    return -own\n")
    home = tmp_path / "h"
    attack = ("--set", f"malice.attack={reference}", "--set", "protocol.rounds=2")
    assert cmfl("run", "--home", home, *RUN, *attack, "--json").code == 0  # warned of: C = 4
    assert succeeds("audit", "--home", home, "--json").json["outcome"] == "passed"
    written(tmp_path, "def evil(own, colluders, rng):\n    return 2 * own\n")
    refused = refusal("run", "--home", home, "--resume", *attack[:2])
    assert "malice.attack = 'evil.py:evil': the run's code has sha256" in refused


ADDRESS = Address(bytes(20))
ACCEPTED = tuple(map(ClientId, range(4)))
UPDATES = {client: np.eye(4, dtype=np.float32)[client] for client in ACCEPTED}


def model_after(strategy: int, samples: tuple[int, ...]) -> list[float]:
    settings = (f"protocol.strategy={strategy}",)
    inputs = Inputs(
        parameters=load("digits", settings=settings).parameters(4),
        domain=Domain(0, ADDRESS, NO_DIGEST),
        registry=tuple(RegisteredClient(ADDRESS, count) for count in samples),
        round=1,
        seed=NO_DIGEST,
        participants=Participants((), ACCEPTED, frozenset()),
        closing=RoundClosing(0, NO_DIGEST, {}),
    )
    found: list[float] = next_model(inputs, np.zeros(4, np.float32), ACCEPTED, UPDATES).tolist()
    return found


@pytest.mark.parametrize("strategy", [1, 2])
def test_declared_samples_weigh_in_the_papers_strategies(strategy: int) -> None:
    assert model_after(strategy, (1, 1, 1, 1)) == [-0.25] * 4
    assert model_after(strategy, (1, 1, 1, 5)) == [-0.125, -0.125, -0.125, -0.625]


def test_declared_samples_have_no_effect_in_strategy_three() -> None:
    assert model_after(3, (1, 2, 3, 4000)) == model_after(3, (1, 1, 1, 1)) == [-0.25] * 4
