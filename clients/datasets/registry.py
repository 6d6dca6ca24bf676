"""The data sets by name; a new one needs its file and one line here. Checks of data files."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from clients.datasets.data_set import DataSet
from clients.datasets.federated_data import (
    NO_TARGET,
    FederatedData,
    Indices,
    PooledData,
    Reading,
    Records,
    Samples,
    SettingsTable,
    named,
    parse_settings,
    require_trained,
)
from clients.datasets.files.layout import FileKind, first_input, layout_of
from clients.datasets.files.tables import quoted
from clients.datasets.images import DIGITS, DIGITS_BY_WRITER, FEMNIST
from clients.datasets.own import OWN, OwnOptions, read_own
from clients.datasets.own_columns import LABELS
from clients.datasets.own_data import FILE, own_data_set
from clients.datasets.partition import NaturalPartition, Partition, partition_of
from clients.datasets.texts import SENT140, SHAKESPEARE
from ledger.io.home import naming
from ledger.io.user_code import named_code
from ledger.protocol.errors import ConfigurationError

DATASETS: dict[str, DataSet] = {
    data_set.name: data_set
    for data_set in (DIGITS, DIGITS_BY_WRITER, FEMNIST, SHAKESPEARE, SENT140, OWN, FILE)
}

_log = logging.getLogger(__name__)

GROUP = "cmfl.datasets"  # entry points of packages that offer data sets
PATH_OPTIONS = ("glove", "tokenizer")
"""Options that are paths; a run records the file's digest instead."""


@dataclass(frozen=True, slots=True)
class DataChoice:
    """The table `data` of TOML: a data set, its path if it has files, its options and division."""

    name: str
    path: Path | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    partition: Mapping[str, Any] = field(default_factory=dict)


def verify_choice(choice: DataChoice) -> None:
    """Validate names and settings before any file is read; raise ConfigurationError."""
    _settings(choice, looks=False)


def load_dataset(choice: DataChoice, clients: int, rng: np.random.Generator) -> FederatedData:
    """Return read-only data divided among clients, which follow from the arguments and chance."""
    data_set, options, partition = _settings(choice)
    source = str(choice.path or f"data set {choice.name!r}")
    records = data_set.records(choice.path, options)
    if records.reading is not None:
        for line in records.reading.lines:
            _log.info("%s", line)
        for note in records.reading.notes:
            _log.warning("note on %s: %s", source, note)
    owned_by = data_set.owned_by or "clients"
    pool = replace(data_set.pool(records, options, rng), source=source, owned_by=owned_by)
    if not len(pool.test):
        raise ConfigurationError(f"{source}: has no test samples")
    division = partition.divide(pool, clients, rng)
    _, train = _copied(pool, division.train)
    tests = None if division.tests is None else _copied(pool, division.tests)
    return FederatedData(
        name=data_set.name,
        form=pool.form,
        train=train,
        test=_copied(pool, (pool.test,))[0] if tests is None else tests[0],
        client_tests=None if tests is None else tests[1],
        collate=pool.collate,
        about=() if records.reading is None else records.reading.lines,
    )


def without_paths(choice: DataChoice) -> DataChoice:
    """Return a choice without its paths, which differ between machines."""
    options = {key: value for key, value in choice.options.items() if key not in PATH_OPTIONS}
    return DataChoice(choice.name, None, options, choice.partition)


def data_set_named(name: str) -> DataSet:
    """Return a data set by name, or a user's function as one, which is not called yet."""
    code = None if name in DATASETS else named_code("data.name", GROUP, name)
    own = "functions of your own: file.py:NAME or package:NAME"
    return named("unknown data set", DATASETS, name, own) if code is None else own_data_set(code)


def recognise(path: Path, settings: Mapping[str, Any] | None = None) -> DataSet:
    """Return the data set whose files are at a path."""
    layout = layout_of(path)
    first = first_input(layout) if layout.kind is FileKind.LEAF else None
    # Settings that only own data have, such as a column's name, say that it is own data.
    if settings and settings.keys() <= FILE.options.model_fields.keys():
        return FILE
    for data_set in DATASETS.values():
        may_read = data_set.fits is not None and data_set.fits(layout)
        may_read = may_read or any(format_.fits(layout) for format_ in data_set.formats)
        if may_read and (layout.kind is not FileKind.LEAF or data_set.is_input_of(first)):
            return data_set
    fields = f" with {quoted(sorted(layout.fields))}" if layout.fields else ""
    raise ConfigurationError(
        f"{path}: a {layout.kind.value}{fields} does not match a data set ({', '.join(DATASETS)}); "
        f"in own data, name the labels {' or '.join(LABELS)}, or set data.options.label"
    )


