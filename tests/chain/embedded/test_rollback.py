"""A home remembers the newest block that it has acknowledged, and notices where it is missing."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.reader import EmbeddedReader
from ledger.chain.embedded.writing import SLOT_BYTES, note_path, read_note
from ledger.chain.ports import ChainDamagedError, ChainRolledBackError
from ledger.protocol.errors import ChainError
from tests.chain.probe import deploy
from tests.e2e.power import Content, FailingDisk, PowerCutError
from tests.faults import times

WRITER = """
import os, pathlib, signal, sys
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from tests.chain.probe import words
chain, probe = EmbeddedChain.open(pathlib.Path(sys.argv[1])), sys.argv[2]
for value in range(1, 11):
    chain.send(probe, words(value, 0), 200_000)
os.kill(os.getpid(), signal.SIGKILL)
"""
BLOCKS = 11


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a writer that was killed with ten blocks in its write-ahead log."""
    folder = tmp_path_factory.mktemp("killed")
    path = folder / "chain.sqlite"
    with EmbeddedChain.create(path) as chain:
        probe = deploy(chain)
    command = [sys.executable, "-c", WRITER, str(path), probe]
    assert subprocess.run(command, check=False).returncode == -9
    (folder / "chain.sqlite-shm").unlink()
    return folder


def grown(path: Path, blocks: int) -> None:
    with EmbeddedChain.open(path) if path.exists() else EmbeddedChain.create(path) as chain:
        chain.mine(blocks)


def noted(path: Path) -> int:
    found = read_note(path)
    assert found is not None
    return found.number


class TestTheNote:
    def test_names_the_newest_block_after_each_commit(self, path: Path) -> None:
        with EmbeddedChain.create(path) as chain:
            assert noted(path) == 0
            for _ in range(3):
                chain.mine(1)
                found = chain.acknowledged()
                assert found is not None
                assert (found.number, found.hash) == (chain.head().number, chain.head().hash)
                assert found.genesis_hash == chain.genesis_hash

    def test_is_never_ahead_of_what_is_durable(self, path: Path) -> None:
        with EmbeddedChain.create(path, synchronous="NORMAL") as chain:
            chain.mine(3)
            assert noted(path) == 0, "these blocks do not survive a power cut"
        assert noted(path) == 3, "closing makes them durable"

    @pytest.mark.parametrize("slot", [0, 1])
    def test_survives_a_torn_slot(self, path: Path, slot: int) -> None:
        grown(path, 3)
        content = bytearray(note_path(path).read_bytes())
        content[slot * SLOT_BYTES : slot * SLOT_BYTES + 100] = bytes(100)
        note_path(path).write_bytes(content)
        assert noted(path) in {2, 3}
        EmbeddedChain.open(path).close()

    @pytest.mark.parametrize(
        "content",
        [b"", bytes(2 * SLOT_BYTES), bytes(SLOT_BYTES), bytes(7), b"x", b"no note at all" * 100],
    )
    def test_that_is_damaged_is_named(self, path: Path, content: bytes) -> None:
        grown(path, 2)
        note_path(path).write_bytes(content)
        with EmbeddedReader.open(path) as reader, reader.snapshot() as still:
            for view in (reader, still):
                with pytest.raises(ChainDamagedError, match="the note of the newest ack"):
                    view.acknowledged()
        with pytest.raises(ChainDamagedError, match="run --resume --accept-rollback"):
            EmbeddedChain.open(path)
        EmbeddedChain.open(path, accept_rollback=True).close()
        assert noted(path) == 2

    @pytest.mark.parametrize("content", [b"", bytes(2 * SLOT_BYTES)])
    def test_that_is_damaged_is_named_where_the_chain_is_gone(
        self, path: Path, content: bytes
    ) -> None:
        grown(path, 2)
        path.unlink()
        note_path(path).write_bytes(content)
        with pytest.raises(ChainDamagedError, match="run --resume --accept-rollback"):
            EmbeddedChain.open_or_create(path)
        EmbeddedChain.open_or_create(path, accept_rollback=True).close()
        assert noted(path) == 0

    @pytest.mark.parametrize("blocks", [0, 2])
    def test_a_copy_is_whole_or_unchanged_after_a_power_cut(
        self, path: Path, monkeypatch: pytest.MonkeyPatch, blocks: int
    ) -> None:
        if blocks:
            grown(path, blocks)
        left, cut_at = set(), 0
        while True:
            chain, disk = path.parent / str(cut_at) / path.name, FailingDisk(cut_at)
            chain.parent.mkdir()
            if blocks:
                shutil.copy(path, chain)
                shutil.copy(note_path(path), note_path(chain))
                known = note_path(chain).read_bytes()
                for files in (disk._files, disk._durable_files):
                    files[note_path(chain)] = Content(known, known)
            monkeypatch.setattr("ledger.chain.embedded.writing.DISK", disk)
            try:
                EmbeddedChain.open_or_create(chain).close()
                break
            except PowerCutError:
                disk.lose(random.Random(cut_at), everything=cut_at % 2 == 0)
            monkeypatch.undo()
            left.add(read_note(chain) is not None)
            grown(chain, 1)
            assert noted(chain) == blocks + 1
            cut_at += 1
        assert cut_at > 3
        assert left == ({True} if blocks else {False, True})

    def test_an_unwritable_copy_is_named_and_no_block_is_lost(self, path: Path) -> None:
        with EmbeddedChain.create(path) as chain:
            os.close(chain._note._descriptor or 0)
            chain._note._descriptor = os.open(note_path(path), os.O_RDONLY)
            with pytest.raises(ChainError, match=r"block 1 is on disk, but not noted: .*\.head"):
                chain.mine(1)
        with EmbeddedChain.open(path) as chain:
            assert chain.head().number == noted(path) == 1

    def test_is_whole_for_who_reads_it_while_it_is_written(self, path: Path) -> None:
        with EmbeddedChain.create(path) as chain:
            newest, ended = chain._newest(), threading.Event()

            def write() -> None:
                while not ended.is_set():
                    chain._note.write(newest)

            writer = threading.Thread(target=write)
            writer.start()
            try:
                assert all(read_note(path) == newest for _ in range(500))
            finally:
                ended.set()
                writer.join()


