"""A home that a failing command has made goes again, unless something in it counts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from cmfl.where import made_if_needed
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.io.home import Home
from ledger.protocol.errors import ConfigurationError
from ledger.storage.blobs import FolderBlobs


class StartFailedError(Exception):
    """What goes wrong in these tests."""


def failing_start(home: Home, act: Callable[[], object]) -> None:
    def start() -> None:
        with made_if_needed(home), home.writing():
            act()
            raise StartFailedError

    with pytest.raises(StartFailedError):
        start()


def chain_of(home: Home, blocks: int) -> None:
    with EmbeddedChain.create(home.chain) as chain:
        chain.mine(blocks)


def test_a_failed_attempt_removes_all_folders_it_made(tmp_path: Path) -> None:
    home = Home(tmp_path / "one" / "two")
    failing_start(home, lambda: chain_of(home, 0))
    assert list(tmp_path.iterdir()) == []
    failing_start(home, home.chain.touch)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "act",
    [
        lambda home: FolderBlobs(home.blobs).put(b"a blob"),
        lambda home: home.run("run").path.mkdir(parents=True),
        lambda home: chain_of(home, 1),
        lambda home: (home.path / "thesis.txt").write_text("years of work"),
    ],
    ids=["blob", "run", "block", "another's file"],
)
def test_what_counts_stays(tmp_path: Path, act: Callable[[Home], object]) -> None:
    home = Home(tmp_path / "home")
    failing_start(home, lambda: act(home))
    assert home.path.exists()
    left = {path.name for path in home.path.iterdir()}
    assert left & {"blobs", "runs", "chain.sqlite", "thesis.txt"}


def test_a_home_that_another_writes_to_stays(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    with ExitStack() as other:
        failing_start(home, lambda: other.enter_context(home.writing()))
        assert home.lock.exists()


def test_a_home_that_was_there_before_stays(tmp_path: Path) -> None:
    home = Home(tmp_path)
    failing_start(home, lambda: chain_of(home, 0))
    assert home.chain.exists()


def test_a_home_that_cannot_be_created_is_refused_by_path(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    home = Home(tmp_path / "file" / "home")
    with pytest.raises(ConfigurationError, match="file/home: Not a directory"):
        failing_start(home, lambda: None)
