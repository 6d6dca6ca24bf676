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
    Samples,
    SettingsTable,
    Share,
    as_pictures,
    held_out,
    numbered,
    pooled,
)
from clients.datasets.files.archives import ArrayRule, read_arrays
from clients.datasets.files.layout import FileKind, Layout, read_leaf
from clients.datasets.files.tables import Column, read_table, require_names
from ledger.protocol.errors import ConfigurationError

_DIGITS, _CHARACTERS = 10, 62
_SIDE = 28
COLUMNS = {"image": Column.IMAGE, "writer_id": Column.TEXT, "character": Column.WHOLE}


class DigitsOptions(SettingsTable):
    """Share of all samples in the global test set."""

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
    """Return the file that `load_digits` reads, whose import takes more than a second."""
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("No module named 'sklearn'", name="sklearn")
    return Path(package.origin).with_name("datasets") / "data" / "digits.csv.gz"


def _pool_digits(records: Records, options: DigitsOptions, rng: np.random.Generator) -> PooledData:
    order = rng.permutation(len(records.y))
    test, train = np.split(order, [int(options.test_share * len(order) + 0.5)])
    # The bundled images count ink in 0 .. 16.
    x = (records.x / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    return PooledData(DataForm((1, 8, 8), _DIGITS), x, records.y, train, test)


DIGITS = DataSet(
    "digits", DigitsOptions, _pool_digits, read=lambda *_: bundled_digits(), has_path=False
)


class FemnistOptions(SettingsTable):
    """Settings."""

    test_share: Share | None = None
    """Share of each writer's samples in the test set, for files without a split. Default: 0.2."""


class DigitsByWriterOptions(SettingsTable):
    """Settings: none, as the file has the writers and the split."""


def _written_rules(classes: int) -> dict[str, ArrayRule]:
    return {
        "image": ArrayRule("|u1", (None, _SIDE, _SIDE)),
        "label": ArrayRule("|u1", (None,), 0, classes - 1),
        "writer": ArrayRule("<i2", (None,), 0, 2**15 - 1),
        "is_test": ArrayRule("|u1", (None,), 0, 1),
    }


def _written_format(rules: Mapping[str, ArrayRule]) -> FileFormat:
    def read(layout: Layout) -> Records:
        arrays = read_arrays(layout.path, rules)
        owner, owners = numbered(arrays["writer"])
        labels = arrays["label"].astype(np.int64)
        return Records(arrays["image"], labels, owner, owners, arrays["is_test"].astype(np.bool_))

    return FileFormat(FileKind.ARRAYS, frozenset(rules), read)


def _pool_written(
    records: Records,
    options: FemnistOptions | DigitsByWriterOptions,
    rng: np.random.Generator,
    classes: int,
) -> PooledData:
    share = options.test_share if isinstance(options, FemnistOptions) else None
    form = DataForm((1, _SIDE, _SIDE), classes)
    return pooled(records, held_out(records, share, rng), form, as_pictures)


def _femnist_table(layout: Layout) -> Records:
    """Return the images of the Hugging Face layout, which has no split."""

    def check(where: str, rows: Mapping[str, NDArray[Any]]) -> None:
        shape = rows["image"].shape[1:]
        if shape != (1, _SIDE, _SIDE):
            raise ConfigurationError(f"{where}: an image of shape {shape}; must be 28 × 28")
        _checked_labels(where, rows["character"])

    columns = read_table(layout.files, COLUMNS, check)
    writers = columns["writer_id"].tolist()
    require_names(f"{layout.path}: writer_id", writers)
    return Records(columns["image"][:, 0], columns["character"], *numbered(writers))


def _femnist_part(where: str, x: list[Any], y: list[Any]) -> Samples:
    """Return images from LEAF's numbers in [0, 1], which are bytes divided by 255."""
    try:
        pixels = np.array(x or np.zeros((0, _SIDE * _SIDE)))
    except (ValueError, OverflowError) as error:
        raise ConfigurationError(f"{where}: x must be lists of numbers ({error})") from error
    if pixels.dtype.kind not in "fiu" or pixels.shape != (len(x), _SIDE * _SIDE):
        raise ConfigurationError(f"{where}: x must be lists of {_SIDE * _SIDE} numbers each")
    if not ((pixels >= 0) & (pixels <= 1)).all():
        span = f"{pixels.min()} .. {pixels.max()}"
        raise ConfigurationError(f"{where}: pixels {span}, outside 0 .. 1")
    if any(type(label) is not int for label in y):
        raise ConfigurationError(f"{where}: y must be whole numbers")
    images = np.rint(pixels * 255).astype(np.uint8).reshape(-1, _SIDE, _SIDE)
    return Samples(images, _checked_labels(where, np.array(y, dtype=object)))


def _checked_labels(where: str, labels: NDArray[Any]) -> Labels:
    if len(labels) and not (labels.min() >= 0 and labels.max() < _CHARACTERS):
        span = f"{labels.min()} .. {labels.max()}"
        raise ConfigurationError(f"{where}: labels {span}, outside 0 .. {_CHARACTERS - 1}")
    return labels.astype(np.int64)


def _is_image(value: object) -> bool:
    return isinstance(value, list) and all(type(pixel) in {int, float} for pixel in value)


FEMNIST = DataSet(
    "femnist",
    FemnistOptions,
    partial(_pool_written, classes=_CHARACTERS),
    (
        _written_format(_written_rules(_CHARACTERS) | {"source_file": ArrayRule("|u1", (None,))}),
        FileFormat(FileKind.TABLE, frozenset(COLUMNS), _femnist_table),
        FileFormat(FileKind.LEAF, frozenset(), partial(read_leaf, convert=_femnist_part)),
    ),
    owned_by="writers",
    is_input_of=_is_image,
    hub=HubFiles("flwrlabs/femnist", (("main", r"data/train-[^/]+\.parquet"),)),
)

DIGITS_BY_WRITER = DataSet(
    "digits-by-writer",
    DigitsByWriterOptions,
    partial(_pool_written, classes=_DIGITS),
    (_written_format(_written_rules(_DIGITS)),),
    owned_by="writers",
)
