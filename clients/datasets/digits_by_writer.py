"""`digits-by-writer`: 10,000 handwritten 28 × 28 digits, one client for each of 297 writers.

The file is an `.npz` with `image` (0 background, 255 ink), `label`, `writer` and `is_test`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clients.datasets.collating import as_pictures
from clients.datasets.data_set import DataSet, FileFormat
from clients.datasets.federated_data import DataForm
from clients.datasets.femnist import read_written
from clients.datasets.files.data_archive import ArrayRule
from clients.datasets.files.layout import FileKind
from clients.datasets.records import PooledData, Records, held_out, pooled
from clients.datasets.settings_table import SettingsTable

if TYPE_CHECKING:
    pass

CLASSES = 10
RULES = {
    "image": ArrayRule("|u1", (None, 28, 28)),
    "label": ArrayRule("|u1", (None,), 0, CLASSES - 1),
    "writer": ArrayRule("<i2", (None,), 0, 2**15 - 1),
    "is_test": ArrayRule("|u1", (None,), 0, 1),
}


class DigitsByWriterOptions(SettingsTable):
    """Settings: none, as the file has the writers and the split."""


def _pool(records: Records, _: DigitsByWriterOptions, rng: np.random.Generator) -> PooledData:
    return pooled(
        records,
        held_out(records, None, rng),
        DataForm((1, 28, 28), CLASSES),
        records.x,
        as_pictures,
        "writers",
    )


DIGITS_BY_WRITER = DataSet(
    "digits-by-writer",
    DigitsByWriterOptions,
    _pool,
    (FileFormat(FileKind.ARRAYS, frozenset(RULES), lambda layout: read_written(layout, RULES)),),
    owned_by="writers",
)
