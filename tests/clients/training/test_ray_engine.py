"""Actors of a Ray cluster compute what this process computes, also when a node is lost."""

from __future__ import annotations

import importlib.util
import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clients.configuration.loading import load
from clients.training.ray_engine import RayEngine, actor_device, require_reachable
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.rules.distance import plain_distances
from tests.clients.played import require_refused
from tests.clients.training.made import CONVOLUTIONAL, workload
from tests.processes import Forks

SECONDS = 600
VARIABLES = {
    # As nice as the tests beside it, which else all come before Ray's actors.
    "RAY_worker_niceness": "0",
    # A node that was killed refuses at once; one that is slow still has ten seconds to answer.
    "RAY_health_check_period_ms": "500",
}


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="the extra 'ray' is missing")
def test_two_nodes_give_equal_updates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[3])
    with (
        Forks(tmp_path, "tests.clients.training.two_nodes:main") as forks,
        forks.start(**VARIABLES) as process,
    ):
        output, errors = process.communicate(SECONDS)
    lines = output.strip().splitlines()
    assert lines, errors[-2000:]
    assert json.loads(lines[-1]) == {
        "with two nodes": True,
        "while one is lost": True,
        "with one node": True,
        "evaluation": True,
        "the device is named in the actor": True,
    }


@pytest.mark.parametrize(
    ("name", "actors", "cards", "expected"),
    [
        ("cpu", 3, 8.0, ("cpu", 0.0)),
        ("auto", 3, 0, ("cpu", 0.0)),
        ("auto", 2, 2.0, ("cuda", 1.0)),
        ("cuda", 2, 8.0, ("cuda", 1.0)),
        ("cuda", 3, 2.0, ("cuda", 0.5)),
    ],
)
def test_actors_share_cards_equally(name: str, actors: int, cards: float, expected: Any) -> None:
    assert actor_device(name, actors, cards) == expected


@pytest.mark.parametrize(
    ("name", "cards", "message"),
    [("cuda", 0, "the cluster has no GPU"), ("cuda:1", 4, "Ray assigns the cards")],
)
def test_cards_that_a_cluster_cannot_give_are_refused(name: str, cards: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        actor_device(name, 2, cards)


def test_without_ray_a_sentence_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigurationError, match=r"needs the extra \[ray\]"):
        RayEngine(workload(CONVOLUTIONAL), 2, plain_distances)
    with pytest.raises(ConfigurationError, match=r"needs the extra \[ray\]"):
        require_reachable("local")


@pytest.fixture
def closed_port() -> Iterator[int]:
    """Yield a port of this machine that is held, and at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.fixture
def with_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: object())


@pytest.mark.usefixtures("with_ray")
def test_an_address_without_a_listener_is_refused(closed_port: int, tmp_path: Path) -> None:
    address = f"127.0.0.1:{closed_port}"
    settings = ("machine.engine=ray", f"machine.ray_address={address}", "machine.ledger=memory")
    expected = f"machine.ray_address = {address}: no cluster responds"
    require_refused(tmp_path / "home", load("smoke", settings=settings), expected)
    assert not (tmp_path / "home").exists()


@pytest.mark.usefixtures("with_ray")
@pytest.mark.parametrize("address", ["nonsense", "host", "host:0", "host:65536", "a:1:2", ":1"])
def test_an_address_of_another_form_is_refused(address: str) -> None:
    with pytest.raises(ConfigurationError, match="must be HOST:PORT"):
        require_reachable(address)


@pytest.mark.usefixtures("with_ray")
def test_listening_addresses_and_those_found_by_ray_are_accepted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        require_reachable(f"127.0.0.1:{server.getsockname()[1]}")
    require_reachable("auto")
    require_reachable("local")


def test_an_address_without_ray_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"machine\.engine is not ray"):
        load("smoke", settings=("machine.ray_address=10.0.0.1:6379",))
    settings = ("machine.engine=ray", "machine.ray_address=10.0.0.1:6379")
    assert load("smoke", settings=settings).machine.ray_address == "10.0.0.1:6379"
