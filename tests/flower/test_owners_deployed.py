"""Owners' workers, SuperNodes, SuperLink, chain and carrier: each a process of its own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clients.onboarding.keystores import PASSWORD_FILE
from clients.testnet.chain_node import free_port
from ledger.chain.embedded.genesis import TEST_KEYS
from tests.flower.processes import CHAIN_ID, CONNECTION, Background, head_in, run

if TYPE_CHECKING:
    from pathlib import Path

OWNERS, CLIENTS = 3, 12
SETTINGS = (
    *("--preset", "smoke", "--set", "protocol.rounds=1", "--set", "training.path=plain"),
    *("--set", "protocol.view_seconds=60", "--set", "protocol.commit_blocks=600"),
    *("--set", "protocol.deadline_blocks=3000"),
)
ADDRESS = re.compile("0x[0-9a-fA-F]{40}")


def test_owners_behind_a_deployed_carrier_have_the_head_of_one_process(tmp_path: Path) -> None:
    app = tmp_path / "app"
    with Background(tmp_path) as processes:
        network = _deployed(processes)
        processes.start("run", "flwr", "run", app, "--stream")
        for owner in range(OWNERS):
            _start_worker(processes, network, owner)
            # One owner commits after another: the order of commitments is part of a head.
            processes.until(f"worker-{owner}", lambda text: "the chain took commitments" in text)
        output = processes.until("run", lambda text: "cmfl: the run is over" in text, 600)
        for owner in range(OWNERS):
            assert processes.wait(f"worker-{owner}", 60) == 0
    direct = ("cmfl", "run", "--home", tmp_path / "direct", *SETTINGS, "--chain-id", CHAIN_ID)
    assert head_in(output) == head_in(run(*direct, folder=tmp_path))
    run("cmfl", "audit", "--home", app / "home", folder=tmp_path)


@dataclass(frozen=True)
class Network:
    """Where all meet.

    Attributes:
        node: options that name the chain's node.
        contract: its address.
        keystores: of the clients, in order.
        password: file of their password.
    """

    node: tuple[str, ...]
    contract: str
    keystores: list[Path]
    password: Path

    def of_owner(self, owner: int) -> list[Path]:
        """Return the keystores of an owner's clients."""
        share = CLIENTS // OWNERS
        return self.keystores[owner * share : (owner + 1) * share]


def _deployed(processes: Background) -> Network:
    """Deploy a run, serve its chain, and start a SuperLink and the owners' SuperNodes."""
    folder, (node, link, *ports) = processes.folder, [free_port() for _ in range(OWNERS + 2)]
    home, keys, url = folder / "app" / "home", folder / "keys", f"http://127.0.0.1:{node}"
    (folder / "flwr").mkdir()
    (folder / "flwr" / "config.toml").write_text(CONNECTION.format(port=link))
    run("cmfl", "flower", "new", folder / "app", "--carrier", folder=folder)
    deploy = ("cmfl", "deploy", "--home", home, *SETTINGS, "--chain-id", CHAIN_ID)
    contract = ADDRESS.findall(run(*deploy, folder=folder))[0]
    _configure(folder / "app" / "pyproject.toml", url, contract)
    run("cmfl", "keys", "simulated", *SETTINGS, "--folder", keys, folder=folder)
    chain = ("cmfl", "chain", "serve", "--home", home, "--port", node, "--block-time", 1)
    processes.start("chain", *chain)
    processes.until("chain", lambda text: url in text)
    stores = [keys / f"client-{client:03d}.json" for client in range(CLIENTS)]
    network = Network(
        ("--rpc-url", url, "--chain-id", CHAIN_ID), contract, stores, keys / PASSWORD_FILE
    )
    processes.start(
        "link", "flower-superlink", "--insecure", *("--host", "127.0.0.1"), "--port", link
    )
    processes.until("link", lambda text: "Uvicorn running" in text)
    for owner in range(OWNERS):
        _fund(processes, network, owner)
        carried = folder / f"carried-{owner}"
        carried.mkdir()
        processes.start(
            f"node-{owner}",
            *("flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{link}"),
            *("--host", "127.0.0.1", "--port", ports[owner]),
            *("--node-config", f'carried="{carried}"'),
        )
    return network


def _fund(processes: Background, network: Network, owner: int) -> None:
    """Pay one account of an owner, which pays for all of its clients."""
    store = network.of_owner(owner)[0]
    shown = run("cmfl", "keys", "show", "--keystore", store, folder=processes.folder)
    words = ("cmfl", "chain", "fund", ADDRESS.findall(shown)[0], "--amount", 10, *network.node)
    processes.start("fund", *words, CMFL_PRIVATE_KEY=TEST_KEYS[0].hex())
    assert processes.wait("fund") == 0, processes.text("fund")


def _start_worker(processes: Background, network: Network, owner: int) -> None:
    carried = f"carried://{processes.folder}/carried-{owner}"
    own = [word for store in network.of_owner(owner) for word in ("--keystore", store)]
    processes.start(
        f"worker-{owner}",
        *("cmfl", "worker", *network.node, "--contract", network.contract, *own),
        *("--blobs", carried, "--mailbox", carried, "--password-file", network.password),
        *("--folder", processes.folder / f"own-{owner}", "--confirmations", 0),
        "--allow-predictable-seeds",
    )


def _configure(project: Path, url: str, contract: str) -> None:
    text = project.read_text()
    for old, new in (
        ("http://127.0.0.1:8545", url),
        ("chain-id = 1337", f"chain-id = {CHAIN_ID}"),
        ('contract = ""', f'contract = "{contract}"'),
    ):
        assert old in text
        text = text.replace(old, new)
    project.write_text(text)
