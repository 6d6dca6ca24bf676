"""A local federation: its node, its supervisor, its workers' folders and its logs."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from clients.configuration.parsing import ALLOW_PREDICTABLE, plain_values
from clients.testnet import ChainKind
from clients.testnet.network import (
    PACES,
    ChainNode,
    LocalNetwork,
    NetworkPaths,
    NetworkSettings,
    WorkerSlot,
    fitted_to_pace,
    free_port,
    wait_for_port,
    worker_arguments,
)
from clients.testnet.watch import MOST_RESTARTS, LogFollower, NetworkSupervisor
from clients.worker.status import FORMAT
from ledger.actors.journal import FileJournal
from ledger.io.processes import CommandError, CommandRunner
from ledger.protocol.types import ClientId
from tests.chain.anvil import anvil_program
from tests.federation.worker_files import back_up, restore
from tests.patience import PATIENCE_SECONDS, wait_until
from tests.processes import MODULES

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


PACE = PACES[ChainKind.EMBEDDED]


class Standing(LocalNetwork):
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
    with pytest.raises(CommandError, match="its chain is lost"):
        minder(standing)._mind()


def test_who_has_ended_is_not_up_because_somebody_else_listens(standing: Standing) -> None:
    ended = standing.processes.start("other", ["fail", "the port is taken"])
    assert ended.wait(PATIENCE_SECONDS) == 70
    with pytest.raises(CommandError, match=r"other ended: .*the port is taken"):
        wait_for_port(standing.node.port, ended)


@pytest.fixture
def seat(tmp_path: Path) -> WorkerSlot:
    paths = NetworkPaths("url", "blobs", "mail")
    folder = tmp_path / "worker"
    (folder / "payloads").mkdir(parents=True)
    return WorkerSlot(3, (ClientId(3),), folder, paths, (), cast("CommandRunner", None))


def test_a_backup_holds_what_was_durable_and_comes_back_whole(seat: Any, tmp_path: Path) -> None:
    journal = FileJournal(seat.folder / "votes.sqlite")
    journal.record(b"place", b"said")
    journal.sync()
    journal.record(b"later", b"not yet durable")
    (seat.folder / "payloads" / "one").write_bytes(b"update")
    (seat.folder / ".writing-1").write_bytes(b"half")
    back_up(seat.folder, tmp_path / "copy")
    journal.sync()
    journal.close()
    (seat.folder / "payloads" / "two").write_bytes(b"newer")
    restore(seat.folder, tmp_path / "copy")
    assert sorted(path.name for path in seat.folder.rglob("*")) == [
        "one",
        "payloads",
        "votes.sqlite",
    ]
    restored = FileJournal(seat.folder / "votes.sqlite")
    assert restored.record(b"place", b"another") == b"said"
    assert restored.record(b"later", b"another") == b"another", "this is what makes it dangerous"
    restored.close()


def test_a_missing_or_invalid_status_is_empty(seat: WorkerSlot) -> None:
    assert seat.status() == {}
    told = {"format": FORMAT, "round": 3}
    for text in ("", "[]", "{", '{"round": 3}'):
        (seat.folder / "status.json").write_text(text, "utf-8")
        assert seat.status() == {}
    (seat.folder / "status.json").write_text(json.dumps(told), "utf-8")
    assert seat.status() == told
    shutil.rmtree(seat.folder)
    assert seat.status() == {}


class Begun:
    def __init__(self) -> None:
        self.arguments: list[object] = []

    def start(self, _: str, arguments: list[object], **__: object) -> None:
        self.arguments = arguments


@pytest.mark.parametrize("is_allowed", [True, False])
def test_workers_accept_predictable_seeds_as_told(tmp_path: Path, is_allowed: bool) -> None:
    begun = Begun()
    paths = NetworkPaths("url", "blobs", "mail")
    configuration = fitted_to_pace(plain_values("smoke"), PACE)
    settings = NetworkSettings(tmp_path, configuration, 1, allow_predictable_seeds=is_allowed)
    arguments = worker_arguments(settings, 1, "0x", (ClientId(0),))
    runner = cast("CommandRunner", begun)
    WorkerSlot(0, (ClientId(0),), tmp_path, paths, arguments, runner).start()
    assert (ALLOW_PREDICTABLE in begun.arguments) is is_allowed


def told(logs: LogFollower) -> list[str]:
    found: list[str] = []
    logs.show(found.append)
    return found


def test_each_whole_line_is_told_once_behind_its_name(tmp_path: Path) -> None:
    logs, one, other = LogFollower(tmp_path), tmp_path / "one.log", tmp_path / "other.log"
    one.write_bytes(b"first\nhalf a")
    other.write_bytes(b"\xff\n")
    assert told(logs) == ["one: first", "other: \ufffd"]
    with one.open("ab") as file:
        file.write(b" line\n")
    assert told(logs) == ["one: half a line"]
    assert told(logs) == []


def test_a_log_that_was_cut_is_followed_from_its_beginning(tmp_path: Path) -> None:
    logs, path = LogFollower(tmp_path), tmp_path / "one.log"
    path.write_bytes(b"before the cut\n")
    told(logs)
    path.write_bytes(b"after\n")
    assert told(logs) == ["one: after"]


def test_an_endless_line_holds_up_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clients.testnet.watch._MOST_AT_ONCE", 8)
    logs, path = LogFollower(tmp_path), tmp_path / "one.log"
    path.write_bytes(b"x" * 8 + b"\nend\n")
    assert [told(logs), told(logs)] == [["one: xxxxxxxx"], ["one: ", "one: end"]]
