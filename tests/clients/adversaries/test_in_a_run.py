"""Attackers in a whole run: what they are told, and that everybody judges what they sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clients.attacks.registry import ATTACKS
from clients.attacks.updates.update_attack import AttackInput, Update, UpdateAttack
from clients.configuration.loading import load
from clients.runs.open_run import open_memory_run
from tests.seeds import first_that_shows

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

ROUNDS = 3
SETTINGS = (
    "machine.ledger=memory",
    f"protocol.rounds={ROUNDS}",
    "protocol.strategy=3",
    "malice.attack=adaptive",
    "malice.malicious_rate=0.3",
)


def played(home: Path, seed: int, *settings: str) -> tuple[list[np.ndarray], int]:
    """Return the model of each round and how many attackers' updates were accepted."""
    configuration = load("smoke", settings=(*SETTINGS, f"seed={seed}", *settings))
    models = []
    with open_memory_run(home, "run", configuration) as run:
        rows = run.go_on(lambda _: models.append(np.array(run.simulation.model)))
    return models, sum(row.malicious_accepted for row in rows)


def test_a_run_tells_attackers_rules_displacement_and_committee(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[AttackInput] = []
    forge = ATTACKS["adaptive"].forge

    def looking(asked: AttackInput) -> Update:
        seen.append(asked)
        return forge(asked)

    def play(seed: int) -> list[np.ndarray]:
        seen.clear()
        models, _ = played(tmp_path / str(seed), seed)
        return models

    def sat_on_both_sides(_: list[np.ndarray]) -> bool:
        return {asked.is_member for asked in seen} == {True, False}

    monkeypatch.setitem(ATTACKS, "adaptive", UpdateAttack("adaptive", looking))
    models = first_that_shows(sat_on_both_sides, play, first=0)
    rules = load("smoke", settings=SETTINGS).parameters(len(models[0]))
    assert all(asked.parameters == rules and asked.trainers == rules.trainers for asked in seen)
    travels = [asked.travel for asked in seen]
    assert travels[0] is None or not travels[0].any(), "nothing lies behind the first round"
    assert travels[-1] is not None
    assert travels[-1].shape == models[0].shape
    assert travels[-1].any()


def test_an_attacked_run_is_reproducible_and_differs_by_its_base(tmp_path: Path) -> None:
    def play(seed: int) -> tuple[int, list[np.ndarray], int]:
        return seed, *played(tmp_path / f"first{seed}", seed)

    # The rule accepts who stays just inside it, in most runs.
    seed, models, accepted = first_that_shows(lambda one: one[2] > 0, play, first=0)
    again, other = (
        played(tmp_path / name, seed, *settings)
        for name, settings in (("again", ()), ("other", ("malice.on=weights",)))
    )
    assert all(np.array_equal(one, two) for one, two in zip(models, again[0], strict=True))
    assert accepted == again[1]
    assert not np.array_equal(models[-1], other[0][-1])
