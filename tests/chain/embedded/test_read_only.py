"""A closed chain can be read where nothing may be written: a `:ro` volume, another user's home."""

from __future__ import annotations

import contextlib
import ctypes
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.reader import EmbeddedReader
from ledger.chain.ports import LogQuery, NotServedError
from ledger.protocol.errors import ChainError
from tests.chain.probe import deploy, words

_CAPABILITIES_VERSION = 0x20080522
_READ_AND_WRITE_ANYTHING = 0b110  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH


@contextlib.contextmanager
def obedient() -> Iterator[None]:
    """Make this thread obey the permissions of its own files even where it is root's."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, now = (ctypes.c_uint32 * 2)(_CAPABILITIES_VERSION, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(header, now) == 0
    less = (ctypes.c_uint32 * 6)(*now)
    less[0] &= ~_READ_AND_WRITE_ANYTHING
    assert libc.capset(header, less) == 0
    try:
        yield
    finally:
        assert libc.capset(header, now) == 0


@contextlib.contextmanager
def locked(home: Path) -> Iterator[None]:
    """Let nobody write to a home."""
    for path in home.iterdir():
        path.chmod(0o444)
    home.chmod(0o555)
    try:
        with obedient():
            yield
    finally:
        home.chmod(0o755)
        for path in home.iterdir():
            path.chmod(0o644)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home"
    path.mkdir()
    with EmbeddedChain.create(path / "chain.sqlite") as chain:
        chain.send(deploy(chain), words(1, 2), 200_000)
    return path


def killed(home: Path) -> Path:
    """Return a home as a killed writer leaves it: three blocks wait in the write-ahead log."""
    left = home.with_name("killed")
    with EmbeddedChain.open(home / "chain.sqlite") as chain:
        chain.mine(3)
        shutil.copytree(home, left)
    assert (left / "chain.sqlite-wal").stat().st_size > 0
    return left


def test_a_closed_chain_is_read_without_leaving_files(home: Path) -> None:
    before = sorted(home.iterdir())
    with locked(home):
        with EmbeddedReader.open(home / "chain.sqlite") as chain:
            chain.verify(execute=True)
            assert chain.head().number == 2
            assert len(chain.logs(LogQuery(None, [], 0, 9))) == 1
            assert chain.acknowledged() is not None
        assert sorted(home.iterdir()) == before


def test_blocks_in_a_write_ahead_log_are_not_silently_skipped(home: Path) -> None:
    left = killed(home)
    (left / "chain.sqlite-shm").unlink()
    with locked(left), pytest.raises(ChainError, match="newest blocks are in") as caught:
        EmbeddedReader.open(left / "chain.sqlite")
    assert "Let the owner open and close the chain, or copy" in str(caught.value)
    with EmbeddedReader.open(left / "chain.sqlite") as chain:
        assert chain.head().number == 5, "who may write beside it reads them"


def test_what_an_owner_adds_meanwhile_is_followed(home: Path) -> None:
    with locked(home):
        chain = EmbeddedReader.open(home / "chain.sqlite")
        assert chain.head().number == 2
    with EmbeddedChain.open(home / "chain.sqlite") as owner:
        owner.mine(4)
        assert chain.head().number == 6
    chain.verify(execute=True)
    chain.close()


def test_a_view_is_refused_where_no_snapshot_is_possible(home: Path) -> None:
    with locked(home):
        chain = EmbeddedReader.open(home / "chain.sqlite")
        view = chain.snapshot()
        still = view.__enter__()
        assert still.head().number == 2
    with EmbeddedChain.open(home / "chain.sqlite") as owner:
        owner.mine(1)
    with pytest.raises(NotServedError, match="another process writes to this chain"):
        still.head()
    with pytest.raises(NotServedError, match="another process writes to this chain"):
        still.verify()
    view.__exit__(None, None, None)
    chain.close()


def test_a_file_that_may_not_be_read_says_so(home: Path) -> None:
    (home / "chain.sqlite").chmod(0)
    with obedient(), pytest.raises(ChainError, match="this user may not read the chain file"):
        EmbeddedReader.open(home / "chain.sqlite")


def test_writing_there_is_refused(home: Path) -> None:
    with locked(home), pytest.raises(ChainError, match=r"chain.sqlite.lock: Permission denied"):
        EmbeddedChain.open(home / "chain.sqlite")
