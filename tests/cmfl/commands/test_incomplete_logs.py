"""A node that leaves logs out, and is truthful otherwise, proves nothing and refutes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ledger.storage.blobs import FolderBlobs
from tests.chain.rpc.lying_node import EVENTS, Lie, LyingNode
from tests.cmfl.commands.conftest import cmfl, succeeds
from tests.faults import times

if TYPE_CHECKING:
    from tests.audit.runs import Run

CLIENT = 6
# The other events come once in the run, where all of them are the first.
REPEATED = ["UpdatesCommitted", "RoundDecided", "ClientBanned"]
HIDDEN = [Lie(event, "hide", 0) for event in EVENTS]


class Seen:
    """A run as it is seen through a node, and a home that has its blobs and nothing else."""

    def __init__(self, node: LyingNode, run: Run, home: Path) -> None:
        self.node = node
        self.blobs = home / "blobs"
        where = ["--rpc-url", node.url, "--chain-id", node.chain_id]
        self.options = ["--home", home, *where, "--address", run.ledger.address]
        self._kept = home / "event_log.sqlite"

    def lie(self, lie: Lie) -> None:
        self.node.lies = [lie]
        self._kept.unlink(missing_ok=True)


@pytest.fixture(scope="module")
def seen(honest: Run, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    home = tmp_path_factory.mktemp("home")
    blobs = FolderBlobs(home / "blobs")
    for digest in honest.blobs.digests():
        blobs.put(honest.blobs.get(digest))
    with LyingNode(honest.chain) as node:
        yield Seen(node, honest, home)


@pytest.fixture(scope="module")
def sent(seen: Seen, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a right proof and a right bundle, as somebody else sends them."""
    folder = tmp_path_factory.mktemp("sent")
    seen.node.lies = []
    asked = ("--round", 1, *seen.options)
    succeeds("export", "proof", *asked, "--client", CLIENT, "--out", folder / "proof")
    succeeds("export", "bundle", *asked, "--out", folder / "bundle")
    return folder


COMMANDS: dict[str, tuple[object, ...]] = {
    "verify a client": ("verify", "client", "--round", 1, "--client", CLIENT),
    "verify a round": ("verify", "round", 1),
    "audit": ("audit", "--jobs", 1),
    "list rounds": ("rounds", "list"),
    "show a round": ("rounds", "show", 1),
    "explain a round": ("rounds", "explain", 1),
    "list clients": ("clients", "list"),
    "show a digest": ("rounds", "show", "00" * 32),
    "list blobs": ("blobs", "list", "--round", 1),
}


@pytest.fixture(scope="module")
def commands(sent: Path) -> dict[str, tuple[object, ...]]:
    client = ("verify", "client", "--round", 1, "--client", CLIENT)
    return {
        **COMMANDS,
        "verify a proof": (*client, "--proof", sent / "proof"),
        "verify a bundle": ("verify", "bundle", sent / "bundle"),
    }


def test_a_truthful_node_is_read_by_every_command(
    seen: Seen, commands: dict[str, tuple[object, ...]]
) -> None:
    seen.node.lies = []
    for name, command in commands.items():
        truth = cmfl(*command, *seen.options)
        assert truth.code == 0, (name, truth)
    found = {name for name in EVENTS if len(seen.node.places[name]) > 1}
    assert found == set(REPEATED)


@pytest.mark.parametrize("lie", HIDDEN, ids=str)
def test_a_node_that_omits_logs_is_named_without_consequences(
    seen: Seen, commands: dict[str, tuple[object, ...]], lie: Lie
) -> None:
    seen.lie(lie)
    # Each event meets the audit and a third of the other commands, and each command some events.
    apart = times(3, 1)
    some = [*commands][HIDDEN.index(lie) % apart :: apart]
    for name in {"audit", *some}:
        command = commands[name]
        result = cmfl(*command, *seen.options)
        assert result.code == 3, (name, lie, result)
        assert seen.node.url in result.out + result.err, (name, lie, result)


@pytest.mark.parametrize("lie", HIDDEN, ids=str)
def test_nothing_is_written_when_a_node_omits_logs(seen: Seen, tmp_path: Path, lie: Lie) -> None:
    seen.lie(lie)
    asked = ("--round", 1, *seen.options, "--out", tmp_path / "file")
    for command in (
        ("export", "proof", *asked, "--client", CLIENT),
        ("export", "bundle", *asked),
        ("model", "export", *seen.options, "--out", tmp_path / "file"),
    ):
        result = cmfl(*command)
        assert result.code == 3, (command, result)
        assert seen.node.url in result.err, (command, result)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("lie", HIDDEN, ids=str)
def test_no_payload_is_removed_when_a_node_omits_logs(seen: Seen, lie: Lie) -> None:
    seen.lie(lie)
    before = sorted(seen.blobs.rglob("*"))
    result = cmfl("blobs", "prune", "--keep-rounds", 1, *seen.options)
    assert result.code == 3, result
    assert sorted(seen.blobs.rglob("*")) == before


def test_a_home_that_has_read_all_events_needs_none_of_them_again(seen: Seen) -> None:
    seen.node.lies = []
    truth = {name: cmfl(*COMMANDS[name], *seen.options) for name in ("list rounds", "list clients")}
    seen.node.lies = [Lie("RoundDecided", "hide", 0)]
    for name, answer in truth.items():
        assert cmfl(*COMMANDS[name], *seen.options) == answer
