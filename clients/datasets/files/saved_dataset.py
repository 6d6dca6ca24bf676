"""Folders that `save_to_disk` of the Hugging Face library `datasets` writes.

A data set is a folder with `state.json`, which names its Arrow files; a dictionary of splits is a
folder with `dataset_dict.json` and one such folder for each split. The library is not needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clients.datasets.files.data_archive import require_file
from clients.datasets.files.extra import imported
from clients.datasets.files.lines import quoted
from ledger.io.home import read_file
from ledger.io.parsing import parse_json
from ledger.protocol.errors import ConfigurationError

TRAIN, TEST = "train", "test"
MAX_STATE_BYTES = 2**20
MAX_FILES = 10_000
MAX_FILE_BYTES = 8 * 2**30
_DICTIONARY, _STATE = "dataset_dict.json", "state.json"


def is_saved(folder: Path) -> bool:
    """Return whether a folder is one of `save_to_disk`."""
    return (folder / _DICTIONARY).is_file() or (folder / _STATE).is_file()


def saved_files(folder: Path) -> tuple[Path, ...]:
    """Return the Arrow files of a folder: those of the split `train`, then those of `test`.

    Other splits are not read.
    """
    if not (folder / _DICTIONARY).is_file():
        return _files_of(folder)
    splits = _content(folder / _DICTIONARY).get("splits")
    if not isinstance(splits, list) or TRAIN not in splits:
        raise ConfigurationError(f"{folder / _DICTIONARY}: must have a split {TRAIN!r}")
    present = [split for split in (TRAIN, TEST) if split in splits]
    return tuple(file for split in present for file in _files_of(folder / split))


def saved_columns(files: tuple[Path, ...]) -> tuple[str, ...]:
    """Return the names of the columns that the Arrow files have, in the order of the first."""
    columns: tuple[str, ...] | None = None
    for file in files:
        with opened(file) as stream:
            names = tuple(stream.schema.names)
        if columns is not None and set(names) != set(columns):
            raise ConfigurationError(
                f"{file}: has the columns {quoted(sorted(names))}; {files[0].name} has "
                f"{quoted(sorted(columns))}"
            )
        columns = columns or names
    return columns or ()


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Open an Arrow file; any failure while it is open becomes one kind of error."""
    arrow = imported("pyarrow", "data", "Arrow files")
    ipc = imported("pyarrow.ipc", "data", "Arrow files")
    try:
        require_file(path)
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise ConfigurationError(f"{path}: {size} bytes, more than {MAX_FILE_BYTES}")
        with arrow.OSFile(str(path)) as file, ipc.open_stream(file) as stream:
            yield stream
    except (arrow.ArrowException, OSError, ValueError, LookupError) as error:
        first = str(error).partition("\n")[0]
        raise ConfigurationError(f"{path}: not a readable .arrow file ({first})") from error


def _files_of(folder: Path) -> tuple[Path, ...]:
    """Return the Arrow files that a data set's state names."""
    state = folder / _STATE
    content = _content(state)
    if content.get("_indices_data_files"):
        raise ConfigurationError(f"{state}: rows are chosen by indices: call flatten_indices first")
    listed = content.get("_data_files")
    entries = listed if isinstance(listed, list) else []
    names = [str(entry.get("filename")) for entry in entries if isinstance(entry, dict)]
    files = tuple(folder / name for name in names if name.endswith(".arrow") and "/" not in name)
    if not 1 <= len(files) == len(entries) <= MAX_FILES:
        raise ConfigurationError(f"{state}: must name 1 .. {MAX_FILES} files in its folder")
    return files


def _content(path: Path) -> dict[str, Any]:
    try:
        content = parse_json(read_file(path, MAX_STATE_BYTES).decode("utf-8-sig"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path}: not a readable .json file ({error})") from error
    if not isinstance(content, dict):
        raise ConfigurationError(f"{path}: not a readable .json file (it holds no map)")
    return content