class TestARestoredBackup:
    @pytest.fixture
    def restored(self, path: Path, tmp_path: Path) -> Path:
        grown(path, 3)
        shutil.copy(path, tmp_path / "backup")
        grown(path, 2)
        shutil.copy(tmp_path / "backup", path)
        return path

    def test_is_refused_with_what_is_there_and_what_to_do(self, restored: Path) -> None:
        with EmbeddedReader.open(restored) as reader:
            head, known = reader.head(), reader.acknowledged()
        assert known is not None
        with pytest.raises(ChainRolledBackError) as caught:
            EmbeddedChain.open(restored)
        for part in (
            f"block 5 0x{known.hash.hex()}",
            f"3 0x{head.hash.hex()}",
            "--accept-rollback",
        ):
            assert part in str(caught.value)
        with pytest.raises(ChainRolledBackError):
            EmbeddedChain.open_or_create(restored)

    def test_goes_on_where_that_is_meant(self, restored: Path) -> None:
        with EmbeddedChain.open_or_create(restored, accept_rollback=True) as chain:
            assert chain.head().number == 3
            assert noted(restored) == 3
            chain.mine(1)
        EmbeddedChain.open(restored).close()
        assert noted(restored) == 4

    def test_on_which_others_have_built_is_refused(self, path: Path, tmp_path: Path) -> None:
        grown(path, 1)
        other = tmp_path / "other" / path.name
        other.parent.mkdir()
        shutil.copy(path, other)
        with EmbeddedChain.open(other, clock=lambda: 2e9) as chain:
            chain.mine(3)
        grown(path, 1)
        shutil.copy(other, path)
        with pytest.raises(ChainRolledBackError, match="but the chain has another block 2, 0x"):
            EmbeddedChain.open(path)


class TestAReplacedChain:
    def test_of_another_genesis_is_refused(self, path: Path, tmp_path: Path) -> None:
        grown(path, 1)
        EmbeddedChain.create(tmp_path / "other", clock=lambda: 1.0).close()
        shutil.copy(tmp_path / "other", path)
        with pytest.raises(ChainRolledBackError, match="but this is another chain, of genesis 0x"):
            EmbeddedChain.open(path)
        EmbeddedChain.open(path, accept_rollback=True).close()

    @pytest.mark.parametrize("emptied", [False, True])
    def test_that_is_gone_is_not_made_anew(self, path: Path, *, emptied: bool) -> None:
        grown(path, 1)
        path.unlink()
        if emptied:
            path.touch()
        for make in (EmbeddedChain.create, EmbeddedChain.open_or_create):
            with pytest.raises(ChainRolledBackError, match="but there is no chain"):
                make(path)
        with EmbeddedChain.open_or_create(path, accept_rollback=True) as chain:
            assert chain.head().number == 0


def cut(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content))]


def flip(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content)
    changed[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    return bytes(changed)


@pytest.mark.parametrize("damage", [cut, flip])
def test_a_damaged_write_ahead_log_is_never_a_shorter_chain(
    killed: Path, tmp_path: Path, damage: Callable[[bytes, random.Random], bytes]
) -> None:
    content, refused = (killed / "chain.sqlite-wal").read_bytes(), 0
    for number in range(times(25, 400)):
        home = shutil.copytree(killed, tmp_path / str(number))
        path, wal = home / "chain.sqlite", home / "chain.sqlite-wal"
        damaged = damage(content, random.Random(number))
        wal.write_bytes(damaged)
        if goes_on_with_every_block(path):
            continue
        refused += 1
        assert wal.read_bytes() == damaged, "what may still be saved is left alone"
        with EmbeddedReader.open(path) as reader:
            known = reader.acknowledged()
            assert known is not None
            assert reader.head().number < known.number == BLOCKS, "a reader can tell"
    assert refused > times(25, 400) // 2


def goes_on_with_every_block(path: Path) -> bool:
    try:
        with EmbeddedChain.open_or_create(path) as chain:
            chain.verify()
            return chain.head().number == BLOCKS
    except (ChainRolledBackError, ChainDamagedError):
        return False


def test_a_lost_write_ahead_log_is_refused(path: Path) -> None:
    other = path.with_name("other")
    other.mkdir()
    with EmbeddedChain.create(path) as chain:
        chain.mine(2)
        for suffix in ("", ".head"):
            shutil.copy(f"{path}{suffix}", f"{other / path.name}{suffix}")
    with pytest.raises(ChainRolledBackError, match="but the chain ends with block 0"):
        EmbeddedChain.open_or_create(other / path.name)
