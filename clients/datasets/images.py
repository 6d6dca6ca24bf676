"""Published images: `digits`, `digits-by-writer` and FEMNIST.

Models get LEAF's convention from every layout: background 1.0, ink 0.0; 62 classes: 0-9, A-Z, a-z.
(The paper says 64 classes; LEAF's data have 62.)

The file is an `.npz` with `image` (0 background, 255 ink), `label`, `writer` and `is_test`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clients.datasets.data_set import DataSet, FileFormat, HubFiles
from clients.datasets.federated_data import (
    DataForm,
    Labels,
    PooledData,
    Records,
    SettingsTable,
    Share,
    as_pictures,
    held_out,
    numbered,
    pooled,
)
from clients.datasets.files.archives import ArrayRule, read_arrays
from clients.datasets.files.layout import FileKind, Layout, LeafPart, read_leaf
from clients.datasets.files.tables import Column, read_rows
from ledger.protocol.errors import ConfigurationError

DIGIT_CLASSES = 10
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


def _pool_digits(records: Records, options: DigitsOptions, rng: np.random.Generator) -> PooledData:
    order = rng.permutation(len(records.y))
    test, train = np.split(order, [int(options.test_share * len(order) + 0.5)])
    return PooledData(
        form=DataForm((1, 8, 8), DIGIT_CLASSES),
        x=(records.x / _INK_MAXIMUM).astype(np.float32).reshape(-1, 1, 8, 8),
        y=records.y,
        train=train,
        test=test,
    )


def _read_digits(*_: object) -> Records:
    return bundled_digits()


DIGITS = DataSet("digits", DigitsOptions, _pool_digits, read=_read_digits, has_path=False)


FEMNIST_CLASSES = 62
SIDE = 28
FEMNIST_RULES = {
    "image": ArrayRule("|u1", (None, SIDE, SIDE)),
    "label": ArrayRule("|u1", (None,), 0, FEMNIST_CLASSES - 1),
    "writer": ArrayRule("<i2", (None,), 0, 2**15 - 1),
    "is_test": ArrayRule("|u1", (None,), 0, 1),
    "source_file": ArrayRule("|u1", (None,)),
}
COLUMNS = {"image": Column.IMAGE, "writer_id": Column.TEXT, "character": Column.WHOLE}
LONGEST_WRITER = 200


class FemnistOptions(SettingsTable):
    """Settings.

    Attributes:
        test_share: share of each writer's samples in the test, by default 0.2; only for files
            without a split of their own.
    """

    test_share: Share | None = None


def read_written(layout: Layout, rules: Mapping[str, ArrayRule]) -> Records:
    """Return the images of an `.npz` file with their writers and split."""
    arrays = read_arrays(layout.path, rules)
    owner, owners = numbered(arrays["writer"])
    labels = arrays["label"].astype(np.int64)
    return Records(arrays["image"], labels, owner, owners, arrays["is_test"].astype(np.bool_))


def _table(layout: Layout) -> Records:
    """Return the images of the Hugging Face layout, which has no split."""
    images: list[NDArray[np.uint8]] = []
    labels: list[NDArray[np.int64]] = []
    writers: list[str] = []
    for path in layout.files:
        for rows in read_rows(path, COLUMNS):
            where, pictures = f"{path}: from row {len(writers)}", rows["image"]
            if pictures.shape[1:] != (1, SIDE, SIDE):
                raise ConfigurationError(
                    f"{where}: an image of shape {pictures.shape[1:]}; must be {SIDE} × {SIDE}"
                )
            images.append(pictures[:, 0])
            labels.append(_require_labels(where, rows["character"]))
            writers += rows["writer_id"].tolist()
    if any(not 0 < len(writer) <= LONGEST_WRITER for writer in set(writers)):
        raise ConfigurationError(
            f"{layout.path}: writer_id: must have 1 .. {LONGEST_WRITER} characters"
        )
    owner, owners = numbered(writers)
    return Records(np.concatenate(images), np.concatenate(labels), owner, owners)


def _leaf_part(where: str, x: list[Any], y: list[Any]) -> LeafPart:
    """Return images from LEAF's numbers in [0, 1], which are bytes divided by 255."""
    try:
        pixels = np.array(x or np.zeros((0, SIDE * SIDE)))
    except (ValueError, OverflowError) as error:
        raise ConfigurationError(f"{where}: x must be lists of numbers ({error})") from error
    if pixels.dtype.kind not in "fiu" or pixels.shape != (len(x), SIDE * SIDE):
        raise ConfigurationError(f"{where}: x must be lists of {SIDE * SIDE} numbers each")
    if not ((pixels >= 0) & (pixels <= 1)).all():
        raise ConfigurationError(
            f"{where}: pixels {pixels.min()} .. {pixels.max()}, outside 0 .. 1"
        )
    if any(type(label) is not int for label in y):
        raise ConfigurationError(f"{where}: y must be whole numbers")
    images = np.rint(pixels * 255).astype(np.uint8).reshape(-1, SIDE, SIDE)
    return LeafPart(images, _require_labels(where, np.array(y, dtype=object)))


def _require_labels(where: str, labels: NDArray[Any]) -> Labels:
    if len(labels) and not (labels.min() >= 0 and labels.max() < FEMNIST_CLASSES):
        raise ConfigurationError(
            f"{where}: labels {labels.min()} .. {labels.max()}, outside 0 .. {FEMNIST_CLASSES - 1}"
        )
    return labels.astype(np.int64)


def _pool_femnist(
    records: Records, options: FemnistOptions, rng: np.random.Generator
) -> PooledData:
    is_test = held_out(records, options.test_share, rng)
    return pooled(records, is_test, DataForm((1, SIDE, SIDE), FEMNIST_CLASSES), as_pictures)


def _is_image(value: object) -> bool:
    return isinstance(value, list) and all(type(pixel) in {int, float} for pixel in value)


FEMNIST = DataSet(
    "femnist",
    FemnistOptions,
    _pool_femnist,
    (
        FileFormat(
            FileKind.ARRAYS, frozenset(FEMNIST_RULES), partial(read_written, rules=FEMNIST_RULES)
        ),
        FileFormat(FileKind.TABLE, frozenset(COLUMNS), _table),
        FileFormat(FileKind.LEAF, frozenset(), lambda layout: read_leaf(layout, _leaf_part)),
    ),
    owned_by="writers",
    is_input_of=_is_image,
    hub=HubFiles("flwrlabs/femnist", (("main", r"data/train-[^/]+\.parquet"),)),
)


CLASSES = 10
DIGIT_RULES = {
    "image": ArrayRule("|u1", (None, 28, 28)),
    "label": ArrayRule("|u1", (None,), 0, CLASSES - 1),
    "writer": ArrayRule("<i2", (None,), 0, 2**15 - 1),
    "is_test": ArrayRule("|u1", (None,), 0, 1),
}


class DigitsByWriterOptions(SettingsTable):
    """Settings: none, as the file has the writers and the split."""


def _pool_writers(
    records: Records, _: DigitsByWriterOptions, rng: np.random.Generator
) -> PooledData:
    is_test = held_out(records, None, rng)
    return pooled(records, is_test, DataForm((1, 28, 28), CLASSES), as_pictures)


DIGITS_BY_WRITER = DataSet(
    "digits-by-writer",
    DigitsByWriterOptions,
    _pool_writers,
    (
        FileFormat(
            FileKind.ARRAYS,
            frozenset(DIGIT_RULES),
            lambda layout: read_written(layout, DIGIT_RULES),
        ),
    ),
    owned_by="writers",
)
