"""A user's own attack: a function in a file, bound by digest, and held to the port's rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from clients.attacks.own_attack import try_attack
from clients.attacks.registry import GROUP, attack_named
from clients.attacks.updates.update_attack import AttackInput, AttackParameters
from clients.configuration.loading import load
from clients.runs.population import populate, run_document
from ledger.protocol.errors import ConfigurationError
from tests.cmfl.commands.conftest import cmfl, refusal, succeeds

if TYPE_CHECKING:
    from pathlib import Path

OWN = np.arange(4, dtype=np.float32)
RUN = ("--preset", "smoke", "--set", "malice.malicious_rate=0.3")


def attacker(factor: float = 1.0) -> AttackInput:
    return AttackInput(OWN, np.stack([OWN, -OWN]), np.random.default_rng(0), factor)


def written(folder: Path, text: str) -> str:
    path = folder / "evil.py"
    path.write_text(text, "utf-8")
    return f"{path}:evil"


def test_a_function_of_arrays_is_an_attack(tmp_path: Path) -> None:
    text = "def evil(own, colluders, rng, factor=3):\n    return -factor * own + colluders.sum(0)\n"
    attack = attack_named(written(tmp_path, text))
    assert attack.name == "evil.py:evil"
    assert attack.forge(attacker(factor=2.0)).tolist() == (-2 * OWN).tolist()
    assert attack.factor_for(AttackParameters()) == 3
    assert attack.factor_for(AttackParameters(factor=5.0)) == 5
    assert attack.forge(attacker()).dtype == np.float32


def test_a_function_may_take_the_whole_input(tmp_path: Path) -> None:
    text = "def evil(attacker):\n    return attacker.own + attacker.trainers\n"
    attack = attack_named(written(tmp_path, text))
    assert attack.forge(attacker()).tolist() == (OWN + 1).tolist()
    assert attack.factor is None


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return own[:2]", r"returns float32 of shape \(2,\); must return floats of shape \(4,\)"),
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
        ("from shutil import rmtree as evil", "is no function that is defined there"),
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


def test_a_wrong_own_attack_ends_before_anything_is_written(tmp_path: Path) -> None:
    reference = written(tmp_path, "def evil(own, colluders, rng):\n    return own[1:]\n")
    home = tmp_path / "h"
    refused = refusal("run", "--home", home, *RUN, "--set", f"malice.attack={reference}")
    assert "must return floats of shape" in refused
    assert not home.exists()
