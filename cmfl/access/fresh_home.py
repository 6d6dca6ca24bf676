"""Creation of a home, undone if the command fails."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ledger.io.home import Home
from ledger.protocol.errors import ChainError, ConfigurationError


@contextmanager
def made_if_needed(home: Home) -> Iterator[None]:
    """Make a home's folder, and remove it if the context fails before anything was stored.

    A blob, a run, a chain with a block, or another writer keep it.
    """
    try:
        made = [folder for folder in (home.path, *home.path.parents) if not folder.exists()]
        home.path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"--home {home.path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigurationError(f"--home {home.path}: {error}") from error
    try:
        yield
    except BaseException:
        if made:
            _remove(home, made)
        raise


def _remove(home: Home, made: list[Path]) -> None:
    """Remove what a failed start has left; a folder with anything else stays."""
    with suppress(OSError), home.lock.open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _has_content(home):
            return
        for file in (*home.path.glob(f"{home.chain.name}*"), home.lock):
            file.unlink(missing_ok=True)
        for folder in (home.blobs, home.runs, *made):
            if folder.is_dir():
                folder.rmdir()


def _has_content(home: Home) -> bool:
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
