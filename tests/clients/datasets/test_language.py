"""Sentiment140 and Shakespeare: three layouts each, words and windows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clients.datasets.federated_data import FederatedData, Records
from clients.datasets.registry import DATASETS, DataChoice, load_dataset, recognise
from clients.datasets.texts import ALPHABET
from ledger.protocol.errors import ConfigurationError
from tests.clients.datasets import leaf

FIXTURE = Path(__file__).parents[2] / "fixtures" / "hugging_face" / "sent140"
REAL = Path(__file__).parents[4] / "shared" / "data"
VECTORS = "the 9 9\nlovely 1 0.5\nLovely 7 7\n, 0 1\n! 0 2\nday -1 3\ndon't 4 4\n"


def records(path: Path) -> Records:
    return DATASETS["sent140"].records(path)


@pytest.fixture
def glove(tmp_path: Path) -> str:
    path = tmp_path / "glove.txt"
    path.write_text(VECTORS)
    return str(path)


def ours(path: Path, **changed: Any) -> Path:
    """Accounts 2 and 10, each with a sample for training and one for the test."""
    columns = {
        "user": pa.array([10, 2, 10, 2], pa.int16()),
        "is_test": pa.array([0, 0, 1, 1], pa.uint8()),
        "label": pa.array([1, 0, 0, 1], pa.uint8()),
        "text": ["What a lovely, lovely day!", "", "Lovely", "I don't"],
    }
    pq.write_table(pa.table(columns | changed), path)
    return path


def loaded(path: Path, glove: str, **options: Any) -> FederatedData:
    choice = DataChoice("sent140", path, {"glove": glove, **options})
    return load_dataset(choice, 2, np.random.default_rng(0))


def test_words_are_lowercased_truncated_and_padded(tmp_path: Path, glove: str) -> None:
    data = loaded(ours(tmp_path / "s.parquet"), glove)
    # The words that occur and are known, in ascending order: ! , day don't lovely.
    assert data.form.vocabulary == 6
    assert data.form.embedding is not None
    assert data.form.embedding.tolist() == [[0, 0], [0, 2], [0, 1], [-1, 3], [4, 4], [1, 0.5]]
    assert not data.form.embedding.flags.writeable
    # Accounts by number, not by their digits: 2 before 10.
    tokens = data.collate(data.train[1].x)
    assert tokens.dtype == np.int64
    assert tokens.tolist() == [[0, 0, 5, 2, 5, 3, 1] + [0] * 18]
    assert data.collate(data.train[0].x).tolist() == [[0] * 25]
    assert data.collate(data.test.x)[:, :2].tolist() == [[0, 4], [5, 0]]
    assert [samples.y.tolist() for samples in data.train] == [[0], [1]]
    assert (data.form.classes, data.form.input_shape) == (2, (25,))


def test_capitals_can_be_kept_as_the_authors_did(tmp_path: Path, glove: str) -> None:
    data = loaded(ours(tmp_path / "s.parquet"), glove, lower=False)
    assert data.form.embedding is not None
    # "Lovely" is another word: ! , Lovely day don't lovely.
    assert data.form.embedding[3].tolist() == [7, 7]
    assert data.collate(data.test.x)[1, 0] == 3


def test_a_text_of_more_than_25_words_is_cut(tmp_path: Path, glove: str) -> None:
    texts = ["the " * 24 + "day lovely", "the", "day", "lovely"]
    data = loaded(ours(tmp_path / "s.parquet", text=texts), glove)
    words = {tuple(row) for row in data.collate(data.train[1].x)}
    # day, lovely, the: the last that counts is the 25th.
    assert words == {(3,) * 24 + (1,)}


def test_all_layouts_hold_texts_labels_and_accounts(tmp_path: Path) -> None:
    hugging_face = records(FIXTURE)
    assert hugging_face.owners == ("first_account", "second_account")
    assert hugging_face.y.tolist() == [1, 0, 1, 0, 1]
    assert hugging_face.is_test is None
    tweet = ["1", "date", "query", "b", "What a lovely day!"]
    users: leaf.UserData = {"b": ([tweet, [*tweet, "training"]], ["4", "0"]), "a": ([tweet], [1])}
    found = records(leaf.written(tmp_path / "leaf", users, {"a": ([tweet], [0])}))
    assert found.owners == ("a", "b")
    assert found.x.tolist() == ["What a lovely day!"] * 4
    assert found.y.tolist() == [1, 0, 1, 0]
    assert found.is_test is not None
    assert found.is_test.tolist() == [False, True, False, False]
    assert recognise(tmp_path / "leaf").name == "sent140"


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"label": [0, 1, 2, 0]}, "from row 0: label 2; must be 0 or 1"),
        ({"text": ["x" * 10_001] * 4}, "a text of 10001 characters, more than 10000"),
    ],
)
def test_a_table_that_breaks_a_rule_is_refused(tmp_path: Path, changed: Any, sentence: str) -> None:
    path = ours(tmp_path / "s.parquet", **changed)
    with pytest.raises(ConfigurationError, match=rf"s\.parquet: .*{sentence}"):
        records(path)


@pytest.mark.parametrize(
    ("user", "sentiment", "sentence"),
    [("a", 2, "sentiment 2; must be 0 or 4"), ("", 4, r"user: must have 1 \.\. 200 characters")],
)
def test_a_neutral_label_is_refused(
    tmp_path: Path, user: str, sentiment: int, sentence: str
) -> None:
    path = tmp_path / "s.parquet"
    pq.write_table(pa.table({"user": [user], "text": ["t"], "sentiment": [sentiment]}), path)
    with pytest.raises(ConfigurationError, match=rf"s\.parquet: .*{sentence}"):
        records(path)


@pytest.mark.parametrize(
    ("x", "y", "sentence"),
    [
        (["text"], ["4"], "x must be lists of id, date"),
        ([["1", "2", "3", "4", 5]], ["4"], "x must be lists of id, date"),
        ([["1", "2", "3", "4", "t"]], ["2"], "label '2'; must be 0"),
        ([["1", "2", "3", "4", "t" * 10_001]], [0], "a text of 10001 characters"),
    ],
)
def test_non_tweets_in_leaf_are_refused(tmp_path: Path, x: Any, y: Any, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"all_data_train\.json: 'a': {sentence}"):
        records(leaf.written(tmp_path, {"a": (x, y)}, {}))


@pytest.mark.skipif(not REAL.is_dir(), reason="shared/data is not beside us")
def test_the_real_files_have_772_accounts_and_known_words() -> None:
    glove = str(REAL / "glove_twitter_25d_12k.npz")
    choice = DataChoice("sent140", REAL / "sent140.parquet", {"glove": glove})
    data = load_dataset(choice, 772, np.random.default_rng(0))
    assert (sum(data.sample_counts), len(data.test.y)) == (32_299, 8_484)
    assert data.test.y.mean() == pytest.approx(0.6213, abs=5e-5)
    assert data.form.embedding is not None
    assert data.form.embedding.shape == (data.form.vocabulary, 25)


FIXTURE_SHAKESPEARE = Path(__file__).parents[2] / "fixtures" / "hugging_face" / "shakespeare"
REAL_FILE = Path(__file__).parents[4] / "shared" / "data" / "shakespeare.npz"

# No window of 80 characters stands twice in it, but some characters do.
TEXT = "".join(ALPHABET[(place * place + place // 7) % 80] for place in range(105))
OTHER = TEXT[::-1][:91]


def shakespeare_records(path: Path) -> Records:
    return DATASETS["shakespeare"].records(path)


def shakespeare_loaded(path: Path, split: str | None = None) -> FederatedData:
    options = {} if split is None else {"split": split}
    return load_dataset(DataChoice("shakespeare", path, options), 2, np.random.default_rng(0))


def windows(text: str) -> tuple[list[str], list[str]]:
    starts = range(len(text) - 80)
    return [text[start : start + 80] for start in starts], [text[start + 80] for start in starts]


def arrays(**changed: Any) -> dict[str, np.ndarray]:
    """Roles A, of 25 samples, and B, of 11; every fourth sample is for the test."""
    return {
        "chars": np.array([ALPHABET.index(c) for c in TEXT + OTHER], dtype=np.uint8),
        "text_offset": np.array([0, 105, 196]),
        "sample_offset": np.array([0, 25, 36]),
        "is_test": (np.arange(36) % 4 == 0).astype(np.uint8),
        "role": np.array(["A", "B"]),
        "alphabet": np.array(list(ALPHABET)),
    } | changed


def npz(path: Path, **changed: Any) -> Path:
    np.savez(path, allow_pickle=True, **arrays(**changed))
    return path


def in_leaf(folder: Path) -> Path:
    splits: dict[bool, leaf.UserData] = {False: {}, True: {}}
    is_test = arrays()["is_test"].astype(bool)
    for role, text, flags in (("B", OTHER, is_test[25:]), ("A", TEXT, is_test[:25])):
        x, y = windows(text)
        for split, users in splits.items():
            rows = [row for row in range(len(y)) if flags[row] == split]
            users[role] = ([x[row] for row in rows], [y[row] for row in rows])
    return leaf.written(folder, splits[False], splits[True])


def csv_of(path: Path, rows: list[tuple[str, str, str]]) -> Path:
    import csv

    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("character_id", "x", "y"), *rows])
    return path


def test_a_window_is_80_characters_labelled_with_the_next(tmp_path: Path) -> None:
    found = shakespeare_records(npz(tmp_path / "s.npz"))
    assert found.owners == ("A", "B")
    assert found.x.shape == (36, 80)
    assert found.x.dtype == np.uint8
    for row, text, start in ((0, TEXT, 0), (24, TEXT, 24), (25, OTHER, 0), (35, OTHER, 10)):
        assert "".join(ALPHABET[c] for c in found.x[row]) == text[start : start + 80]
        assert ALPHABET[found.y[row]] == text[start + 80]


@pytest.mark.parametrize("split", ["official", "position"])
def test_arrays_and_leaf_give_equal_samples_in_order(tmp_path: Path, split: str) -> None:
    one, same = (
        shakespeare_loaded(npz(tmp_path / "s.npz"), split),
        shakespeare_loaded(in_leaf(tmp_path / "leaf"), split),
    )
    for a, b in zip((*one.train, one.test), (*same.train, same.test), strict=True):
        assert np.array_equal(a.x, b.x)
        assert np.array_equal(a.y, b.y)
    assert recognise(tmp_path / "leaf").name == "shakespeare"


def test_a_csv_file_without_split_is_divided_by_position(tmp_path: Path) -> None:
    rows = [
        (role, *sample)
        for role, text in (("B", OTHER), ("A", TEXT))
        for sample in zip(*windows(text), strict=True)
    ]
    path = csv_of(tmp_path / "s.csv", rows)
    one, same = shakespeare_loaded(npz(tmp_path / "s.npz"), "position"), shakespeare_loaded(path)
    assert one.sample_counts == same.sample_counts == (20, 9)
    assert np.array_equal(one.test.x, same.test.x)
    with pytest.raises(ConfigurationError, match="split = 'official': must be 'position'"):
        shakespeare_loaded(path, "official")
    assert len(shakespeare_records(FIXTURE_SHAKESPEARE).owners) == 2


def test_by_position_no_training_window_overlaps_the_test(tmp_path: Path) -> None:
    data = shakespeare_loaded(npz(tmp_path / "s.npz"), "position")
    assert data.client_tests is not None
    # A: 25 samples, 20 for training: they end at character 99; the test's labels are 100 .. 104.
    assert "".join(ALPHABET[c] for c in data.client_tests[0].y) == TEXT[100:105]
    last = data.train[0]
    assert "".join(ALPHABET[c] for c in last.x[-1]) + ALPHABET[last.y[-1]] == TEXT[19:100]
    # B: 11 samples, of which a fifth is 2.2.
    assert [len(samples.y) for samples in data.client_tests] == [5, 2]


def test_windows_without_continuity_have_no_position(tmp_path: Path) -> None:
    x, y = windows(TEXT)
    rows = [("A", *pair) for pair in zip(x, y, strict=True)]
    swapped = [*rows[:3], rows[4], rows[3], *rows[5:]]
    other = [("B", *pair) for pair in zip(*windows(OTHER), strict=True)]
    with pytest.raises(ConfigurationError, match="'position': window 3 of role 'A' does not conti"):
        shakespeare_loaded(csv_of(tmp_path / "s.csv", swapped + other))


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"alphabet": np.array(list(ALPHABET[::-1]))}, "alphabet must be LEAF's 80 characters"),
        ({"chars": np.full(196, 80, dtype=np.uint8)}, r"chars: values 80 \.\. 80, outside 0"),
        ({"chars": np.zeros(195, dtype=np.uint8)}, "text_offset and sample_offset"),
        ({"text_offset": np.array([0, 106, 196])}, "by 80 more characters than samples"),
        ({"sample_offset": np.array([0, 25, 35])}, "must rise from 0"),
        ({"is_test": np.zeros(35, dtype=np.uint8)}, "must rise from 0"),
        ({"role": np.array(["A", "A"])}, "2 roles, not 2 different"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path: Path, changed: Any, sentence: str) -> None:
    path = npz(tmp_path / "s.npz", **changed)
    with pytest.raises(ConfigurationError, match=rf"s\.npz: .*{sentence}"):
        shakespeare_records(path)


@pytest.mark.parametrize(
    ("role", "x", "y", "sentence"),
    [
        ("A", "x" * 79, "y", "sample 0: 79 characters and 1 more; must be 80 and 1"),
        ("A", "x" * 79 + "é", "y", "'é' not in alphabet"),
        ("", "x" * 80, "y", "character_id: must have 1"),
    ],
)
def test_a_character_outside_the_alphabet_or_another_length_is_refused(
    tmp_path: Path, role: str, x: str, y: str, sentence: str
) -> None:
    path = csv_of(tmp_path / "s.csv", [(role, x, y)])
    with pytest.raises(ConfigurationError, match=rf"s\.csv: .*{sentence}"):
        shakespeare_records(path)


@pytest.mark.skipif(not REAL_FILE.is_file(), reason="shared/data is not beside us")
def test_the_real_file_has_the_papers_split_and_positions() -> None:
    def real(split: str) -> FederatedData:
        choice = DataChoice("shakespeare", REAL_FILE, {"split": split})
        return load_dataset(choice, 143, np.random.default_rng(0))

    official = real("official")
    assert (sum(official.sample_counts), len(official.test.y)) == (413_629, 103_477)
    # Always a space: README of the data.
    assert np.mean(official.test.y == ALPHABET.index(" ")) == pytest.approx(0.1863, abs=5e-5)
    position = real("position")
    assert sum(position.sample_counts) + len(position.test.y) == 517_106
