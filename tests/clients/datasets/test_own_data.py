"""A user's own data in a simulation: every layout, the split, and every rule that a file breaks."""

from __future__ import annotations

import io
import json
import tracemalloc
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from safetensors.numpy import save_file

from clients.configuration.loading import load
from clients.configuration.parsing import configuration_from_document
from clients.datasets.federated_data import FederatedData
from clients.datasets.own_data import Data
from clients.datasets.own_samples import own_parts
from clients.datasets.registry import DataChoice, data_digest, load_dataset, recognise, verify_files
from clients.runs.population import populate, run_document
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import ClientId

ROWS = 12
Y = np.arange(ROWS) % 3
CLIENT = np.repeat([7, 8, 9], 4)
IS_TEST = np.arange(ROWS) % 4 == 3


def loaded(
    path: Path, options: Mapping[str, Any] | None = None, clients: int = 3, **partition: Any
) -> FederatedData:
    choice = DataChoice("file", path, options or {}, partition)
    return load_dataset(choice, clients, np.random.default_rng(0))


def numbers(*shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.arange(ROWS * int(np.prod(shape)), dtype=np.float32).reshape(ROWS, *shape)


def archive(path: Path, **arrays: Any) -> Path:
    np.savez(path, allow_pickle=True, **arrays)
    return path


def csv_file(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8")
    return path


@pytest.mark.parametrize(
    ("x", "form"),
    [
        (numbers(5).astype(np.float64), ((5,), "float32", None)),
        (numbers(2, 3), ((2, 3), "float32", None)),
        (np.zeros((ROWS, 4, 6), np.uint8), ((1, 4, 6), "float32", None)),
        (np.zeros((ROWS, 3, 4, 6), np.uint8), ((3, 4, 6), "float32", None)),
        (np.tile(np.arange(5), (ROWS, 1)), ((5,), "int64", 5)),
        (np.asfortranarray(numbers(5)), ((5,), "float32", None)),
    ],
    ids=["vectors", "tables", "grey", "coloured", "tokens", "by-column"],
)
def test_the_type_of_arrays_says_what_they_hold(tmp_path: Path, x: Any, form: Any) -> None:
    data = loaded(archive(tmp_path / "mine.npz", x=x, y=Y))
    assert (data.form.input_shape, data.form.input_dtype, data.form.vocabulary) == form
    assert data.form.classes == 3
    assert sum(data.sample_counts) + len(data.test.y) == ROWS
    assert data.collate(data.test.x).dtype == data.form.input_dtype


def test_a_client_column_gives_natural_clients(tmp_path: Path) -> None:
    path = archive(tmp_path / "mine.npz", x=numbers(2), y=Y, client=CLIENT, is_test=IS_TEST)
    data = loaded(path)
    assert data.sample_counts == (3, 3, 3)
    assert data.client_tests is not None
    assert data_digest(DataChoice("file", path))["partition"] == {"name": "natural"}
    writers = archive(tmp_path / "writers.npz", x=numbers(2), y=Y, writer=CLIENT.astype(str))
    assert loaded(writers).client_tests is not None


def test_the_file_of_a_worker_is_one_of_a_simulation(tmp_path: Path) -> None:
    held: dict[str, Any] = {"x": numbers(2), "y": Y, "x_test": numbers(2)[:5], "y_test": Y[:5]}
    save_file(held, tmp_path / "own.safetensors")
    for path in (archive(tmp_path / "own.npz", **held), tmp_path / "own.safetensors"):
        data = loaded(path)
        assert (sum(data.sample_counts), len(data.test.y)) == (ROWS, 5)


def test_columns_of_a_table_are_named_by_options(tmp_path: Path) -> None:
    rows = "".join(f"{i},{i / 2},{i % 3},owner {i % 4},{int(i > 8)}\n" for i in range(ROWS))
    path = csv_file(tmp_path / "mine.csv", "\ufeffage,size,kind,site,held_out\n" + rows)
    options = {"label": "kind", "client": "site", "is_test": "held_out"}
    data = loaded(path, options, clients=4)
    assert data.form.input_shape == (2,)
    assert sorted(data.sample_counts) == [2, 2, 2, 3]
    assert loaded(path, options | {"features": ["size"]}, 4).form.input_shape == (1,)


def png(value: int) -> bytes:
    content = io.BytesIO()
    Image.fromarray(np.full((4, 6), value, np.uint8)).save(content, "PNG")
    return content.getvalue()


@pytest.mark.parametrize(
    ("column", "shape"),
    [
        ([[float(i), 0.5] for i in range(ROWS)], (2,)),
        ([[[float(i)] * 3] * 2 for i in range(ROWS)], (2, 3)),
        ([{"bytes": png(i), "path": None} for i in range(ROWS)], (1, 4, 6)),
        ([[i, 1, 2] for i in range(ROWS)], (3,)),
    ],
    ids=["lists", "nested", "images", "tokens"],
)
def test_a_column_of_lists_or_images_is_read(tmp_path: Path, column: Any, shape: Any) -> None:
    table = pa.table({"anything": column, "label": Y, "client": CLIENT.astype(str)})
    pq.write_table(table, tmp_path / "mine.parquet", row_group_size=5)
    assert loaded(tmp_path / "mine.parquet").form.input_shape == shape


def saved(folder: Path, columns: Mapping[str, Any]) -> Path:
    folder.mkdir(parents=True)
    table = pa.table(dict(columns))
    with pa.ipc.new_stream(folder / "data-00000-of-00001.arrow", table.schema) as stream:
        stream.write_table(table, 5)
    state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_split": folder.name}
    (folder / "state.json").write_text(json.dumps(state), "utf-8")
    return folder


def test_folders_of_save_to_disk_are_read_with_their_split(tmp_path: Path) -> None:
    columns = {"x": numbers(2).tolist(), "label": Y}
    single = loaded(saved(tmp_path / "single", columns))
    assert sum(single.sample_counts) + len(single.test.y) == ROWS
    for split in ("train", "test", "validation"):
        saved(tmp_path / "split" / split, columns)
    splits = json.dumps({"splits": ["train", "test", "validation"]})
    (tmp_path / "split" / "dataset_dict.json").write_text(splits, "utf-8")
    both = loaded(tmp_path / "split")
    assert (sum(both.sample_counts), len(both.test.y)) == (ROWS, ROWS)
    assert len(data_digest(DataChoice("file", tmp_path / "split"))["sha256"]) == 2


class Saved:
    def __init__(self, columns: Mapping[str, Any]) -> None:
        self.columns = columns

    def with_format(self, form: str) -> Mapping[slice, Mapping[str, Any]]:
        assert form == "numpy"
        return self  # type: ignore[return-value]

    def __getitem__(self, rows: slice) -> Mapping[str, Any]:
        return self.columns


def test_an_object_with_columns_becomes_data() -> None:
    columns = {"image": np.zeros((ROWS, 5, 6, 3), np.uint8), "label": Y}
    data = Data.from_dataset({"train": Saved(columns), "test": Saved(columns)})
    assert data.x.shape == (2 * ROWS, 3, 5, 6)
    assert data.is_test is not None
    assert data.is_test.sum() == ROWS
    assert Data.from_dataset(Saved(columns)).is_test is None
    with pytest.raises(ConfigurationError, match="a split 'train'"):
        Data.from_dataset({"validation": Saved(columns)})


def test_saved_arrays_are_read_as_they_were_given(tmp_path: Path) -> None:
    data = Data(numbers(2).tolist(), Y.tolist(), client=["a", "b", "c"] * 4, classes=5)
    path = data.save(tmp_path)
    assert path == Data(numbers(2), Y, client=["a", "b", "c"] * 4).save(tmp_path)
    federated = loaded(path, data.options())
    assert (federated.form.classes, len(federated.train)) == (5, 3)
    assert recognise(path).name == "file"


OK: dict[str, Any] = {"x": numbers(2), "y": Y}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"y": None}, "holds 'x'; must hold x and y|lacks its labels"),
        ({"x": None}, "lacks its inputs"),
        ({"extra": Y}, "may hold client"),
        ({"client": Y, "writer": Y}, "choose one, data.options.client"),
        ({"y": Y.astype(np.float64)}, "y: must be whole numbers"),
        ({"y": Y - 1}, r"labels -1 \.\. 1, outside 0"),
        ({"y": Y * 0}, "2 classes or more"),
        ({"x": np.full((ROWS, 2), 1e300)}, "row 0 has a number that is not finite in float32"),
        ({"x": np.array([{}] * ROWS)}, "must hold numbers or text, not .O"),
        ({"x": numbers(2)[:, 0]}, "must be numbers"),
        ({"x": numbers(1, 1, 1, 1)}, "1 to 3 sizes"),
        ({"x": np.zeros((ROWS, 5, 6, 3), np.uint8)}, "must be images \\(channels"),
        ({"x": -np.ones((ROWS, 2), int)}, "must be tokens"),
        ({"client": numbers(1)}, "client: must be whole numbers or text"),
        ({"client": np.array(["a", ""] * 6)}, "row 1 of client is empty"),
        ({"is_test": Y}, "must be true or false"),
        ({"is_test": Y < 9}, "no training samples"),
        ({"client": CLIENT, "is_test": CLIENT == 8}, "'8' of the clients has no training sample"),
        ({"is_test": Y > 9}, "has no test samples"),
    ],
)
def test_arrays_that_break_a_rule_are_refused(tmp_path: Path, changed: Any, message: str) -> None:
    held = {name: array for name, array in (OK | dict(changed)).items() if array is not None}
    path = archive(tmp_path / "mine.npz", **held)
    with pytest.raises(ConfigurationError, match=message):
        loaded(path)
    with pytest.raises(ConfigurationError):
        verify_files(path, "file")


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a,b\n1,0\n", {}, "has 'a', 'b', and lacks its labels"),
        ("a,y\n1,0\n", {"label": "kind"}, "lacks data.options.label = 'kind'"),
        ("a,y\n1,0\n", {"features": ["y"]}, "column y is named twice"),
        ("a,y\n1,0\nx,1\n", {}, "row 2: a: must be a number"),
        ("a,y\n1,0\nnan,1\n", {}, "row 2: a is not finite"),
        ("a,y\n1,0.5\n", {}, "row 1: y: must be a whole number"),
        ("a,y,client\n1,0,\n", {}, "row 1: client: must be of 1"),
        ("a,y,is_test\n1,0,maybe\n", {}, "row 1: is_test: must be 0, 1, true or false"),
        ("a,y\n", {}, "has a header and no row"),
    ],
)
def test_broken_rows_are_refused(tmp_path: Path, text: str, options: Any, message: str) -> None:
    path = csv_file(tmp_path / "mine.csv", text)
    with pytest.raises(ConfigurationError, match=f"mine.csv.*{message}"):
        loaded(path, options)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([[1.0], [1.0, 2.0]] * 6, r"rows of 1 \.\. 2 entries"),
        ([1.0, None] * 6, "6 entries are missing"),
        ([{"bytes": b"no image", "path": ""}] * ROWS, "not a readable image"),
        ([{"bytes": None, "path": "a.png"}] * ROWS, "are missing|not in the file itself"),
    ],
)
def test_columns_that_break_a_rule_are_refused(tmp_path: Path, column: Any, message: str) -> None:
    pq.write_table(pa.table({"x": column, "y": Y}), tmp_path / "mine.parquet")
    with pytest.raises(ConfigurationError, match=message):
        loaded(tmp_path / "mine.parquet")


