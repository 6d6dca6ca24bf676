"""A home that a command makes, and takes away again if the command comes to nothing."""

from __future__ import annotations

import fcntl
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from ledger.protocol.errors import ChainError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ledger.io.home import Home


@contextmanager
def made_if_needed(home: Home) -> Iterator[None]:
    """Make a home's folder; without a trace if the context ends badly and nothing in it counts.

    What counts is a blob, a run, a chain with a block, and that somebody else writes to the home.

    Args:
        home: the folder need not exist.

    Raises:
        ConfigurationError: the folder cannot be made.
    """
    made = [folder for folder in (home.path, *home.path.parents) if not folder.exists()]
    try:
        home.path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"--home {home.path}: {error.strerror}") from error
    try:
        yield
    except BaseException:
        if made:
            _take_away(home, made)
        raise


def _take_away(home: Home, made: list[Path]) -> None:
    """Remove what a start has left; a folder that holds anything else stays."""
    with suppress(OSError), home.lock.open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _counts(home):
            return
        for file in (*home.path.glob(f"{home.chain.name}*"), home.lock):
            file.unlink(missing_ok=True)
        for folder in (home.blobs, home.runs, *made):
            if folder.is_dir():
                folder.rmdir()


def _counts(home: Home) -> bool:
    if any(folder.is_dir() and any(folder.iterdir()) for folder in (home.blobs, home.runs)):
        return True
    if not home.chain.exists():
        return False
    from ledger.chain.embedded.embedded_reader import EmbeddedReader
    from ledger.chain.embedded.file.chain_store import ChainStore

    if ChainStore.is_blank(home.chain):
        return False
    try:
        with EmbeddedReader.open(home.chain) as chain:
            return chain.head().number > 0
    except ChainError:
        return True
