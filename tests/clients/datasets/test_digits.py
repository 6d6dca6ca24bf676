"""The two sets of digits: one pooled, one with a client for each writer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from clients.datasets import digits
from clients.datasets.registry import DataChoice, load_dataset
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from clients.datasets.federated_data import FederatedData

REAL_FILE = Path(__file__).parents[4] / "shared" / "data" / "digits_by_writer.npz"


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def small_arrays() -> dict[str, np.ndarray]:
    """Three writers 4, 7 and 9 with three images each, the last one for the test."""
    writer = np.repeat(np.array([4, 7, 9], dtype=np.int16), 3)
    image = np.zeros((9, 28, 28), dtype=np.uint8)
    image[:, 0, 0] = np.arange(9) * 30
    return {
        "image": image,
        "label": np.arange(9, dtype=np.uint8),
        "writer": writer,
        "is_test": np.tile(np.array([0, 0, 1], dtype=np.uint8), 3),
    }


def written(path: Path, arrays: dict[str, np.ndarray], **changed: np.ndarray) -> Path:
    np.savez(path, allow_pickle=True, **{**arrays, **changed})
    return path


def load_small(path: Path, clients: int = 3) -> FederatedData:
    return load_dataset(DataChoice("digits-by-writer", path), clients, rng())


def test_digits_are_split_among_clients_with_a_global_test_fifth() -> None:
    data = load_dataset(DataChoice("digits"), 60, rng())
    assert data.clients == 60
    assert len(data.test.y) == 359
    assert sum(data.sample_counts) == 1797 - 359
    assert min(data.sample_counts) >= 1
    assert data.collate(data.test.x).shape == (359, *data.form.input_shape) == (359, 1, 8, 8)
    assert data.test.x.dtype == np.float32
    assert data.test.y.dtype == np.int64
    assert (data.test.x.min(), data.test.x.max()) == (0.0, 1.0)


def test_bundled_digits_are_those_that_scikit_learn_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    read = digits.bundled_digits.__wrapped__()
    monkeypatch.setattr(digits, "_file", lambda: Path("moved"))
    loaded = digits.bundled_digits.__wrapped__()
    assert all(a.dtype == b.dtype for a, b in ((read.x, loaded.x), (read.y, loaded.y)))
    assert np.array_equal(read.x, loaded.x)
    assert np.array_equal(read.y, loaded.y)


def test_a_path_must_be_given_exactly_where_needed(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="needs the path"):
        load_dataset(DataChoice("digits-by-writer"), 10, rng())
    with pytest.raises(ConfigurationError, match="takes no path"):
        load_dataset(DataChoice("digits", tmp_path), 10, rng())


def test_each_writer_is_a_client_with_its_own_test(tmp_path: Path) -> None:
    data = load_small(written(tmp_path / "d.npz", small_arrays()))
    assert data.sample_counts == (2, 2, 2)
    assert [samples.y.tolist() for samples in data.train] == [[0, 1], [3, 4], [6, 7]]
    assert data.test.y.tolist() == [2, 5, 8]
    assert data.client_tests is not None
    assert [samples.y.tolist() for samples in data.client_tests] == [[2], [5], [8]]
    assert data.train[0].x.dtype == np.uint8
    pictures = data.collate(data.train[0].x)
    assert pictures.shape == (2, *data.form.input_shape)
    assert pictures[1, 0, 0, 0] == np.float32(30) / np.float32(255)


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"label": np.full(9, 10, dtype=np.uint8)}, r"label: values 10 \.\. 10, outside 0"),
        ({"writer": np.full(9, -1, dtype=np.int16)}, "writer: values -1"),
        ({"image": np.zeros((9, 8, 8), dtype=np.uint8)}, r"shape \(9, 8, 8\) does not fit"),
        (
            {"extra": np.zeros(9, dtype=np.uint8)},
            "with 'extra', .* is not a layout of 'digits-by-writer'",
        ),
        ({"is_test": np.ones(9, dtype=np.uint8)}, "'4' of the writers has no training sample"),
        ({"is_test": np.zeros(9, dtype=np.uint8)}, "no test samples"),
    ],
)
def test_an_invalid_file_is_refused_by_name_and_rule(
    tmp_path: Path, changed: dict[str, np.ndarray], rule: str
) -> None:
    path = written(tmp_path / "broken.npz", small_arrays(), **changed)
    with pytest.raises(ConfigurationError, match=rf"broken\.npz.*{rule}"):
        load_small(path)


def test_an_oversized_file_is_refused_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "d.npz", small_arrays())
    monkeypatch.setattr("clients.datasets.files.data_archive.MAX_ARRAYS_BYTES", 7000)
    with pytest.raises(ConfigurationError, match="unpacks to"):
        load_small(path)
    monkeypatch.setattr("clients.datasets.files.data_archive.MAX_FILE_BYTES", 100)
    with pytest.raises(ConfigurationError, match="more than 100"):
        load_small(path)


@pytest.mark.skipif(not REAL_FILE.is_file(), reason="shared/data is not beside us")
def test_the_real_file_has_297_writers() -> None:
    data = load_dataset(DataChoice("digits-by-writer", REAL_FILE), 297, rng())
    assert sum(data.sample_counts) == 8007
    assert len(data.test.y) == 1993
    assert data.collate(data.train[0].x[:1]).shape == (1, *data.form.input_shape)
    with pytest.raises(ConfigurationError, match="298 clients"):
        load_dataset(DataChoice("digits-by-writer", REAL_FILE), 298, rng())
