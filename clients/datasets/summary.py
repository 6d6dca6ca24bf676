"""What the files of a data set hold: the paper's Table 2, and whether all of it can be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from clients.datasets.records import require_trained
from clients.datasets.registry import data_set_named, recognise
from clients.datasets.settings_table import parse_settings
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

    from clients.datasets.data_set import DataSet
    from clients.datasets.records import Records


@dataclass(frozen=True, slots=True)
class DataSummary:
    """A row of Table 2, and how the files divide it.

    Attributes:
        dataset: name in the registry.
        devices: natural clients.
        samples: of all of them.
        mean: samples per device.
        stdev: population standard deviation of the samples per device.
        smallest: samples of the device that has fewest.
        largest: samples of the device that has most.
        train: training samples by the files' own split; None where they have none.
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
    """Return what the files behind a path hold.

    Args:
        path: a file or folder.
        name: of the data set; None to tell it from the files.

    Raises:
        ConfigurationError: the files are of no data set or of another, or damaged.
    """
    data_set = data_set_named(name) if name else recognise(path)
    records = data_set.records(path)
    if records.owner is None:
        raise ConfigurationError(f"data set {data_set.name!r} has no natural clients")
    held = np.bincount(records.owner, minlength=len(records.owners))
    test = None if records.is_test is None else int(records.is_test.sum())
    return DataSummary(
        dataset=data_set.name,
        devices=len(held),
        samples=int(held.sum()),
        mean=float(held.mean()),
        stdev=float(held.std()),
        smallest=int(held.min()),
        largest=int(held.max()),
        train=None if test is None else int(held.sum()) - test,
        test=test,
    )


def verify_files(path: Path, name: str | None = None, glove: Path | None = None) -> DataSet:
    """Refuse files that a run of all their natural clients would refuse.

    Args:
        path: a file or folder.
        name: of the data set; None to tell it from the files.
        glove: word vectors to check with them, for a data set that takes some.

    Returns:
        The data set.

    Raises:
        ConfigurationError: names the first fault.
    """
    data_set = data_set_named(name) if name else recognise(path)
    records = data_set.records(path)
    _require_split(path, data_set, records)
    if glove is not None:
        options = parse_settings(data_set.options, {"glove": str(glove)}, "data.options")
        data_set.pool(records, options, np.random.default_rng(0))
    return data_set


def _require_split(path: Path, data_set: DataSet, records: Records) -> None:
    if records.owner is None or records.is_test is None:
        return
    held = np.bincount(records.owner[~records.is_test], minlength=len(records.owners))
    require_trained(held, records.owners, data_set.owned_by or "clients", str(path))
    if not records.is_test.any():
        raise ConfigurationError(f"{path}: has no test samples")
