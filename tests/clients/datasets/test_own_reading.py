"""Own data are read as what they are: names, labels, clients and images that are often misread."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageOps

from clients.configuration.loading import load
from clients.configuration.parsing import configuration_from_document
from clients.datasets.federated_data import FederatedData
from clients.datasets.files.tables import read_lines
from clients.datasets.own_data import Data
from clients.datasets.own_samples import own_parts, simulated_digests
from clients.datasets.registry import (
    DataChoice,
    DataContents,
    data_digest,
    load_dataset,
    verify_files,
)
from clients.runs.population import populate, run_document
from ledger.protocol.documents.run import decode_run, encode_run
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import ClientId

ROWS = 24
BOM = b"\xef\xbb\xbf"
NFC, NFD = "Gen\u00e8ve", "Gene\u0300ve"


def table(
    path: Path,
    header: str = "a,b,y,client",
    *,
    label: Any = lambda row: row % 3,
    client: Any = lambda row: f"s{row % 4}",
    end: str = "",
) -> Path:
    has_index = header.startswith((",", "Unnamed"))
    rows = [
        f"{row},".removeprefix("" if has_index else f"{row},")
        + f"{(row * 7) % 11 / 4},{-row / 8},{label(row)},{client(row)}\n"
        for row in range(ROWS)
    ]
    path.write_text(f"{header}\n{''.join(rows)}{end}", "utf-8")
    return path


def loaded(path: Path, options: Mapping[str, Any] | None = None) -> FederatedData:
    return load_dataset(DataChoice("file", path, options or {}), 4, np.random.default_rng(0))


def checked(path: Path, **options: Any) -> DataContents:
    return verify_files(path, "file", settings=options)


def refused(path: Path, **options: Any) -> str:
    with pytest.raises(ConfigurationError) as error:
        loaded(path, options)
    with pytest.raises(ConfigurationError):
        verify_files(path, settings=options or None)
    return str(error.value)


def equal(one: FederatedData, other: FederatedData) -> bool:
    return simulated_digests(one, 0) == simulated_digests(other, 0)


@pytest.mark.parametrize("header", [",a,b,y,client", "Unnamed: 0,a,b,y,client"])
def test_a_feature_without_a_name_is_refused(tmp_path: Path, header: str) -> None:
    path = table(tmp_path / "a.csv", header)
    assert "column 1, " in refused(path)
    assert 'data.options.features=["a", "b"]' in refused(path)
    assert equal(loaded(path, {"features": ["a", "b"]}), loaded(table(tmp_path / "b.csv")))


def test_the_index_of_a_data_frame_in_parquet_is_refused(tmp_path: Path) -> None:
    columns = {"a": np.ones(ROWS), "y": np.arange(ROWS) % 3, "__index_level_0__": np.arange(ROWS)}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    assert "__index_level_0__" in refused(tmp_path / "a.parquet")
    assert checked(tmp_path / "a.parquet", features=["a"]).features == ("a",)


@pytest.mark.parametrize(
    "name", ["client_id", "user_id", "site", "Client", "userID", "hospital", "device-id", "client "]
)
def test_clients_under_another_name_are_not_a_feature(tmp_path: Path, name: str) -> None:
    path = table(tmp_path / "a.csv", f"a,b,y,{name}", client=lambda row: row % 4)
    if name.strip() == "client":
        assert equal(loaded(path), loaded(path, {"client": "client"}))
        return
    assert f"data.options.client={name}, or " in refused(path)
    assert loaded(path, {"client": name}).client_tests is not None
    assert loaded(path, {"features": ["a", "b"]}).client_tests is None


def test_a_column_that_only_resembles_clients_is_a_feature(tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", "website,subject,y,client")
    assert checked(path).features == ("website", "subject")


@pytest.mark.parametrize("name", ["istest", "is_train", "split", "Test"])
def test_a_split_under_another_name_is_not_a_feature(tmp_path: Path, name: str) -> None:
    path = table(tmp_path / "a.csv", f"a,b,y,{name}", client=lambda row: row % 2)
    assert f"data.options.is_test={name}" in refused(path)


def test_clients_that_no_feature_names_are_not_passed_over(tmp_path: Path) -> None:
    rows = [{"tokens": [1, 2, row % 5], "label": row % 3, "user": row % 4} for row in range(ROWS)]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    assert "data.options.client=user" in refused(path)
    assert checked(path, client="user").clients == 4
    assert checked(path, features=["tokens"]).clients is None
    np.savez(tmp_path / "a.npz", x=np.ones((ROWS, 2)), y=np.arange(ROWS) % 3, site=np.arange(ROWS))
    assert "data.options.client" in refused(tmp_path / "a.npz")


def test_a_client_that_begins_in_a_later_row_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"tokens": [1], "label": 0}\n{"tokens": [2], "label": 1, "client": "a"}\n')
    assert "row 2: 'client' is not in row 1" in refused(path)
    path.write_text('{"tokens": [1], "label": 0, "label": 1}\n')
    assert "twice" in refused(path)


@pytest.mark.parametrize(
    ("label", "outputs", "setting"),
    [
        (lambda row: row % 3 + 1, 4, ["1", "2", "3"]),
        (lambda row: row % 3 * 10 + 10, 31, ["10", "20", "30"]),
    ],
    ids=["from-1", "with-gaps"],
)
def test_classes_and_outputs_are_stated(
    tmp_path: Path, label: Any, outputs: int, setting: list[str]
) -> None:
    path = table(tmp_path / "a.csv", label=label)
    contents = checked(path)
    assert (len(contents.per_class), contents.outputs) == (3, outputs)
    (note,) = contents.notes
    assert "3 classes are seen" in note
    assert f"{outputs} outputs" in note
    assert f"data.options.classes={json.dumps(setting)}" in note
    numbered = checked(path, classes=setting)
    assert (numbered.outputs, numbered.notes) == (3, ())
    assert equal(loaded(path, {"classes": setting}), loaded(table(tmp_path / "b.csv")))
    assert checked(path, classes=40).notes == ()


def test_blanks_around_names_of_columns_do_not_count(tmp_path: Path) -> None:
    path, plain = table(tmp_path / "a.csv", "a, b, y, client"), table(tmp_path / "b.csv")
    assert equal(loaded(path), loaded(plain))
    assert checked(path).features == ("a", "b")
    assert equal(loaded(path, {"label": "y", "features": ["a", "b"]}), loaded(plain))
    rows = plain.read_text().replace(",", " , ").replace("client \n", "client\n")
    path.write_text(rows.replace(" , s", ",s"))
    assert equal(loaded(path), loaded(plain))


def test_names_of_columns_are_compared_in_one_unicode_form(tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", f"a,b,{NFD},client")
    assert equal(loaded(path, {"label": NFC}), loaded(table(tmp_path / "b.csv")))
    path = table(tmp_path / "a.csv", f"{NFC},{NFD},y,client")
    assert "is named twice" in refused(path)


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_a_separator_that_is_not_a_comma_is_named(tmp_path: Path, separator: str) -> None:
    path = table(tmp_path / "a.csv")
    path.write_text(path.read_text().replace(",", separator))
    assert f"separated by {separator!r}" in refused(path)


def test_a_byte_order_mark_is_no_part_of_the_data(tmp_path: Path) -> None:
    lines = table(tmp_path / "a.csv")
    rows = tmp_path / "a.jsonl"
    rows.write_text('{"tokens": [1, 2], "label": 0}\n{"tokens": [3, 1], "label": 1}\n' * 8)
    for path, options in ((lines, {"features": ["a"]}), (rows, {})):
        before = loaded(path, options)
        path.write_bytes(BOM + path.read_bytes())
        assert equal(before, loaded(path, options))
    (tmp_path / "a.txt").write_bytes(BOM + b"one\ntwo\n")
    assert list(read_lines(tmp_path / "a.txt")) == ["one\n", "two\n"]


@pytest.mark.parametrize("end", ["\n", "\n\n", "  \r\n"])
def test_blank_lines_are_skipped(tmp_path: Path, end: str) -> None:
    plain = loaded(table(tmp_path / "a.csv"))
    assert equal(plain, loaded(table(tmp_path / "b.csv", end=end)))
    text = (tmp_path / "a.csv").read_text()
    (tmp_path / "c.csv").write_text("\n" + text.replace("\n", "\n\n", 5))
    assert equal(plain, loaded(tmp_path / "c.csv"))
    rows = tmp_path / "a.jsonl"
    rows.write_text('{"tokens": [1], "label": 0}\n{"tokens": [2], "label": 1}\n' * 6 + end)
    assert checked(rows).samples == 12


NAMES = ["low", "mid", "high"]


def in_each_layout(folder: Path) -> list[Path]:
    labels = np.array([NAMES[row % 3] for row in range(ROWS)])
    x, client = np.arange(ROWS * 2.0).reshape(ROWS, 2), np.arange(ROWS) % 4
    np.savez(folder / "a.npz", x=x, y=labels, client=client)
    columns = {"x": x.tolist(), "label": labels, "client": client}
    pq.write_table(pa.table(columns), folder / "a.parquet")
    texts = zip(labels.tolist(), client.tolist(), strict=True)
    rows = [{"tokens": [1, 2], "label": label, "client": owner} for label, owner in texts]
    (folder / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    lines = table(folder / "a.csv", label=lambda row: f" {NAMES[row % 3]} ")
    return [folder / "a.npz", folder / "a.parquet", lines, folder / "a.jsonl"]


def test_labels_that_are_text_are_numbered_by_the_settings(tmp_path: Path) -> None:
    for path in in_each_layout(tmp_path):
        assert "data.options.classes=[" in refused(path)
        data = loaded(path, {"classes": NAMES})
        assert data.form.classes == 3
        labels = np.concatenate([data.test.y, *(part.y for part in data.train)])
        assert sorted(labels.tolist()) == sorted([0, 1, 2] * 8), path
        assert "high" in refused(path, classes=["low", "mid", "top"])
        recorded = data_digest(DataChoice("file", path, {"classes": NAMES}))
        assert recorded["options"]["classes"] == NAMES


def test_classes_of_tokens_may_be_text(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    row = {"tokens": [3, 4, 5], "label": ["O", "B", -100]}
    path.write_text("\n".join([json.dumps(row)] * 12))
    options = {"task": "token-classify", "classes": ["O", "B"]}
    assert loaded(path, options).test.y[0].tolist() == [0, 1, -100]
    assert "'B'" in refused(path, task="token-classify", classes=["O", "I"])


@pytest.mark.parametrize(
    ("classes", "task"),
    [(["a"], None), (["a", "a "], None), (["a", ""], None), (["a", "b"], "regress"), (1, None)],
)
def test_classes_have_different_names(tmp_path: Path, classes: Any, task: str | None) -> None:
    path = table(tmp_path / "a.csv")
    options = {"classes": classes} | ({} if task is None else {"task": task})
    assert "data.options." in refused(path, **options)


def test_python_data_may_have_labels_that_are_text(tmp_path: Path) -> None:
    labels = [NAMES[row % 3] for row in range(ROWS)]
    data = Data(np.ones((ROWS, 2)), labels, classes=tuple(NAMES))
    assert data.records.y.tolist() == [row % 3 for row in range(ROWS)]
    assert loaded(data.save(tmp_path), data.options()).form.classes == 3
    with pytest.raises(ConfigurationError, match=r"data\.options\.classes="):
        Data(np.ones((ROWS, 2)), labels)


def test_a_worker_has_the_classes_of_the_run_document(tmp_path: Path) -> None:
    path = in_each_layout(tmp_path)[0]
    named = "data.options.classes=" + json.dumps(NAMES)
    settings = (f"data.path={path}", named, "data.partition.name=iid")
    configuration = load("smoke", settings=settings).on_path("plain")
    population = populate(configuration)
    document = decode_run(encode_run(run_document(configuration, population)))
    assert document.experiment["data"]["options"]["classes"] == NAMES
    local = configuration_from_document(document, data_path=path)
    part = own_parts(local, document, (ClientId(1),), path).train[1]
    assert part.y.tolist() == population.clean.train[1].y.tolist()


def test_an_owners_file_may_have_labels_that_are_text(tmp_path: Path) -> None:
    options = {"shape": [2], "classes": NAMES}
    labels = np.array([NAMES[row % 3] for row in range(ROWS)])
    x = np.ones((ROWS, 2), np.float32)
    np.savez(tmp_path / "a.npz", x=x, y=labels)
    contents = verify_files(tmp_path / "a.npz", "own", settings=options)
    assert (contents.per_class, contents.outputs) == ({0: 8, 1: 8, 2: 8}, 3)
    np.savez(tmp_path / "b.npz", x=x, y=np.where(labels == "mid", "mad", labels))
    with pytest.raises(ConfigurationError, match="'mad'"):
        verify_files(tmp_path / "b.npz", "own", settings=options)
    with pytest.raises(ConfigurationError, match=r"names; use \.npz, not tensors"):
        verify_files(tmp_path / "b.safetensors", "own", settings=options)
    with pytest.raises(ConfigurationError, match="two or more different names"):
        verify_files(tmp_path / "b.npz", "own", settings=options | {"classes": ["a"]})


def picture(orientation: int | None, form: str = "JPEG") -> bytes:
    pixels = np.zeros((16, 24, 3), np.uint8)
    pixels[:8, :8], pixels[8:, 16:] = (255, 0, 0), (0, 0, 255)
    content, exif = io.BytesIO(), Image.Exif()
    if orientation is not None:
        exif[0x0112] = orientation
    Image.fromarray(pixels).save(content, form, exif=exif)
    return content.getvalue()


@pytest.mark.parametrize("form", ["JPEG", "PNG"])
@pytest.mark.parametrize("orientation", [None, *range(1, 9), 77])
def test_images_are_turned_upright(tmp_path: Path, orientation: int | None, form: str) -> None:
    content = picture(orientation, form)
    images = pa.table({"image": [{"bytes": content, "path": None}] * 6, "label": [0, 1, 0] * 2})
    pq.write_table(images, tmp_path / "a.parquet")
    with Image.open(io.BytesIO(content)) as image:
        upright = np.asarray(ImageOps.exif_transpose(image))
    assert np.array_equal(np.moveaxis(loaded(tmp_path / "a.parquet").test.x[0], 0, -1), upright)


def test_samples_of_valid_files_keep_their_digests(tmp_path: Path) -> None:
    rng, label = np.random.default_rng(5), np.arange(48) % 3
    client = np.arange(48) % 6
    numbers = rng.normal(size=(48, 2)).round(3)
    rows = zip(numbers.tolist(), label.tolist(), client.tolist(), strict=True)
    lines = "".join(f"{a},{b},{y},s{owner}\n" for (a, b), y, owner in rows)
    (tmp_path / "a.csv").write_text(f"a,b,y,client\n{lines}")
    tokens, pixels = rng.integers(0, 9, (48, 4)), rng.integers(0, 256, (48, 4, 4), dtype=np.uint8)
    np.savez(tmp_path / "b.npz", x=tokens, y=label)
    np.savez(tmp_path / "c.npz", x=pixels, y=label, client=client.astype(str))
    columns = {"a": numbers[:, 0], "b": rng.integers(0, 2**40, 48), "label": label + 2}
    pq.write_table(pa.table(columns), tmp_path / "d.parquet")
    found = {}
    for path in sorted(tmp_path.iterdir()):
        data = load_dataset(DataChoice("file", path), 6, np.random.default_rng(1))
        digest = hashlib.sha256(b"".join(simulated_digests(data, 3)) + data.test.x.tobytes())
        found[path.name] = (digest.hexdigest()[:12], data.form.classes)
    # From the version before names, labels and images were looked at more closely.
    assert found == {
        "a.csv": ("c8541d9ba3b9", 3),
        "b.npz": ("a8e199fe8541", 3),
        "c.npz": ("08fe5d128eb0", 3),
        "d.parquet": ("683b2bfd11e0", 5),
    }
