"""A SuperLink and SuperNodes in processes of their own: killed, restarted, and gone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from clients.testnet.network import free_port
from tests.flower.processes import CHAIN_ID, CONNECTION, Background, head_in, run

NODES = 3
SETTINGS = ("--preset", "smoke", "--set", "protocol.rounds=3")


class Federation(Background):
    """A SuperLink on loopback, its SuperNodes, and a project whose run they train."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.ports = [free_port() for _ in range(NODES + 1)]
        self.app = folder / "app"
        (folder / "flwr").mkdir()
        (folder / "flwr" / "config.toml").write_text(CONNECTION.format(port=self.ports[0]))
        run("cmfl", "flower", "new", self.app, *SETTINGS, folder=folder)
        self.set_option("chain-id = 0", f"chain-id = {CHAIN_ID}")

    def set_option(self, old: str, new: str) -> None:
        project = self.app / "pyproject.toml"
        text = project.read_text()
        assert old in text
        project.write_text(text.replace(old, new))

    def start_link(self) -> None:
        words = ("--insecure", "--host", "127.0.0.1", "--port", self.ports[0])
        self.start("link", "flower-superlink", *words)
        self.until("link", lambda text: "Uvicorn running" in text)

    def start_node(self, number: int, configuration: str = "") -> None:
        usual = f"partition-id={number} num-partitions={NODES}"
        self.start(
            f"node-{number}",
            *("flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{self.ports[0]}"),
            *("--host", "127.0.0.1", "--port", self.ports[number + 1]),
            *("--node-config", configuration or usual),
        )


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Federation]:
    with Federation(tmp_path) as opened:
        opened.start_link()
        yield opened


def test_a_killed_node_is_replaced_and_the_head_is_that_of_one_process(
    federation: Federation,
) -> None:
    for number in range(NODES):
        federation.start_node(number)
    federation.start("run", "flwr", "run", federation.app, "--stream")
    federation.until("run", lambda text: "cmfl: round 1 of 3" in text)
    federation.kill("node-1")
    federation.start_node(1)
    output = federation.until("run", lambda text: "cmfl: audit it with" in text)
    here = run(
        *("cmfl", "run", "--home", federation.folder / "direct", *SETTINGS),
        *("--chain-id", CHAIN_ID),
        folder=federation.folder,
    )
    assert head_in(output) == head_in(here)
    run("cmfl", "audit", "--home", federation.app / "home", folder=federation.folder)


def test_a_run_whose_link_was_lost_goes_on_behind_another(federation: Federation) -> None:
    for number in range(NODES):
        federation.start_node(number)
    federation.start("run", "flwr", "run", federation.app, "--stream")
    federation.until("run", lambda text: "cmfl: round 1 of 3" in text)
    federation.kill("link")
    for number in range(NODES):
        federation.kill(f"node-{number}")
    federation.kill("run")
    federation.start_link()
    for number in range(NODES):
        federation.start_node(number)
    federation.start("again", "flwr", "run", federation.app, "--stream")
    output = federation.until("again", lambda text: "cmfl: audit it with" in text)
    here = run(
        *("cmfl", "run", "--home", federation.folder / "direct", *SETTINGS),
        *("--chain-id", CHAIN_ID),
        folder=federation.folder,
    )
    assert head_in(output) == head_in(here)


def test_a_node_without_a_partition_is_named(federation: Federation) -> None:
    federation.start_node(0, "device='cpu'")
    federation.start("run", "flwr", "run", federation.app, "--stream")
    output = federation.until("run", lambda text: "a SuperNode refuses" in text)
    assert re.search(r"start each SuperNode with --node-config", output)
