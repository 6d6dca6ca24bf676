"""Digests of files and folders that options of a model name; no torch is needed for them."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

from ledger.protocol.encoding import u32
from ledger.protocol.errors import ConfigurationError

MAX_FOLDER_FILES = 10_000
RECORDED_FILE = "sha256:"
"""Prefix of an option file's digest in a run document."""


def folder_digest(name: str, folder: Path) -> str:
    """Return the recorded digest of the folder that an option names.

    It is read again only if the name, size or time of a file has changed.
    """
    try:
        states = [(path, path.stat()) for path in sorted(folder.rglob("*"))[: MAX_FOLDER_FILES * 2]]
    except OSError as error:
        raise ConfigurationError(
            f"model.options.{name} = {str(folder)!r}: cannot be read: {error.strerror}"
        ) from error
    seen = tuple((str(path), state.st_size, state.st_mtime_ns) for path, state in states)
    return _folder_as_seen(name, folder, seen)


@lru_cache(maxsize=1)
def _folder_as_seen(name: str, folder: Path, _: object) -> str:
    return f"{RECORDED_FILE}{digest_at(name, folder)}"


def digest_at(name: str, path: Path) -> str:
    """Return the hex digits of the digest of the file or folder that an option names."""
    try:
        if path.is_file():
            return _file_digest(path).hex()
        return _folder_digest(name, path).hex()
    except OSError as error:
        failed = error.filename or path
        raise ConfigurationError(
            f"model.options.{name} = {str(path)!r}: {failed} cannot be read: {error.strerror}"
        ) from error


def files_in(name: str, folder: Path) -> list[str]:
    """Return the paths of the files of a folder that its digest covers, ascending."""
    paths = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))
    files = [path for path in paths if (folder / path).is_file()]
    if len(files) > MAX_FOLDER_FILES:
        raise ConfigurationError(
            f"model.options.{name} = {str(folder)!r}: {len(files)} files, and at most "
            f"{MAX_FOLDER_FILES}"
        )
    return files


def _folder_digest(name: str, folder: Path) -> bytes:
    """Return the sha256 over path and digest of each file of a folder, ascending by path."""
    hashed = hashlib.sha256()
    for path in files_in(name, folder):
        text = path.encode("utf-8", "surrogateescape")
        hashed.update(u32(len(text)) + text + _file_digest(folder / path))
    return hashed.digest()


def _file_digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
