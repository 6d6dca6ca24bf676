"""`digits`: the 1,797 handwritten digits of scikit-learn, 8 × 8, without writers."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from clients.datasets.data_set import DataSet
from clients.datasets.federated_data import DataForm
from clients.datasets.records import PooledData, Records
from clients.datasets.settings_table import SettingsTable, Share

CLASSES = 10
_INK_MAXIMUM = 16  # the bundled images count ink in 0 .. 16


class DigitsOptions(SettingsTable):
    """Settings: the share of all samples in the global test set."""

    test_share: Share = 0.2


@cache
def bundled_digits() -> Records:
    """Return scikit-learn's digits."""
    if not _file().is_file():
        from sklearn.datasets import load_digits  # noqa: PLC0415

        bundle = load_digits()
        return Records(bundle.images, bundle.target.astype(np.int64))
    table = np.loadtxt(_file(), delimiter=",")
    return Records(table[:, :-1].reshape(-1, 8, 8), table[:, -1].astype(np.int64))


def _file() -> Path:
    """Return where scikit-learn keeps the digits.

    `load_digits` reads the same file, but its import takes more than a second, for scipy's
    statistics and pandas.
    """
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("No module named 'sklearn'", name="sklearn")
    return Path(package.origin).with_name("datasets") / "data" / "digits.csv.gz"


def _pool(records: Records, options: DigitsOptions, rng: np.random.Generator) -> PooledData:
    """Return the digits with a random share as global test set, pixels in [0, 1]."""
    order = rng.permutation(len(records.y))
    test, train = np.split(order, [int(options.test_share * len(order) + 0.5)])
    return PooledData(
        form=DataForm((1, 8, 8), CLASSES),
        x=(records.x / _INK_MAXIMUM).astype(np.float32).reshape(-1, 1, 8, 8),
        y=records.y,
        train=train,
        test=test,
    )


DIGITS = DataSet("digits", DigitsOptions, _pool, bundled=bundled_digits)
