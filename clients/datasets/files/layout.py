"""Detection of a path's layout, and folders of LEAF.

    .npz file                        arrays
    .parquet file, or a folder with  the Hugging Face layouts, and our own table of tweets
    such files in it or in `data`

    .csv file, or a folder with one  the Hugging Face layout of Shakespeare
    .safetensors file                arrays, of a user's own data
    .jsonl file                      rows of a user's own data, mostly texts

    .txt file, or a folder of them   texts, one a line; each file of a folder is a client's
    folder with `train/*.json` and   LEAF
    `test/*.json`

A folder of `save_to_disk` is a data set of the Hugging Face library with the splits `train` and
`test`. `state.json` names its Arrow files. `dataset_dict.json` names the splits, a folder each.

{"users": [name, ...], "num_samples": [n, ...], "user_data": {name: {"x": [...], "y": [...]}}}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from clients.datasets.federated_data import Labels, Records, Samples
from clients.datasets.files.archives import MAX_OWN_BYTES, array_names, require_file
from clients.datasets.files.tables import column_names, csv_header, read_json_lines, read_object
from ledger.io.home import naming, read_text
from ledger.io.parsing import parse_json
from ledger.protocol.errors import ConfigurationError

MAX_FILES = 10_000
TRAIN, TEST = "train", "test"
_DICTIONARY, _STATE = "dataset_dict.json", "state.json"


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
    """The files at a path, and the names of arrays or columns that the first one states."""

    path: Path
    kind: FileKind
    files: tuple[Path, ...]
    names: tuple[str, ...] = ()

    @property
    def fields(self) -> frozenset[str]:
        return frozenset(self.names)

    def is_for_test(self, file: Path) -> bool:
        return file.parent != self.path and file.parent.name == TEST


def layout_of(path: Path) -> Layout:
    """Return the layout of a file or folder."""
    with naming(f"{path} cannot be read"):
        if path.is_dir():
            return _folder(path)
        require_file(path)
    match path.suffix:
        case ".npz":
            names, kind = tuple(sorted(array_names(path, MAX_OWN_BYTES))), FileKind.ARRAYS
        case ".parquet":
            names, kind = column_names([path]), FileKind.TABLE
        case ".csv":
            names, kind = csv_header(path), FileKind.LINES
        case ".safetensors":
            names, kind = tuple(sorted(array_names(path))), FileKind.TENSORS
        case ".jsonl":
            names, kind = tuple(next(read_json_lines(path), {})), FileKind.JSON_LINES
        case ".txt":
            names, kind = ("text",), FileKind.TEXTS
        case other:
            raise ConfigurationError(
                f"{path}: {other or 'no extension'}; a data file is .npz, .safetensors, .parquet, "
                f".csv, .jsonl or .txt"
            )
    return Layout(path, kind, (path,), names)


def _folder(path: Path) -> Layout:
    if (path / _DICTIONARY).is_file() or (path / _STATE).is_file():
        files = _saved_files(path)
        return Layout(path, FileKind.SAVED, files, column_names(files))
    if (path / TRAIN).is_dir():
        # Ordered by split: a client's training samples come before its test.
        leaf = [file for part in (TRAIN, TEST) for file in _listed(path / part, "*.json")]
        if leaf:
            return Layout(path, FileKind.LEAF, tuple(leaf))
    tables = (*_listed(path, "*.parquet"), *_listed(path / "data", "*.parquet"))
    if tables:
        return Layout(path, FileKind.TABLE, tables, column_names(tables))
    lines = _listed(path, "*.csv")
    if len(lines) == 1:
        return Layout(path, FileKind.LINES, tuple(lines), csv_header(lines[0]))
    texts = _listed(path, "*.txt")
    if texts and not lines:
        return Layout(path, FileKind.TEXTS, tuple(texts), ("text", "client"))
    raise ConfigurationError(f"{path}: must hold LEAF's train/*.json, *.parquet, 1 *.csv or *.txt")


def _listed(folder: Path, pattern: str) -> list[Path]:
    files = sorted(folder.glob(pattern)) if folder.is_dir() else []
    if len(files) > MAX_FILES:
        raise ConfigurationError(f"{folder}: {len(files)} files, more than {MAX_FILES}")
    for file in files:
        require_file(file)  # to open a pipe would wait for its writer
    return files


def _saved_files(folder: Path) -> tuple[Path, ...]:
    """Return the Arrow files of a folder: first the split `train`, then `test`."""
    if not (folder / _DICTIONARY).is_file():
        return _stated_files(folder)
    splits = read_object(folder / _DICTIONARY, 2**20).get("splits")
    if not isinstance(splits, list) or TRAIN not in splits:
        raise ConfigurationError(f"{folder / _DICTIONARY}: must have a split {TRAIN!r}")
    present = [split for split in (TRAIN, TEST) if split in splits]
    return tuple(file for split in present for file in _stated_files(folder / split))


def _stated_files(folder: Path) -> tuple[Path, ...]:
    state = folder / _STATE
    content = read_object(state, 2**20)
    if content.get("_indices_data_files"):
        raise ConfigurationError(f"{state}: rows are chosen by indices; call flatten_indices")
    listed = content.get("_data_files")
    entries = listed if isinstance(listed, list) else []
    names = [str(entry.get("filename")) for entry in entries if isinstance(entry, dict)]
    files = tuple(folder / name for name in names if name.endswith(".arrow") and "/" not in name)
    if not 1 <= len(files) == len(entries) <= MAX_FILES:
        raise ConfigurationError(f"{state}: must name 1 .. {MAX_FILES} files in its folder")
    return files


MAX_FILE_BYTES = 2 * 2**30
MAX_SAMPLES = 10_000_000
LONGEST_NAME = 200


Convert = Callable[[str, list[Any], list[Any]], Samples]
"""Makes samples of a file's inputs and labels; the first argument is their source in messages."""

