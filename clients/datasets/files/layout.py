"""Detection of a path's layout: by folder, extension, and the names of arrays or columns.

an .npz file                      arrays
a .parquet file, or a folder      the Hugging Face layouts, and our own table of tweets
    with such files in it
    or in its `data`
a .csv file, or a folder          the Hugging Face layout of Shakespeare
    with one
a .safetensors file               arrays, of a user's own data
a .jsonl file                     rows of a user's own data, mostly texts
a .txt file, or a folder of them  texts, one a line; each file of a folder is a client's
a folder with `train/*.json`      LEAF
    and `test/*.json`
a folder of `save_to_disk`        a data set of the Hugging Face library: splits `train` and `test`
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from clients.datasets.files.data_archive import MAX_OWN_BYTES, require_file
from clients.datasets.files.lines import csv_header, quoted, read_json_lines
from clients.datasets.files.parquet import column_names
from clients.datasets.files.safetensors_file import tensor_names
from clients.datasets.files.saved_dataset import is_saved, saved_columns, saved_files
from ledger.protocol.errors import ConfigurationError

MAX_FILES = 10_000


class FileKind(StrEnum):
    """Kinds of data files."""

    ARRAYS = ".npz file"
    TABLE = ".parquet file or a folder of them"
    LINES = ".csv file"
    LEAF = "folder of LEAF, train/*.json and test/*.json"
    TENSORS = ".safetensors file"
    SAVED = "folder of datasets.save_to_disk"
    JSON_LINES = ".jsonl file"
    TEXTS = ".txt file or a folder of them"


@dataclass(frozen=True, slots=True)
class Layout:
    """The files at a path, and the fields that they state.

    Attributes:
        names: of arrays or columns, in the order of the first file; empty for LEAF, where they
            never differ.
    """

    path: Path
    kind: FileKind
    files: tuple[Path, ...]
    names: tuple[str, ...] = ()

    @property
    def fields(self) -> frozenset[str]:
        """The names, without their order."""
        return frozenset(self.names)


def layout_of(path: Path) -> Layout:
    """Return the layout of a file or folder."""
    try:
        if path.is_dir():
            return _folder(path)
        require_file(path)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    match path.suffix:
        case ".npz":
            return Layout(path, FileKind.ARRAYS, (path,), tuple(sorted(_array_names(path))))
        case ".parquet":
            return Layout(path, FileKind.TABLE, (path,), column_names(path))
        case ".csv":
            return Layout(path, FileKind.LINES, (path,), csv_header(path))
        case ".safetensors":
            return Layout(path, FileKind.TENSORS, (path,), tuple(sorted(tensor_names(path))))
        case ".jsonl":
            first = next(read_json_lines(path), {})
            return Layout(path, FileKind.JSON_LINES, (path,), tuple(first))
        case ".txt":
            return Layout(path, FileKind.TEXTS, (path,), ("text",))
        case other:
            raise ConfigurationError(
                f"{path}: {other or 'no extension'}; a data file is .npz, .safetensors, .parquet, "
                f".csv, .jsonl or .txt"
            )


def _folder(path: Path) -> Layout:
    if is_saved(path):
        files = saved_files(path)
        return Layout(path, FileKind.SAVED, files, saved_columns(files))
    if (path / "train").is_dir():
        # Ordered by split: a client's training samples come before its test.
        leaf = [file for part in ("train", "test") for file in _listed(path / part, "*.json")]
        if leaf:
            return Layout(path, FileKind.LEAF, tuple(leaf))
    tables = [*_listed(path, "*.parquet"), *_listed(path / "data", "*.parquet")]
    if tables:
        names = column_names(tables[0])
        for table in tables[1:]:
            if set(other := column_names(table)) != set(names):
                raise ConfigurationError(
                    f"{table}: has the columns {quoted(sorted(other))}; "
                    f"{tables[0].name} has {quoted(sorted(names))}"
                )
        return Layout(path, FileKind.TABLE, tuple(tables), names)
    lines = _listed(path, "*.csv")
    if len(lines) == 1:
        return Layout(path, FileKind.LINES, tuple(lines), csv_header(lines[0]))
    texts = _listed(path, "*.txt")
    if texts and not lines:
        return Layout(path, FileKind.TEXTS, tuple(texts), ("text", "client"))
    raise ConfigurationError(
        f"{path}: neither LEAF's train/*.json nor *.parquet nor exactly one *.csv nor *.txt is in "
        f"this folder"
    )


def _listed(folder: Path, pattern: str) -> list[Path]:
    files = sorted(folder.glob(pattern)) if folder.is_dir() else []
    if len(files) > MAX_FILES:
        raise ConfigurationError(f"{folder}: {len(files)} files, more than {MAX_FILES}")
    for file in files:
        require_file(file)  # to open a pipe would wait for its writer
    return files


def _array_names(path: Path) -> frozenset[str]:
    try:
        if path.stat().st_size > MAX_OWN_BYTES:
            raise ConfigurationError(f"{path}: more than {MAX_OWN_BYTES} bytes")
        with zipfile.ZipFile(path) as archive:
            return frozenset(name.removesuffix(".npy") for name in archive.namelist())
    except (zipfile.BadZipFile, OSError, ValueError, LookupError, RuntimeError) as error:
        raise ConfigurationError(f"{path}: not a readable .npz file ({error})") from error
