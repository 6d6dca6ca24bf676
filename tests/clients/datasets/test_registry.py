"""Choosing a data set by name or file, who holds which samples, and what a run records of it."""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.datasets.federated_data import DataForm, PooledData, Records, held_out
from clients.datasets.partition import PARTITIONS, Division, dirichlet_shares, partition_of
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
        (DataChoice("digits", options={"test_share": 1.0}), r"data\.options\.test_share: .* less"),
        (DataChoice("sent140"), r"data\.options\.glove is required \(Path of the GloVe"),
    ],
)
def test_an_invalid_name_or_setting_is_refused_before_reading(choice: Any, sentence: str) -> None:
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
    with pytest.raises(ConfigurationError, match=r"test_share = 0\.5: the files have a split"):
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
        ("a.csv", b"b,c\n", "with 'b', 'c' does not match a data set .digits, "),
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


def labels(per_class: int, classes: int = 10) -> np.ndarray:
    return np.repeat(np.arange(classes), per_class)


def pool_of(y: np.ndarray, owner: np.ndarray | None = None, test: int = 2) -> PooledData:
    rows = np.arange(len(y))
    return PooledData(
        form=DataForm((1,), int(y.max()) + 1),
        x=rows[:, None],
        y=y,
        train=rows[: len(y) - test],
        test=rows[len(y) - test :],
        owner=owner,
        owners=() if owner is None else tuple("abcdefgh"[: int(owner.max()) + 1]),
        owned_by="writers",
    )


def divided(name: str, pool: PooledData, clients: int, seed: int = 0, **keys: Any) -> Division:
    partition = partition_of({"name": name, **keys}, has_owners=pool.owner is not None)
    return partition.divide(pool, clients, rng(seed))


