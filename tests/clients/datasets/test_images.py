"""The two sets of digits, and FEMNIST in three layouts."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from clients.datasets import images as digits
from clients.datasets.federated_data import FederatedData, Records
from clients.datasets.registry import DATASETS, DataChoice, load_dataset, recognise
from ledger.protocol.errors import ConfigurationError
from tests.clients.datasets import leaf

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
        ({"extra": np.zeros(9, dtype=np.uint8)}, "with 'extra', .* is not a layout of 'digits-by-"),
        ({"is_test": np.ones(9, dtype=np.uint8)}, "'4' of the writers has no training sample"),
        ({"is_test": np.zeros(9, dtype=np.uint8)}, "no test samples"),
    ],
)
def test_an_invalid_file_is_refused(tmp_path: Path, changed: Any, rule: str) -> None:
    path = written(tmp_path / "broken.npz", small_arrays(), **changed)
    with pytest.raises(ConfigurationError, match=rf"broken\.npz.*{rule}"):
        load_small(path)


def test_a_large_file_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "d.npz", small_arrays())
    monkeypatch.setattr("clients.datasets.files.archives.MAX_ARRAYS_BYTES", 7000)
    with pytest.raises(ConfigurationError, match="unpacks to"):
        load_small(path)
    monkeypatch.setattr("clients.datasets.files.archives.MAX_FILE_BYTES", 100)
    with pytest.raises(ConfigurationError, match="more than 100"):
        load_small(path)


@pytest.mark.skipif(not REAL_FILE.is_file(), reason="shared/data is not beside us")
def test_the_real_file_has_297_writers() -> None:
    data = load_dataset(DataChoice("digits-by-writer", REAL_FILE), 297, rng())
    assert sum(data.sample_counts) == 8007
    assert len(data.test.y) == 1993
    assert data.collate(data.train[0].x[:1]).shape == (1, *data.form.input_shape)
    with pytest.raises(ConfigurationError, match="= 298: more"):
        load_dataset(DataChoice("digits-by-writer", REAL_FILE), 298, rng())


FIXTURE = Path(__file__).parents[2] / "fixtures" / "hugging_face" / "femnist"
REAL_FILE_FEMNIST = Path(__file__).parents[4] / "shared" / "data" / "femnist_mini.npz"


def records(path: Path) -> Records:
    return DATASETS["femnist"].records(path)


def png(pixels: np.ndarray) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, format="PNG")
    return stream.getvalue()


def table(folder: Path, images: list[bytes], labels: list[int], writers: list[str]) -> Path:
    path = folder / "train.parquet"
    image_type = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    pq.write_table(
        pa.table(
            {
                "image": pa.array([{"bytes": i, "path": None} for i in images], image_type),
                "writer_id": writers,
                "character": labels,
            }
        ),
        path,
    )
    return path


def blank(value: int = 255) -> np.ndarray:
    return np.full((28, 28), value, dtype=np.uint8)


def test_the_hugging_face_layout_gives_images_on_white() -> None:
    found = records(FIXTURE)
    assert found.owners == ("f0001_41", "f0002_07")
    assert found.owner is not None
    assert found.owner.tolist() == [0, 0, 0, 1, 1, 1, 1]
    # "Az9" and "07bZ" among 0-9, A-Z, a-z.
    assert found.y.tolist() == [10, 61, 9, 0, 7, 37, 35]
    assert found.is_test is None
    assert found.x.shape == (7, 28, 28)
    # Image k has a bar of value 10 k at columns 2 + k .. 4 + k, rows 4 .. 23.
    assert found.x[3, 4, 5:8].tolist() == [30, 30, 30]
    assert (found.x[:, 0] == 255).all()


def test_models_get_background_1_and_ink_0_from_every_layout(tmp_path: Path) -> None:
    image = blank()
    image[0, 0] = 51
    users = {"w1": ([(image / 255).reshape(-1).tolist()], [61])}
    folder = leaf.written(tmp_path / "leaf", users, users)
    path = tmp_path / "f.npz"
    flags = np.array([0, 1], dtype=np.uint8)
    np.savez(
        path,
        image=np.stack([image, image]),
        label=np.full(2, 61, dtype=np.uint8),
        writer=np.zeros(2, dtype=np.int16),
        is_test=flags,
        source_file=flags,
    )
    parquet = table(tmp_path, [png(image)] * 2, [61, 61], ["w1", "w1"])
    for source in (folder, path, parquet):
        data = load_dataset(
            DataChoice("femnist", source, {"test_share": 0.5} if source is parquet else {}),
            1,
            np.random.default_rng(0),
        )
        pictures = data.collate(data.train[0].x)
        assert pictures.shape == (1, 1, 28, 28)
        assert pictures.dtype == np.float32
        assert pictures[0, 0, 0, :2].tolist() == [np.float32(0.2), 1.0]
        assert data.train[0].y.tolist() == data.test.y.tolist() == [61]
        assert data.form.classes == 62
        assert recognise(source).name == "femnist"


@pytest.mark.parametrize(
    ("image", "sentence"),
    [
        (
            png(np.zeros((28, 29), dtype=np.uint8)),
            r"an image of shape \(1, 28, 29\); must be 28 × 28",
        ),
        (png(np.zeros((28, 28, 3), dtype=np.uint8)), r"an image of shape \(3, 28, 28\)"),
        (png(blank())[:50], "not a readable image"),
        (png(blank()).replace(b"IDAT", b"IDAX"), "not a readable image"),
        (b"GIF89a", "not a readable image"),
        (b"", "not a readable image"),
        (png(blank())[:16] + png(blank())[-12:], "not a readable image"),
    ],
)
def test_a_damaged_or_resized_image_is_refused(tmp_path: Path, image: bytes, sentence: str) -> None:
    path = table(tmp_path, [image], [0], ["w"])
    with pytest.raises(ConfigurationError, match=rf"train\.parquet: .*from row 0: .*{sentence}"):
        records(path)


def test_an_image_bomb_is_refused_by_its_header(tmp_path: Path) -> None:
    # The size of a PNG image stands in its first chunk, after 16 bytes.
    small = png(blank())
    large = small[:16] + (60_000).to_bytes(4, "big") * 2 + small[24:]
    with pytest.raises(ConfigurationError, match="not a readable image"):
        records(table(tmp_path, [large], [0], ["w"]))


@pytest.mark.parametrize(
    ("label", "writer", "sentence"),
    [
        (62, "w", r"from row 0: labels 62 \.\. 62, outside 0 \.\. 61"),
        (0, "", r"writer_id: must have 1 \.\. 200 characters"),
    ],
)
def test_labels_and_names_are_bounded(
    tmp_path: Path, label: int, writer: str, sentence: str
) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        records(table(tmp_path, [png(blank())], [label], [writer]))


@pytest.mark.parametrize(
    ("x", "y", "sentence"),
    [
        ([[0.5] * 783], [0], "x must be lists of 784 numbers each"),
        ([[0.5] * 784, [0.5]], [0, 0], "x must be lists of numbers"),
        ([["1.0"] * 784], [0], "x must be lists of 784 numbers each"),
        ([[1.5] * 784], [0], r"pixels 1\.5 \.\. 1\.5, outside 0 \.\. 1"),
        ([[10**400] * 784], [0], "x must be lists of"),
        ([[0.5] * 784], [62], r"labels 62 \.\. 62, outside 0 \.\. 61"),
        ([[0.5] * 784], ["1"], "y must be whole numbers"),
    ],
)
def test_non_images_in_leaf_are_refused(tmp_path: Path, x: Any, y: Any, sentence: str) -> None:
    folder = leaf.written(tmp_path, {"w1": (x, y)}, {})
    with pytest.raises(ConfigurationError, match=rf"all_data_train\.json: 'w1': {sentence}"):
        records(folder)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"users": ["w1", "w2"]}, "differ in length"),
        ({"users": "w1"}, "users is invalid .Input should be a valid list"),
        ({"users": [5]}, "users.0 is invalid .Input should be a valid string"),
        ({"users": ["x" * 201]}, "at most 200 characters"),
        ({"num_samples": [2]}, "'w1' has 1 inputs and 1 labels, but num_samples is 2"),
        ({"num_samples": [True]}, "num_samples.0 is invalid .Input should be a valid integer"),
        ({"user_data": []}, "user_data is invalid .Input should be a valid dictionary"),
        ({"user_data": {"w1": []}}, "user_data.w1"),
        ({"user_data": {"w1": {"x": [], "y": 5}}}, "user_data.w1"),
    ],
)
def test_a_folder_of_leaf_that_contradicts_itself_is_refused(
    tmp_path: Path, changed: dict[str, Any], sentence: str
) -> None:
    users = {"w1": ([[0.5] * 784], [0])}
    folder = leaf.written(tmp_path, users, users)
    assert records(folder).y.tolist() == [0, 0]
    path = folder / "train" / "all_data_train.json"
    path.write_text(json.dumps(leaf.document(users) | changed))
    with pytest.raises(ConfigurationError, match=rf"all_data_train\.json: .*{sentence}"):
        records(folder)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b'{"users": ["w1"', "not a readable JSON file"),
        (b"\xff", "is not UTF-8 text"),
        (b"[]", "Input should be a valid dictionary"),
        (b'{"users": ' + b"[" * 2000, "nested more than 1000 levels"),
        (b'{"users": NaN}', "NaN is not a number"),
    ],
)
def test_damaged_json_is_refused_by_file(tmp_path: Path, content: bytes, sentence: str) -> None:
    folder = leaf.written(tmp_path, {}, {})
    (folder / "test" / "all_data_test.json").write_bytes(content)
    with pytest.raises(ConfigurationError, match=rf"all_data_test\.json.*{sentence}"):
        records(folder)


def test_duplicate_users_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    users = {"w1": ([[0.5] * 784], [0])}
    folder = leaf.written(tmp_path, users, users)
    (folder / "train" / "more.json").write_text(json.dumps(leaf.document(users)))
    with pytest.raises(ConfigurationError, match=r"more\.json: 'w1': is in two files of train"):
        records(folder)
    monkeypatch.setattr("clients.datasets.files.layout.MAX_FILE_BYTES", 100)
    with pytest.raises(ConfigurationError, match="is over 100 bytes"):
        records(folder)


@pytest.mark.skipif(not REAL_FILE_FEMNIST.is_file(), reason="shared/data is not beside us")
def test_the_real_slice_has_28_writers_on_white() -> None:
    data = load_dataset(DataChoice("femnist", REAL_FILE_FEMNIST), 28, np.random.default_rng(0))
    assert (sum(data.sample_counts), len(data.test.y)) == (1408, 353)
    assert float(np.median(data.collate(data.test.x))) == 1.0
