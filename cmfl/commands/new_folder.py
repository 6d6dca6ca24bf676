"""Folders that come whole, or not at all."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cmfl.commands.home_files import refuse_home_file
from ledger.protocol.errors import ConfigurationError


def require_new(out: Path) -> None:
    """Refuse a folder that has something in it, or is a home's, before the work is done for it.

    Raises:
        ConfigurationError: names it.
    """
    refuse_home_file(out)
    if out.is_symlink() or (out.exists() and not (out.is_dir() and not any(out.iterdir()))):
        raise ConfigurationError(f"--out {out}: must be a new or an empty folder")
    if not out.absolute().parent.is_dir():
        raise ConfigurationError(f"--out {out}: there is no folder {out.parent}")


@contextmanager
def whole_folder(out: Path) -> Iterator[Path]:
    """Open a new folder of the same name, which is moved to its place once all is written.

    Raises:
        ConfigurationError: it cannot be written.
    """
    place = out.absolute()
    writing = place.parent / f".{place.name}.{secrets.token_hex(4)}"
    try:
        (writing / place.name).mkdir(parents=True)
        yield writing / place.name
        (writing / place.name).rename(place)
    except OSError as error:
        raise ConfigurationError(f"--out {out}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(writing, ignore_errors=True)