def test_features_are_in_the_order_of_the_file(tmp_path: Path) -> None:
    names = [f"pixel{at}" for at in range(12)]  # by the alphabet pixel10 would be the third
    x = np.tile(np.arange(12, dtype=np.float32), (ROWS, 1))
    rows = "".join(f"{','.join(map(str, row))},{y}\n" for row, y in zip(x, Y, strict=True))
    lines = csv_file(tmp_path / "mine.csv", f"{','.join(names)},y\n{rows}")
    pq.write_table(pa.table({"y": Y} | dict(zip(names, x.T, strict=True))), tmp_path / "a.parquet")
    for path in (lines, tmp_path / "a.parquet"):
        assert loaded(path, {"shape": [1, 3, 4]}).test.x[0].reshape(-1).tolist() == x[0].tolist()


@pytest.mark.parametrize("type_", ["<f3", "<x4", "<U999999999", "<Q9"])
def test_a_type_that_numpy_does_not_know_is_refused(tmp_path: Path, type_: str) -> None:
    path = archive(tmp_path / "mine.npz", **OK)
    with zipfile.ZipFile(path) as whole:
        members = {name: whole.read(name) for name in whole.namelist()}
    with zipfile.ZipFile(path, "w") as changed:
        for name, content in members.items():
            changed.writestr(name, content.replace(b"'<f4'", f"'{type_}'".encode()))
    with pytest.raises(ConfigurationError, match=r"mine.npz: "):
        loaded(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shape": [3]}, "does not fit"),
        ({"classes": 2}, "outside 0 .. 1"),
        ({"inputs": "tokens"}, "must be tokens"),
        ({"label": "y"}, "is for tables"),
    ],
)
def test_options_that_do_not_fit_are_refused(tmp_path: Path, options: Any, message: str) -> None:
    path = archive(tmp_path / "mine.npz", **OK)
    assert loaded(path, {"shape": [1, 1, 2], "classes": 4}).form.input_shape == (1, 1, 2)
    with pytest.raises(ConfigurationError, match=message):
        loaded(path, options)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("[]", "must be a JSON object"),
        ('{"_data_files": [{"filename": "../x.arrow"}]}', "must name 1 .."),
        ('{"_data_files": [{"filename": "gone.arrow"}]}', "gone.arrow"),
        ('{"_data_files": [], "_indices_data_files": [1]}', "flatten_indices"),
    ],
)
def test_a_damaged_saved_folder_is_refused(tmp_path: Path, state: str, message: str) -> None:
    (tmp_path / "state.json").write_text(state, "utf-8")
    with pytest.raises(ConfigurationError, match=message):
        loaded(tmp_path)


