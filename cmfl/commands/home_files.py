"""Files that a command is told to write, and that must not be those of a home."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.io.home import Home
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path


def refuse_home_file(path: Path, option: str = "--out") -> None:
    """Refuse a path that is, or lies in, what a home keeps: its chain, blobs, runs, index.

    Raises:
        ConfigurationError: names the path and the home.
    """
    place = path.absolute().parent.resolve() / path.name
    for folder in place.parents:
        home = Home(folder)
        if not (home.chain.is_file() or home.lock.is_file()):
            continue
        kept = (home.chain, home.index, home.blobs, home.runs, home.verifications, home.lock)
        first = folder / place.relative_to(folder).parts[0]
        # SQLite keeps a log and shared memory beside a file, under its name.
        if any(first == each or first.name.startswith(f"{each.name}-") for each in kept):
            raise ConfigurationError(
                f"{option} {path}: lies in {first.name} of the home {folder}, which only a run "
                f"may write; name another place"
            )