@given(
    name=st.sampled_from(["iid", "dirichlet", "shards", "quantity"]),
    clients=st.integers(1, 19),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_training_sample_goes_to_one_client(name: str, clients: int, seed: int) -> None:
    pool = pool_of(labels(4))
    shares = divided(name, pool, clients, seed).train
    assert len(shares) == clients
    assert all(len(share) >= 1 for share in shares)
    assert np.array_equal(np.sort(np.concatenate(shares)), pool.train)
    again = divided(name, pool, clients, seed).train
    assert all(np.array_equal(a, b) for a, b in zip(shares, again, strict=True))


@given(clients=st.integers(1, 40), alpha=st.floats(1e-3, 1e3), seed=st.integers(0, 2**32 - 1))
def test_dirichlet_divides_for_any_concentration(clients: int, alpha: float, seed: int) -> None:
    shares = dirichlet_shares(labels(4), clients, alpha, rng(seed))
    assert all(len(share) >= 1 for share in shares)
    assert np.array_equal(np.sort(np.concatenate(shares)), np.arange(40))


def test_a_small_alpha_concentrates_classes_and_a_large_one_spreads() -> None:
    def largest_share(alpha: float) -> float:
        y = labels(100)
        shares = dirichlet_shares(y, 10, alpha, rng())
        counts = np.array([np.bincount(y[share], minlength=10) for share in shares])
        return float(np.mean(counts.max(axis=0) / 100))

    assert largest_share(0.01) > 0.8
    assert largest_share(1e6) == pytest.approx(0.1, abs=0.02)


def test_iid_gives_everybody_as_many_samples_but_for_one() -> None:
    shares = divided("iid", pool_of(labels(4)), 7).train
    assert sorted(map(len, shares)) == [5, 5, 5, 5, 6, 6, 6]


def test_shards_give_a_client_no_more_classes_than_shards() -> None:
    # 40 samples of 10 classes in 10 shards: each shard is one class.
    y = labels(4)
    shares = divided("shards", pool_of(y, test=0), 5, shards=2).train
    assert [len(share) for share in shares] == [8] * 5
    assert all(len(set(y[share])) <= 2 for share in shares)


def test_quantity_makes_sizes_unequal_and_keeps_the_mixture() -> None:
    y = labels(100)
    shares = divided("quantity", pool_of(y, test=0), 5, alpha=0.5).train
    sizes = sorted(map(len, shares))
    assert sizes[0] < 100 < 300 < sizes[-1]
    largest = max(shares, key=len)
    mixture = np.bincount(y[largest], minlength=10) / len(largest)
    assert mixture.min() > 0.05


def test_given_shares_are_the_first_clients() -> None:
    # Of 1,000 samples .6 and .006; the others share 394.
    shares = divided("quantity", pool_of(labels(100), test=0), 5, shares=[0.6, 0.006]).train
    assert [len(share) for share in shares[:2]] == [600, 6]
    assert sum(map(len, shares)) == 1000


@pytest.mark.parametrize(
    ("shares", "clients", "rule"),
    [
        ([0.6, 0.4], 5, "must be below 1, for the other clients"),
        ([0.1, 0.1], 2, "2 are over 1"),
        ([0.0], 5, "greater than 0"),
        ([], 5, "at least 1 item"),
    ],
)
def test_impossible_shares_are_refused(shares: list[float], clients: int, rule: str) -> None:
    with pytest.raises(ConfigurationError, match=rule):
        divided("quantity", pool_of(labels(10), test=0), clients, shares=shares)


@pytest.mark.parametrize("name", ["dirichlet", "quantity"])
def test_the_minimum_is_kept(name: str) -> None:
    shares = divided(name, pool_of(labels(3), test=0), 10, alpha=0.01, minimum=3).train
    assert [len(share) for share in shares] == [3] * 10


def test_natural_draws_owners_and_keeps_their_order_and_their_split() -> None:
    owner = np.array([0, 2, 1, 0, 2, 1, 0, 2, 2, 1])
    pool = pool_of(np.zeros(10, dtype=np.int64), owner, test=4)
    whole = divided("natural", pool, 3)
    assert whole.tests is not None
    assert [rows.tolist() for rows in whole.train] == [[0, 3], [2, 5], [1, 4]]
    assert [rows.tolist() for rows in whole.tests] == [[6], [9], [7, 8]]
    drawn = {
        tuple(int(owner[rows[0]]) for rows in divided("natural", pool, 2, seed).train)
        for seed in range(20)
    }
    assert drawn == {(0, 1), (0, 2), (1, 2)}


def test_natural_refuses_owners_without_training_and_a_test_without_samples() -> None:
    y = np.zeros(4, dtype=np.int64)
    with pytest.raises(ConfigurationError, match="'b' of the writers has no training sample"):
        divided("natural", pool_of(y, np.array([0, 0, 1, 1])), 1)
    # All of the test is b's: one seed draws b, another a.
    pool = pool_of(y, np.array([0, 1, 1, 1]))
    assert divided("natural", pool, 1, seed=0).train[0].tolist() == [1]
    with pytest.raises(ConfigurationError, match="the data: no test samples of the 1 writers"):
        divided("natural", pool, 1, seed=1)


def test_natural_needs_owners_and_no_more_clients_than_owners() -> None:
    y = np.zeros(4, dtype=np.int64)
    with pytest.raises(ConfigurationError, match="'natural': the data has no natural clients"):
        divided("natural", pool_of(y), 1)
    owned = pool_of(y, np.array([0, 1, 0, 1]))
    with pytest.raises(ConfigurationError, match="more clients than data; the data has 2 writers"):
        divided("natural", owned, 3)
    with pytest.raises(ConfigurationError, match="clients = 0"):
        divided("natural", owned, 0)


@pytest.mark.parametrize("name", ["iid", "dirichlet", "shards", "quantity"])
def test_as_many_clients_as_samples_is_the_limit(name: str) -> None:
    keys = {"shards": 1} if name == "shards" else {}
    pool = pool_of(labels(1), test=0)
    assert [len(share) for share in divided(name, pool, 10, **keys).train] == [1] * 10
    with pytest.raises(ConfigurationError, match=r"more clients than data; .* there are 10"):
        divided(name, pool, 11, **keys)
    with pytest.raises(ConfigurationError, match="clients = 0"):
        divided(name, pool, 0, **keys)


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan"), float("inf")])
def test_a_nonpositive_alpha_is_refused(alpha: float) -> None:
    with pytest.raises(ConfigurationError, match=r"data\.partition\.alpha: .*\(given: "):
        partition_of({"name": "dirichlet", "alpha": alpha}, has_owners=False)


def test_the_default_partition_is_natural_with_owners_else_dirichlet() -> None:
    assert isinstance(partition_of({}, has_owners=True), PARTITIONS["natural"])
    usual = partition_of({"alpha": 2}, has_owners=False)
    assert usual.model_dump() == {"name": "dirichlet", "alpha": 2.0, "minimum": 1}


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"name": "dirichlets"}, "unknown partition 'dirichlets'; known are natural, iid, "),
        ({"name": "iid", "alpha": 1.0}, r"data\.partition\.alpha: there is no such setting"),
        ({"name": "shards", "shards": 0}, r"data\.partition\.shards: .* \(given: 0\)"),
    ],
)
def test_an_invalid_partition_is_refused_with_the_rule(table: Any, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        partition_of(table, has_owners=False)
