"""A worker's folder is copied while it is written to, and put back as it was."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, cast

import pytest

from clients.configuration.parsing import ALLOW_PREDICTABLE
from clients.testnet.network import NetworkPaths, NetworkTarget, WorkerSlot
from clients.worker.process.worker_status import FORMAT
from ledger.actors.journal import FileJournal
from ledger.protocol.types import ClientId
from tests.federation.worker_files import back_up, restore

if TYPE_CHECKING:
    from pathlib import Path

    from ledger.io.forked_commands import CommandRunner


@pytest.fixture
def seat(tmp_path: Path) -> WorkerSlot:
    paths = NetworkPaths("url", "blobs", "mail")
    folder = tmp_path / "worker"
    (folder / "payloads").mkdir(parents=True)
    target = NetworkTarget(1, "0x", tmp_path, tmp_path, 1, 0.1, None)
    return WorkerSlot(3, (ClientId(3),), folder, paths, target, cast("CommandRunner", None))


def test_a_backup_holds_what_was_durable_and_comes_back_whole(
    seat: WorkerSlot, tmp_path: Path
) -> None:
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
    """Notes with what a process would begin, and begins none."""

    def __init__(self) -> None:
        self.arguments: list[object] = []

    def start(self, _: str, arguments: list[object], **__: object) -> None:
        self.arguments = arguments


@pytest.mark.parametrize("is_allowed", [True, False])
def test_workers_accept_predictable_seeds_where_their_network_does(
    tmp_path: Path, is_allowed: bool
) -> None:
    begun = Begun()
    paths = NetworkPaths("url", "blobs", "mail")
    target = NetworkTarget(1, "0x", tmp_path, tmp_path, 1, 0.1, None, is_allowed)
    runner = cast("CommandRunner", begun)
    WorkerSlot(0, (ClientId(0),), tmp_path, paths, target, runner).start()
    assert (ALLOW_PREDICTABLE in begun.arguments) is is_allowed