LeafUser = dict[str, Samples]
"""One user's samples: at most one part for `train` and one for `test`."""


class UserSamples(NamedTuple):
    """All samples of one user in their final order; `is_test` marks the test's."""

    x: NDArray[Any]
    y: Labels
    is_test: NDArray[np.bool_]


def train_first(user: LeafUser) -> UserSamples:
    """Return a user's training samples, then those for the test."""
    parts = {split: user[split] for split in (TRAIN, TEST) if split in user}
    return UserSamples(
        np.concatenate([part.x for part in parts.values()]),
        np.concatenate([part.y for part in parts.values()]),
        np.concatenate([np.full(len(part.y), split == TEST) for split, part in parts.items()]),
    )


def read_leaf(
    layout: Layout, convert: Convert, ordered: Callable[[LeafUser], UserSamples] = train_first
) -> Records:
    """Return the samples of a LEAF folder, with its split; `ordered` orders those of a user."""
    users: dict[str, LeafUser] = {}
    total = 0
    for path in layout.files:
        split = path.parent.name
        for name, x, y in _users(path):
            where = f"{path}: {name!r}"
            user = users.setdefault(name, {})
            if split in user:
                raise ConfigurationError(f"{where}: is in two files of {split}/")
            user[split] = convert(where, x, y)
            total += len(y)
            if total > MAX_SAMPLES:
                raise ConfigurationError(f"{where}: more than {MAX_SAMPLES} samples")
    samples = {name: ordered(users[name]) for name in sorted(users)}
    if not any(len(y) for _, y, _ in samples.values()):
        raise ConfigurationError(f"{layout.path}: has no samples")
    inputs, labels, is_test = map(np.concatenate, zip(*samples.values(), strict=True))
    owner = np.repeat(np.arange(len(samples)), [len(part.y) for part in samples.values()])
    return Records(inputs, labels, owner, tuple(samples), is_test)


def first_input(layout: Layout) -> Any:
    """Return one input of a LEAF folder, which identifies its data set."""
    path = min(layout.files, key=lambda file: file.stat().st_size)
    for _, x, _ in _users(path):
        if x:
            return x[0]
    raise ConfigurationError(f"{path}: has no samples")


class _User(BaseModel):
    model_config = ConfigDict(strict=True)
    x: list[Any]
    y: list[Any]


class _File(BaseModel):
    model_config = ConfigDict(strict=True)
    users: list[Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]]
    num_samples: list[int]
    user_data: dict[str, _User]


def _users(path: Path) -> Iterator[tuple[str, list[Any], list[Any]]]:
    try:
        document = parse_json(read_text(path, MAX_FILE_BYTES), refuse_constant=_refuse)
    except ValueError as error:
        raise ConfigurationError(f"{path}: not a readable JSON file ({error})") from error
    try:
        file = _File.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))[:200] or "the file"
        raise ConfigurationError(f"{path}: {where} is invalid ({first['msg']})") from error
    if not len(file.users) == len(file.num_samples) == len(file.user_data):
        raise ConfigurationError(f"{path}: users, num_samples and user_data differ in length")
    for name, count in zip(file.users, file.num_samples, strict=True):
        user = file.user_data.get(name)
        if user is None or not len(user.x) == len(user.y) == count:
            held = "none" if user is None else f"{len(user.x)} inputs and {len(user.y)} labels"
            raise ConfigurationError(f"{path}: {name!r} has {held}, but num_samples is {count}")
        yield name, user.x, user.y


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is not a number")
