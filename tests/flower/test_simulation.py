"""Flower's simulation comes to the heads of this project's own engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.flower.processes import CHAIN_ID, head_in, run

SMALL = ("--preset", "smoke", "--set", "protocol.rounds=2", "--chain-id", CHAIN_ID)
MALICIOUS = ("--set", "malice.attack=back-gradient", "--set", "malice.malicious_rate=0.2")
ROUNDED = ("--set", "protocol.payload=q8")


@pytest.mark.parametrize("settings", [(), (*MALICIOUS, *ROUNDED)], ids=["honest", "malicious"])
def test_heads_through_the_simulation_and_directly_are_equal(
    tmp_path: Path, settings: Sequence[str]
) -> None:
    heads = []
    for engine in ("local", "flower"):
        home = tmp_path / engine
        machine = ("--set", f"machine.engine={engine}", "--set", "machine.workers=2")
        output = run("cmfl", "run", "--home", home, *SMALL, *settings, *machine, folder=tmp_path)
        heads.append(head_in(output))
    assert heads[0] == heads[1]
    run("cmfl", "audit", "--home", tmp_path / "flower", folder=tmp_path)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_apps_of_a_project_can_be_sent_to_actors(tmp_path: Path) -> None:
    from ray import cloudpickle

    from cmfl.flower import client_app

    pickle: Any = cloudpickle
    app = client_app(tmp_path / "run.toml")
    assert type(pickle.loads(pickle.dumps(app))) is type(app)
