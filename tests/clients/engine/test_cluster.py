"""Actors of a Ray cluster compute what this process computes, also when a node is lost."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from clients.configuration import load
from clients.engine.cluster import RayEngine
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.rules.distance.rule import plain_distances
from tests.clients.engine.made import CONVOLUTIONAL, workload

SECONDS = 300


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="the extra 'ray' is missing")
def test_updates_are_the_same_on_two_nodes_while_one_is_lost_and_after_it() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.clients.engine.two_nodes"],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    lines = ended.stdout.decode().strip().splitlines()
    assert lines, ended.stderr.decode()[-2000:]
    assert json.loads(lines[-1]) == {
        "with two nodes": True,
        "while one is lost": True,
        "with one node": True,
        "evaluation": True,
    }


def test_without_ray_a_sentence_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigurationError, match="needs the extra 'ray'"):
        RayEngine(workload(CONVOLUTIONAL), 2, plain_distances)


def test_an_address_without_ray_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"machine\.engine is not ray"):
        load("smoke", settings=("machine.ray_address=10.0.0.1:6379",))
    settings = ("machine.engine=ray", "machine.ray_address=10.0.0.1:6379")
    assert load("smoke", settings=settings).machine.ray_address == "10.0.0.1:6379"
