"""Summary (the paper's Table 2) and verification of a data set's files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from clients.datasets.records import require_trained
from clients.datasets.registry import data_set_named, recognise
from clients.datasets.settings_table import parse_settings
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from clients.datasets.data_set import DataSet
    from clients.datasets.records import Records


@dataclass(frozen=True, slots=True)
class DataSummary:
    """A row of Table 2, with the files' own split.

    Attributes:
        dataset: name in the registry.
        devices: number of natural clients.
        samples: of all of them.
        mean: samples per device.
        stdev: population standard deviation of the samples per device.
        smallest: samples of the device with fewest.
        largest: samples of the device with most.
        train: training samples by the files' own split; None without one.
        test: test samples likewise.
    """

    dataset: str
    devices: int
    samples: int
    mean: float
    stdev: float
    smallest: int
    largest: int
    train: int | None
    test: int | None


def summarise(path: Path, name: str | None = None) -> DataSummary:
    """Summarise the files at a path; without a name the data set is recognised from the files.

    Raises:
        ConfigurationError: the files are of no data set or of another, or damaged.
    """
    data_set = data_set_named(name) if name else recognise(path)
    records = data_set.records(path)
    if records.owner is None:
        raise ConfigurationError(f"data set {data_set.name!r} has no natural clients")
    counts = np.bincount(records.owner, minlength=len(records.owners))
    test = None if records.is_test is None else int(records.is_test.sum())
    return DataSummary(
        dataset=data_set.name,
        devices=len(counts),
        samples=int(counts.sum()),
        mean=float(counts.mean()),
        stdev=float(counts.std()),
        smallest=int(counts.min()),
        largest=int(counts.max()),
        train=None if test is None else int(counts.sum()) - test,
        test=test,
    )


def verify_files(
    path: Path,
    name: str | None = None,
    glove: Path | None = None,
    settings: Mapping[str, Any] | None = None,
) -> DataSet:
    """Verify files as a run with all their natural clients would; return their data set.

    Args:
        path: a file or folder.
        name: of the data set; None to recognise it from the files.
        glove: word vectors to verify with them.
        settings: the data set's own; None for the defaults.

    Raises:
        ConfigurationError: names the first fault.
    """
    data_set = data_set_named(name) if name else recognise(path, settings)
    options = parse_settings(data_set.options, settings, "data.options") if settings else None
    records = data_set.records(path, options)
    _require_split(path, data_set, records)
    if glove is not None:
        with_glove = {**(settings or {}), "glove": str(glove)}
        options = parse_settings(data_set.options, with_glove, "data.options")
        data_set.pool(records, options, np.random.default_rng(0))
    return data_set


def _require_split(path: Path, data_set: DataSet, records: Records) -> None:
    if records.is_test is None:
        return
    if records.owner is not None:
        trained = records.owner[~records.is_test]
        counts = np.bincount(trained, minlength=len(records.owners))
        require_trained(counts, records.owners, data_set.owned_by or "clients", str(path))
    if not records.is_test.any():
        raise ConfigurationError(f"{path}: has no test samples")
