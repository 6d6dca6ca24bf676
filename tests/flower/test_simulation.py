"""Flower's simulation comes to the heads of this project's own engine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.flower.processes import CHAIN_ID, SECONDS, environment, head_in, run

if TYPE_CHECKING:
    from collections.abc import Sequence

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

    from cmfl.flower import client_app, owner_app

    pickle: Any = cloudpickle
    for app in (client_app(tmp_path / "run.toml"), owner_app()):
        assert type(pickle.loads(pickle.dumps(app))) is type(app)


def test_owners_behind_a_simulated_carrier_have_that_head_too(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.flower.carried_simulation", str(tmp_path)],
        cwd=Path(__file__).parents[2],
        env=environment(tmp_path),
        capture_output=True,
        timeout=SECONDS,
        check=False,
        text=True,
    )
    lines = ended.stdout.strip().splitlines()
    assert lines, ended.stderr[-3000:]
    assert json.loads(lines[-1]) == {"honest": True, "lying": True}