def test_a_long_text_in_many_rows_is_refused_before_it_is_repeated(tmp_path: Path) -> None:
    rows = 2**16
    text = pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), ["x" * 2**20])
    columns = {"x": np.zeros(rows), "label": np.zeros(rows, np.int64), "client": text}
    folder = saved(tmp_path / "data", columns)
    tracemalloc.start()
    try:
        with pytest.raises(ConfigurationError, match="a text of 1048576 characters"):
            loaded(folder)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 64 * 2**20


def test_a_path_on_the_command_line_replaces_the_bundled_digits(tmp_path: Path) -> None:
    path = archive(tmp_path / "mine.npz", **OK)
    assert load("smoke", settings=(f"data.path={path}",)).data.name == "file"
    with pytest.raises(ConfigurationError, match="unknown data set"):
        load("smoke", settings=(f"data.path={path}", "data.name=flie"))
    with pytest.raises(ConfigurationError, match="more clients than data"):
        loaded(path, clients=20)


LOADER = """
import numpy as np
from clients.datasets.own_data import Data

def load(rows=12, table=None):
    if rows < 0:
        raise ValueError("no rows")
    if rows == 0:
        return [1, 2]
    return Data(np.eye(rows, 4), np.arange(rows) % 3, client=np.arange(rows) % 4, classes=7)
"""


