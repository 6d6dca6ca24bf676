"""Sentiment140: three layouts, words as the authors cut them, vectors of those that occur."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clients.datasets.registry import DATASETS, DataChoice, load_dataset, recognise
from ledger.protocol.errors import ConfigurationError
from tests.clients.datasets import leaf

if TYPE_CHECKING:
    from clients.datasets.federated_data import FederatedData
    from clients.datasets.records import Records

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
def test_a_table_that_breaks_a_rule_is_refused(
    tmp_path: Path, changed: dict[str, Any], sentence: str
) -> None:
    path = ours(tmp_path / "s.parquet", **changed)
    with pytest.raises(ConfigurationError, match=rf"s\.parquet: .*{sentence}"):
        records(path)


@pytest.mark.parametrize(
    ("user", "sentiment", "sentence"),
    [("a", 2, "sentiment 2; must be 0 or 4"), ("", 4, r"user: must have 1 \.\. 200 characters")],
)
def test_a_neutral_label_or_a_wrong_name_is_refused(
    tmp_path: Path, user: str, sentiment: int, sentence: str
) -> None:
    path = tmp_path / "s.parquet"
    pq.write_table(pa.table({"user": [user], "text": ["t"], "sentiment": [sentiment]}), path)
    with pytest.raises(ConfigurationError, match=rf"s\.parquet: .*{sentence}"):
        records(path)


@pytest.mark.parametrize(
    ("x", "y", "sentence"),
    [
        (["text"], ["4"], "x must be lists of at least 5 texts"),
        ([["1", "2", "3", "4", 5]], ["4"], "x must be lists of at least 5 texts"),
        ([["1", "2", "3", "4", "t"]], ["2"], "label '2'; must be 0"),
        ([["1", "2", "3", "4", "t" * 10_001]], [0], "a text of 10001 characters"),
    ],
)
def test_non_tweets_in_leaf_are_refused_with_the_user(
    tmp_path: Path, x: list[Any], y: list[Any], sentence: str
) -> None:
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