def data_digest(choice: DataChoice) -> dict[str, Any]:
    """Return a run's record of its data, with defaults, and the sha256 of files instead of paths.

    `sha256` belongs to the file, or is a list for a folder's files in reading order.
    """
    data_set, options, partition = _settings(choice)
    settings = options.model_dump(exclude_none=True)
    if data_set.code is not None:
        for name, value in settings.items():
            if isinstance(value, str) and len(value) < 4096 and Path(value).is_file():
                settings[name] = f"sha256:{_sha256(Path(value))}"
    else:
        for key in set(PATH_OPTIONS).intersection(settings):
            # The path differs between machines.
            settings[key] = _sha256(Path(settings[key]))
    recorded = {
        "name": data_set.name,
        "options": settings,
        "partition": partition.model_dump(exclude_none=True),
    }
    if data_set.code is not None:
        return recorded | data_set.code.recorded()
    if choice.path is None:
        return recorded
    digests = [_sha256(file) for file in layout_of(choice.path).files]
    return recorded | {"sha256": digests[0] if choice.path.is_file() else digests}


def _settings(
    choice: DataChoice, *, looks: bool = True
) -> tuple[DataSet, SettingsTable, Partition]:
    """Return what a choice means; without a look at the data, the partition may be another."""
    data_set = data_set_named(choice.name)
    options = parse_settings(data_set.options, choice.options, "data.options")
    # A partition that is named needs no look at the file.
    has_owners = data_set.owned_by is not None
    has_samples = choice.path is not None or not data_set.has_path
    if looks and "name" not in choice.partition and data_set.has_owners is not None and has_samples:
        has_owners = data_set.has_owners(choice.path, options)
    has_classes = getattr(options, "task", None) in {None, "classify"} or data_set.code is not None
    partition = partition_of(choice.partition, has_owners=has_owners, has_classes=has_classes)
    if data_set.is_declared and not isinstance(partition, NaturalPartition):
        raise ConfigurationError(
            f"data.partition.name = {choice.partition['name']}: private samples cannot be divided"
        )
    if data_set.is_declared and choice.path is not None:
        raise ConfigurationError(
            f"data.path = {choice.path}: give a worker its own samples with --data instead"
        )
    return data_set, options, partition


def _copied(pool: PooledData, parts: tuple[Indices, ...]) -> tuple[Samples, tuple[Samples, ...]]:
    rows = np.concatenate(parts)
    x, y = pool.x[rows], pool.y[rows]
    x.setflags(write=False)
    y.setflags(write=False)
    ends = np.cumsum([0, *map(len, parts)]).tolist()
    return Samples(x, y), tuple(Samples(x[a:b], y[a:b]) for a, b in pairwise(ends))


def _sha256(path: Path) -> str:
    with naming(f"{path} cannot be read"), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True, slots=True)
class DataContents:
    """Contents of valid files."""

    dataset: str
    samples: int
    train: int | None  # number of training samples by the files' own split; None without one
    test: int | None
    clients: int | None  # number of natural clients; None without any
    shape: tuple[int, ...]  # of one sample in the files; empty for a text
    per_class: dict[int, int]  # number of samples, or of tokens, by label, labels ascending
    features: tuple[str, ...] | None = None  # columns or array of own data; see `Reading`
    outputs: int | None = None
    about: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def verify_files(
    path: Path,
    name: str | None = None,
    glove: Path | None = None,
    settings: Mapping[str, Any] | None = None,
) -> DataContents:
    """Return what valid files contain; the data set is recognised from them if not named."""
    data_set = data_set_named(name) if name else recognise(path, settings)
    if data_set is OWN:
        if glove is not None:
            raise ConfigurationError(f"--glove {glove}: data set 'own' has no word vectors")
        form = parse_settings(OwnOptions, settings or {}, "data.options")
        train, test = read_own(path, form)
        parts = [train] if test is None else [train, test]
        x, y = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        contents = _contents(data_set, Records(x, y, is_test=np.arange(len(y)) >= len(train.y)))
        outputs = (f"{form.outputs} model outputs",)
        return replace(contents, outputs=form.outputs, about=outputs)
    options = parse_settings(data_set.options, settings, "data.options") if settings else None
    records = data_set.records(path, options)
    if records.is_test is not None and records.owner is not None:
        trained = records.owner[~records.is_test]
        counts = np.bincount(trained, minlength=len(records.owners))
        require_trained(counts, records.owners, data_set.owned_by or "clients", str(path))
    if records.is_test is not None and not records.is_test.any():
        raise ConfigurationError(f"{path}: has no test samples")
    if glove is not None:
        with_glove = {**(settings or {}), "glove": str(glove)}
        options = parse_settings(data_set.options, with_glove, "data.options")
        data_set.pool(records, options, np.random.default_rng(0))
    return _contents(data_set, records)


def _contents(data_set: DataSet, records: Records) -> DataContents:
    test = None if records.is_test is None else int(records.is_test.sum())
    y, reading = records.y, records.reading or Reading((), None, (), ())
    is_classified = y.dtype.kind != "f"
    labels, counts = np.unique(y[y != NO_TARGET] if is_classified else y[:0], return_counts=True)
    return DataContents(
        dataset=data_set.name,
        samples=len(records.y),
        train=None if test is None else len(records.y) - test,
        test=test,
        clients=None if records.owner is None else len(records.owners),
        shape=tuple(records.x.shape[1:]),
        per_class=dict(zip(labels.tolist(), counts.tolist(), strict=True)),
        features=reading.features or None,
        outputs=reading.outputs,
        about=reading.lines,
        notes=reading.notes,
    )
