"""A node takes what is sent while workers begin, and lets no window pass meanwhile."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from clients.configuration.parsing import plain_values
from clients.testnet import ChainKind
from clients.testnet.network import PACES, NetworkSettings, fitted_to_pace
from clients.testnet.node import ChainNode, free_port
from ledger.io.forked_commands import CommandRunner
from tests.chain.anvil import anvil_program
from tests.patience import wait_until
from tests.processes import MODULES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ENTRY = "tests.io.program:main"
SENDERS = 3


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ChainNode]:
    program = anvil_program()
    configuration = fitted_to_pace(plain_values("smoke"), PACES[ChainKind.ANVIL])
    settings = NetworkSettings(
        tmp_path, configuration, workers=1, chain=ChainKind.ANVIL, anvil=program
    )
    logs = tmp_path / "logs"
    with CommandRunner(ENTRY, logs, MODULES) as processes:
        found = ChainNode(settings, processes)
        found.start()
        yield found


def height(node: ChainNode) -> int:
    return int(str(node.ask("eth_blockNumber")), 16)


@pytest.mark.network
def test_transactions_sent_during_start_up_take_no_window_block(node: ChainNode) -> None:
    accounts = node.ask("eth_accounts")
    assert isinstance(accounts, list)
    own = accounts[0]
    node.hold()
    before = height(node)
    for _ in range(SENDERS):
        node.ask("eth_sendTransaction", {"from": own, "to": own, "value": "0x1"})
    assert height(node) == before
    node.go()
    wait_until(lambda: height(node) > before, lambda: "blocks come by themselves")
    block = node.ask("eth_getBlockByNumber", hex(before + 1), False)
    assert isinstance(block, dict)
    assert len(block["transactions"]) == SENDERS


def test_a_port_is_free_and_none_that_the_system_gives_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {free_port() // 10_000 for _ in range(50)} == {1, 2}
    with socket.create_server(("127.0.0.1", free_port())) as taken:
        port = taken.getsockname()[1]
        drawn = [port - 10_000, port - 10_000, 7]
        monkeypatch.setattr("secrets.randbelow", lambda _: drawn.pop(0))
        assert free_port() == 10_007
    assert drawn == []
