"""What a federation stands on is begun again when it ends, and named where that is of no use."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from clients.configuration.parsing import plain_values
from clients.testnet import ChainKind
from clients.testnet.network import (
    PACES,
    LocalNetwork,
    NetworkSettings,
    fitted_to_pace,
    wait_for_port,
)
from clients.testnet.node import ChainNode, free_port
from clients.testnet.watch import MOST_RESTARTS, NetworkSupervisor
from ledger.io.forked_commands import CommandError, CommandRunner
from tests.patience import PATIENCE_SECONDS
from tests.processes import MODULES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PACE = PACES[ChainKind.EMBEDDED]
ENTRY = "tests.io.program:main"


class Standing(LocalNetwork):
    """A federation without workers, whose node and store only answer."""

    def __init__(self, home: Path, processes: CommandRunner) -> None:
        configuration = fitted_to_pace(plain_values("smoke"), PACE)
        super().__init__(NetworkSettings(home, configuration, workers=1))
        self.processes = processes
        self.node = ChainNode(self.settings, processes)
        self.node.start()
        self._store_port = free_port()
        self.restart_store()

    @property
    def manifest(self) -> Any:
        return SimpleNamespace(chain_id=1)


@pytest.fixture
def standing(tmp_path: Path) -> Iterator[Standing]:
    logs = tmp_path / "logs"
    with CommandRunner(ENTRY, logs, MODULES) as processes:
        yield Standing(tmp_path / "home", processes)


def minder(federation: LocalNetwork) -> NetworkSupervisor:
    watch: Any = None  # no round is looked at
    return NetworkSupervisor(federation, watch)


def test_an_ended_node_or_store_is_restarted_on_its_port(standing: Standing) -> None:
    mind, node, store = minder(standing), standing.node.process, standing.store
    assert store is not None
    mind._mind()
    assert (standing.node.process, standing.store) == (node, store)
    node.kill()
    store.kill()
    mind._mind()
    assert standing.node.process.pid != node.pid
    assert standing.node.ask("eth_chainId") == "0x1"
    assert standing.store is not None
    assert standing.store.code() is None


def test_a_store_that_ends_again_and_again_is_named(standing: Standing) -> None:
    mind = minder(standing)
    for left in reversed(range(MOST_RESTARTS + 1)):
        assert standing.store is not None
        standing.store.kill()
        if left:
            mind._mind()
    with pytest.raises(CommandError, match=r"store has ended 6 times within 60 s"):
        mind._mind()


def test_a_chain_in_memory_is_gone_with_its_process(standing: Standing) -> None:
    standing.node.kind = ChainKind.ANVIL
    standing.node.process.kill()
    with pytest.raises(CommandError, match="its chain with it"):
        minder(standing)._mind()


def test_who_has_ended_is_not_up_because_somebody_else_listens(standing: Standing) -> None:
    ended = standing.processes.start("other", ["fail", "the port is taken"])
    assert ended.wait(PATIENCE_SECONDS) == 70
    with pytest.raises(CommandError, match=r"other ended: .*the port is taken"):
        wait_for_port(standing.node.port, ended)
