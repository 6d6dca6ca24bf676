"""Two writers past the lock never mix their blocks, and a long write-ahead log is not silent."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.writing import WriteAheadLog, readers_of
from ledger.chain.ports import ChainLockedError, LogQuery
from ledger.protocol.errors import ChainError
from tests.chain.probe import deploy, words

GAS = 200_000


def past_the_lock(path: Path) -> EmbeddedChain:
    path.with_name("chain.sqlite.lock").unlink()
    return EmbeddedChain.open(path, clock=lambda: 2e9)


class TestTwoWriters:
    def test_the_one_that_was_overtaken_writes_nothing_more(self, path: Path) -> None:
        with EmbeddedChain.create(path) as first:
            probe = deploy(first)
            with past_the_lock(path) as second:
                first.send(probe, words(1, 0), GAS)
                before = first.head()
                for _ in range(3):
                    with pytest.raises(ChainLockedError, match="another process writes"):
                        second.send(probe, words(2, 0), GAS)
                    with pytest.raises(ChainLockedError, match="another process writes"):
                        second.mine(1)
                assert first.head() == before
                first.send(probe, words(3, 0), GAS)
                first.verify(execute=True)
            assert [log.topics[1][-1] for log in first.logs(LogQuery(probe, [], 0, 9))] == [1, 3]

    def test_the_parent_is_compared_where_the_block_is_written(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with EmbeddedChain.create(path) as first, past_the_lock(path) as second:
            commit = first._store.commit

            def overtaken(*arguments: object, **options: object) -> None:
                monkeypatch.undo()
                second.mine(1)
                commit(*arguments, **options)  # type: ignore[arg-type]

            monkeypatch.setattr(first._store, "commit", overtaken)
            with pytest.raises(ChainLockedError, match="another process has added blocks"):
                first.mine(1)
            assert first.head().number == 1
            with pytest.raises(ChainLockedError, match="another process writes"):
                first.mine(1)
            second.mine(1)
            second.verify(execute=True)

    def test_under_another_name_of_the_file_is_refused(self, path: Path, tmp_path: Path) -> None:
        with EmbeddedChain.create(path) as chain:
            os.link(path, tmp_path / "second.sqlite")
            with pytest.raises(ChainLockedError, match=r"has 2 names \(hard links\)"):
                EmbeddedChain.open(tmp_path / "second.sqlite")
            chain.mine(1)

    def test_through_a_symbolic_link_meets_the_same_lock(self, path: Path, tmp_path: Path) -> None:
        link = tmp_path / "elsewhere" / "link.sqlite"
        link.parent.mkdir()
        link.symlink_to(path)
        with (
            EmbeddedChain.create(path),
            pytest.raises(ChainLockedError, match=rf"process {os.getpid()} \(.+\) writes"),
        ):
            EmbeddedChain.open(link)
        with EmbeddedChain.open(link) as chain:
            chain.mine(1)
        assert [one.name for one in link.parent.iterdir()] == ["link.sqlite"]

    def test_a_file_that_was_replaced_is_not_written_to(self, path: Path, tmp_path: Path) -> None:
        EmbeddedChain.create(tmp_path / "other").close()
        with EmbeddedChain.create(path) as chain:
            (tmp_path / "other").replace(path)
            with pytest.raises(ChainError, match="another file, or none, has this name now"):
                chain.mine(1)
            path.unlink()
            with pytest.raises(ChainError, match="another file, or none, has this name now"):
                chain.mine(1)


VIEWER = """
import pathlib, sys
from ledger.chain.embedded.reader import EmbeddedReader
with EmbeddedReader.open(pathlib.Path(sys.argv[1])) as chain, chain.snapshot() as still:
    print(still.head().number, flush=True)
    sys.stdin.readline()
"""


class TestTheWriteAheadLog:
    @pytest.fixture
    def chain(self, path: Path) -> Iterator[EmbeddedChain]:
        with EmbeddedChain.create(path, synchronous="NORMAL") as chain:
            chain._write_ahead = WriteAheadLog(chain._store, max_bytes=200_000)
            yield chain

    def test_is_kept_short(self, chain: EmbeddedChain) -> None:
        longest = 0
        for _ in range(60):
            chain.mine(1)
            longest = max(longest, chain.wal_bytes)
        assert 0 < longest < 250_000

    def test_a_long_held_reader_is_reported_once_with_its_owner(
        self, chain: EmbeddedChain, path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        command = [sys.executable, "-c", VIEWER, str(path)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as viewer:
            assert viewer.stdout is not None
            assert viewer.stdout.readline() == "0\n"
            with caplog.at_level(logging.WARNING):
                chain.mine(60)
            assert chain.wal_bytes > 200_000
            [record] = caplog.records
            assert "a reader holds an old view of the chain" in record.getMessage()
            if Path("/proc/locks").exists():
                assert readers_of(path) == [viewer.pid]
                assert f"(process {viewer.pid})" in record.getMessage()
            viewer.communicate("\n")
        chain.mine(1)
        assert chain.wal_bytes < 200_000, "it shrinks when the reader has ended"
        assert readers_of(path) == []