def loader(folder: Path, text: str = LOADER) -> str:
    (folder / "mine.py").write_text(text, "utf-8")
    return f"{folder / 'mine.py'}:load"


def test_a_function_may_be_a_data_set(tmp_path: Path) -> None:
    choice = DataChoice(loader(tmp_path), None, {"rows": 16})
    data = load_dataset(choice, 4, np.random.default_rng(0))
    assert (data.name, data.form.classes, len(data.train)) == ("mine.py:load", 7, 4)
    recorded = data_digest(choice)
    assert recorded["partition"] == {"name": "natural"}
    assert len(recorded["sha256"]) == 64
    table = csv_file(tmp_path / "t.csv", "a\n")
    with_file = data_digest(DataChoice(choice.name, None, {"table": str(table)}))
    assert with_file["options"]["table"].startswith("sha256:")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": -1}, r"mine.py:load': it fails: ValueError: no rows \(mine.py, line 7\)"),
        ({"rows": 0}, "returns list; must return Data"),
    ],
)
def test_a_function_without_data_is_refused(tmp_path: Path, options: Any, message: str) -> None:
    choice = DataChoice(loader(tmp_path), None, options)
    with pytest.raises(ConfigurationError, match=message):
        load_dataset(choice, 4, np.random.default_rng(0))


def test_no_document_makes_a_worker_run_a_data_sets_code(tmp_path: Path) -> None:
    reference = loader(tmp_path)
    wide = ("data.options.rows=96", "data.partition.name=iid")
    configuration = load("smoke", settings=(f"data.name={reference}", *wide)).on_path("plain")
    document = run_document(configuration, populate(configuration))
    loader(tmp_path, LOADER + "raise SystemExit\n")
    with pytest.raises(ConfigurationError, match=r"--set data\.name=FILE\.py:NAME"):
        configuration_from_document(document)
    loader(tmp_path)
    local = configuration_from_document(document, settings=(f"data.name={reference}",))
    assert own_parts(local, document, (ClientId(3),)).train[3].y.size > 0
    loader(tmp_path, LOADER + "# another\n")
    with pytest.raises(ConfigurationError, match="expected the sha256 of its files"):
        own_parts(local, document, (ClientId(3),))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": None}, "x must hold numbers or text"),
        ({"x": 1.0}, "x is one value"),
        ({"x": torch.zeros(ROWS, 2, requires_grad=True)}, "x is not an array"),
    ],
)
def test_arguments_that_are_no_arrays_are_refused(arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Data(**OK | arrays)


@pytest.mark.parametrize("given", [None, [1], {"train": 5}])
def test_what_is_no_dataset_is_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="train is of type"):
        Data.from_dataset(given)
