"""Choosing a data set by name, by its files, and what a run records of it."""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clients.datasets.federated_data import DataForm
from clients.datasets.records import Records, held_out
from clients.datasets.registry import (
    DATASETS,
    DataChoice,
    data_digest,
    load_dataset,
    recognise,
    verify_choice,
)
from ledger.protocol.errors import ConfigurationError

FIXTURES = Path(__file__).parents[2] / "fixtures" / "hugging_face"
GLOVE = "lovely 1 0\nrain 0 1\nno -1 -1\n"


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.fixture
def glove(tmp_path: Path) -> Path:
    path = tmp_path / "glove.txt"
    path.write_text(GLOVE)
    return path


@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        (DataChoice("digit"), "unknown data set 'digit'; known are digits, digits-by-writer, "),
        (
            DataChoice("digits", options={"test_share": 1.0}),
            r"data\.options\.test_share: .* less than 1 \(given: 1\.0\)",
        ),
        (DataChoice("sent140"), r"data\.options\.glove: must be given: the path of GloVe"),
    ],
)
def test_an_invalid_name_or_setting_is_refused_before_reading(
    choice: DataChoice, sentence: str
) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        verify_choice(choice)
    verify_choice(DataChoice("digits", options={"test_share": 0.1}, partition={"name": "iid"}))


def test_only_data_with_owners_have_a_natural_partition() -> None:
    with pytest.raises(ConfigurationError, match="'digits' has no natural clients"):
        load_dataset(DataChoice("digits", partition={"name": "natural"}), 3, rng())
    path = FIXTURES / "femnist"
    for name in ("natural", "iid", "dirichlet", "shards", "quantity"):
        keys = {"shards": 1} if name == "shards" else {}
        choice = DataChoice("femnist", path, partition={"name": name, **keys})
        data = load_dataset(choice, 2, rng())
        # Two writers with 3 and 4 images, of which one each is for the test.
        assert (sum(data.sample_counts), len(data.test.y)) == (5, 2)
        assert (data.client_tests is None) == (name != "natural")


def test_client_data_are_read_only_views_of_one_array() -> None:
    data = load_dataset(DataChoice("femnist", FIXTURES / "femnist"), 2, rng())
    assert data.client_tests is not None
    assert all(np.shares_memory(part.x, data.test.x) for part in data.client_tests)
    for samples in (*data.train, data.test, *data.client_tests):
        assert not samples.x.flags.writeable
        assert not samples.y.flags.writeable


def test_collate_and_form_can_be_sent_to_another_process(glove: Path) -> None:
    for name, options in (("femnist", {}), ("shakespeare", {}), ("sent140", {"glove": str(glove)})):
        data = load_dataset(DataChoice(name, FIXTURES / name, options), 2, rng())
        collate, form = pickle.loads(pickle.dumps((data.collate, data.form)))
        assert isinstance(form, DataForm)
        inputs = collate(data.train[0].x)
        assert inputs.dtype == form.input_dtype
        assert inputs.shape == (len(data.train[0].y), *form.input_shape)
        assert data.test.y.max() < form.classes
        assert form.vocabulary is None or inputs.max() < form.vocabulary


def test_a_share_is_held_out_only_without_a_split() -> None:
    owner = np.repeat([0, 1, 2], [10, 3, 1])
    records = Records(np.zeros(14), np.zeros(14, dtype=np.int64), owner, ("a", "b", "c"))
    is_test = held_out(records, None, rng())
    # A fifth of 10, of 3 rounded, and never an owner's last sample.
    assert np.bincount(owner[is_test], minlength=3).tolist() == [2, 1, 0]
    assert np.bincount(owner[held_out(records, 0.9, rng())], minlength=3).tolist() == [9, 2, 0]
    assert {tuple(np.flatnonzero(held_out(records, None, rng(s)))) for s in range(9)} != {
        tuple(np.flatnonzero(is_test))
    }
    divided = Records(records.x, records.y, owner, records.owners, is_test)
    assert held_out(divided, None, rng(5)) is is_test
    with pytest.raises(ConfigurationError, match=r"test_share = 0\.5 has no effect"):
        held_out(divided, 0.5, rng())


@pytest.mark.parametrize("name", ["femnist", "shakespeare", "sent140"])
def test_a_data_set_is_told_from_its_files(name: str, tmp_path: Path) -> None:
    assert recognise(FIXTURES / name) is DATASETS[name]
    (file,) = (path for path in (FIXTURES / name).rglob("*") if path.is_file())
    assert recognise(file) is DATASETS[name]
    other = next(one for one in DATASETS if one not in {name, "digits"})
    with pytest.raises(ConfigurationError, match=f"is not a layout of {other!r}; it may be a "):
        DATASETS[other].records(file)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.doc", b"", r"a\.doc: \.doc; a data file is \.npz, .*\.jsonl or \.txt"),
        ("a.csv", b"\xff", r"a\.csv: not UTF-8 text"),
        ("a.csv", b"b,c\n", "with 'b', 'c' is of none of the data sets digits, "),
        ("missing/a.csv", None, "no such file"),
    ],
)
def test_foreign_settings_are_refused_with_the_valid_ones(
    tmp_path: Path, name: str, content: bytes | None, sentence: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=sentence):
        recognise(path)


def test_a_folder_whose_tables_have_other_columns_is_refused(tmp_path: Path) -> None:
    for place, name in enumerate(("femnist/data", "sent140")):
        content = (FIXTURES / name / "train-00000-of-00001.parquet").read_bytes()
        (tmp_path / f"{place}.parquet").write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"1\.parquet: has the columns 'date', .*; 0\.par"):
        recognise(tmp_path)


def test_a_run_records_digests_and_never_a_path(glove: Path) -> None:
    path = FIXTURES / "sent140" / "train-00000-of-00001.parquet"
    options = {"glove": str(glove)}
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    expected: dict[str, Any] = {
        "name": "sent140",
        "options": {"glove": hashlib.sha256(GLOVE.encode()).hexdigest(), "lower": True},
        "partition": {"name": "natural"},
    }
    assert data_digest(DataChoice("sent140", path, options)) == expected | {"sha256": digest}
    folder = data_digest(DataChoice("sent140", path.parent, options))
    assert folder == expected | {"sha256": [digest]}
    assert "sha256" not in data_digest(DataChoice("digits"))
    with pytest.raises(ConfigurationError, match=r"none\.txt cannot be read: No such file"):
        data_digest(DataChoice("sent140", path, {"glove": str(glove.with_name("none.txt"))}))
