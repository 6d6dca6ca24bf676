"""Owners' workers, SuperNodes, SuperLink, chain and carrier: each a process of its own."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from clients.onboarding.keystores import PASSWORD_FILE
from ledger.chain.embedded.genesis import TEST_KEYS
from tests.flower.processes import CHAIN_ID, Background, free_port, head_in, run

if TYPE_CHECKING:
    from pathlib import Path

OWNERS, CLIENTS = 3, 12
SETTINGS = (
    *("--preset", "smoke", "--set", "protocol.rounds=1", "--set", "training.path=plain"),
    *("--set", "protocol.view_seconds=60", "--set", "protocol.commit_blocks=600"),
    *("--set", "protocol.deadline_blocks=3000"),
)


def test_owners_behind_a_deployed_carrier_decide_the_same_round(tmp_path: Path) -> None:
    with Background(tmp_path) as processes:
        _deploy(processes)
        processes.start("run", "flwr", "run", tmp_path / "app", "--stream")
        output = processes.until("run", lambda text: "cmfl: the run is over" in text, 600)
        for owner in range(OWNERS):
            assert processes.wait(f"worker-{owner}", 60) == 0
    home = tmp_path / "app" / "home"
    run(
        "cmfl",
        "run",
        "--home",
        tmp_path / "direct",
        *SETTINGS,
        "--chain-id",
        CHAIN_ID,
        folder=tmp_path,
    )
    rounds = [
        json.loads(run("cmfl", "rounds", "show", 1, "--home", each, "--json", folder=tmp_path))
        for each in (home, tmp_path / "direct")
    ]
    assert rounds[0]["head"] == head_in(output)
    for field in ("model", "ranking", "committee", "next_committee"):
        assert rounds[0][field] == rounds[1][field]
    run("cmfl", "audit", "--home", home, folder=tmp_path)


def _deploy(processes: Background) -> None:
    """Deploy a run, serve its chain, and start SuperLink, SuperNodes and workers."""
    folder, (node, link, *ports) = processes.folder, [free_port() for _ in range(OWNERS + 2)]
    home, keys = folder / "app" / "home", folder / "keys"
    (folder / "flwr").mkdir()
    (folder / "flwr" / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{link}"\n'
        f"insecure = true\n"
    )
    run("cmfl", "flower", "new", folder / "app", "--carrier", folder=folder)
    deployed = run(
        "cmfl", "deploy", "--home", home, *SETTINGS, "--chain-id", CHAIN_ID, folder=folder
    )
    contract = re.findall("0x[0-9a-fA-F]{40}", deployed)[0]
    url = f"http://127.0.0.1:{node}"
    _configure(folder / "app" / "pyproject.toml", url, contract)
    run("cmfl", "keys", "simulated", *SETTINGS, "--folder", keys, folder=folder)
    chain = ("cmfl", "chain", "serve", "--home", home, "--port", node, "--block-time", 1)
    processes.start("chain", *chain)
    processes.until("chain", lambda text: url in text)
    on_node = ("--rpc-url", url, "--chain-id", CHAIN_ID)
    stores = [keys / f"client-{client:03d}.json" for client in range(CLIENTS)]
    for owner in range(OWNERS):
        shown = run("cmfl", "keys", "show", "--keystore", stores[owner], folder=folder)
        address = re.findall("0x[0-9a-fA-F]{40}", shown)[0]
        processes.start(
            "fund",
            *("cmfl", "chain", "fund", address, "--amount", 10, *on_node),
            CMFL_PRIVATE_KEY=TEST_KEYS[0].hex(),
        )
        assert processes.wait("fund") == 0, processes.text("fund")
    superlink = ("flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", link)
    processes.start("link", *superlink)
    processes.until("link", lambda text: "Uvicorn running" in text)
    for owner in range(OWNERS):
        carried = folder / f"carried-{owner}"
        carried.mkdir()
        processes.start(
            f"node-{owner}",
            *("flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{link}"),
            *("--host", "127.0.0.1", "--port", ports[owner]),
            *("--node-config", f'carried="{carried}"'),
        )
        own = [word for store in stores[owner::OWNERS] for word in ("--keystore", store)]
        processes.start(
            f"worker-{owner}",
            *("cmfl", "worker", *on_node, "--contract", contract, *own),
            *("--blobs", f"carried://{carried}", "--mailbox", f"carried://{carried}"),
            *("--password-file", keys / PASSWORD_FILE, "--folder", folder / f"own-{owner}"),
            *("--confirmations", 0, "--allow-predictable-seeds"),
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
