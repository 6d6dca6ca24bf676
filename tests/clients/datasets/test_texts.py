"""Texts, words and tokens of a user's own, and tokenizers that cannot allocate without bound."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from clients.datasets import own_reading
from clients.datasets.federated_data import NO_TARGET, NO_TOKEN, FederatedData
from clients.datasets.own_columns import hidden
from clients.datasets.own_data import Data
from clients.datasets.registry import DataChoice, data_digest, load_dataset, recognise
from ledger.protocol.errors import ConfigurationError

WORDS = ["[UNK]", "[MASK]", "the", "cat", "sat", "on", "a", "mat"]
THE, CAT, SAT = 2, 3, 4
ROWS = [
    {"text": text, "label": place % 2, "client": f"c{place % 3}", "is_test": place > 8}
    for place, text in enumerate(["the cat", "the cat sat on a mat", "a mat sat"] * 4)
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    made = Tokenizer(WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="[UNK]"))
    made.pre_tokenizer = Whitespace()
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    made.save(str(path))
    return str(path)


def json_lines(folder: Path, rows: list[Any]) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def loaded(path: Path, options: Mapping[str, Any], clients: int = 3) -> FederatedData:
    return load_dataset(DataChoice("file", path, options), clients, np.random.default_rng(0))


def refused(path: Path, sentence: str, **options: Any) -> None:
    with pytest.raises(ConfigurationError, match=sentence) as caught:
        loaded(path, options)
    assert "\n" not in str(caught.value)


def test_texts_of_unequal_length_end_with_no_token(tmp_path: Path, tokenizer: str) -> None:
    data = loaded(json_lines(tmp_path, ROWS), {"tokenizer": tokenizer})
    assert (data.form.input_shape, data.form.classes, data.form.vocabulary) == ((6,), 2, 8)
    assert data.form.task == "classify"
    assert data.train[0].x[0].tolist() == [THE, CAT, *[NO_TOKEN] * 4]
    assert data.sample_counts == (3, 3, 3)
    assert len(data.test.y) == 3


def test_every_layout_of_the_same_rows_is_the_same_data(tmp_path: Path, tokenizer: str) -> None:
    table = pa.Table.from_pylist(ROWS)
    pq.write_table(table, tmp_path / "rows.parquet")
    saved = tmp_path / "saved"
    saved.mkdir()
    with (
        pa.OSFile(str(saved / "data.arrow"), "wb") as file,
        pa.ipc.new_stream(file, table.schema) as stream,
    ):
        stream.write_table(table)
    (saved / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data.arrow"}]}))
    options = {"tokenizer": tokenizer, "task": "causal-lm", "length": 4}
    paths = [json_lines(tmp_path, ROWS), tmp_path / "rows.parquet", saved]
    first, *others = [loaded(path, options) for path in paths]
    assert recognise(paths[0]).name == "file"
    for data in others:
        for part, other in zip((*first.train, first.test), (*data.train, data.test), strict=True):
            assert np.array_equal(part.x, other.x)
            assert np.array_equal(part.y, other.y)


def test_the_target_of_a_token_is_the_next_one(tmp_path: Path, tokenizer: str) -> None:
    data = loaded(json_lines(tmp_path, ROWS), {"tokenizer": tokenizer, "task": "causal-lm"})
    assert data.form.classes == 8
    assert data.train[2].x[0].tolist() == [6, 7, SAT, *[NO_TOKEN] * 3]
    assert data.train[2].y[0].tolist() == [7, SAT, *[NO_TARGET] * 4]


def test_long_texts_of_language_are_cut_and_others_refused(tmp_path: Path, tokenizer: str) -> None:
    path = json_lines(tmp_path, ROWS)
    data = loaded(path, {"tokenizer": tokenizer, "task": "causal-lm", "length": 4})
    # Six words become pieces of four and two; a piece of one would have no target.
    assert [row.tolist() for row in data.train[1].x[:2]] == [[2, 3, 4, 5], [6, 7, -1, -1]]
    refused(path, r"row 2: 6 tokens, over data\.options\.length 4", tokenizer=tokenizer, length=4)
    cut = loaded(path, {"tokenizer": tokenizer, "task": "causal-lm", "length": 5})
    assert all((part.y != NO_TARGET).any(axis=1).all() for part in cut.train)


def test_each_file_of_a_folder_of_texts_is_a_client(tmp_path: Path, tokenizer: str) -> None:
    for name in ("anna", "berta", "carla"):
        (tmp_path / f"{name}.txt").write_text("the cat sat\n\non a mat\nthe mat sat\n" * 2)
    options = {"tokenizer": tokenizer, "task": "causal-lm"}
    data = loaded(tmp_path, options)
    assert data.sample_counts == (5, 5, 5)
    assert data_digest(DataChoice("file", tmp_path, options))["partition"] == {"name": "natural"}
    assert recognise(tmp_path).name == "file"


def test_a_pipe_among_the_files_of_a_folder_is_refused(tmp_path: Path, tokenizer: str) -> None:
    (tmp_path / "anna.txt").write_text("the cat sat\n")
    os.mkfifo(tmp_path / "berta.txt")
    refused(tmp_path, r"berta\.txt is not a file", tokenizer=tokenizer, task="causal-lm")


def test_a_single_text_is_divided_without_classes(tmp_path: Path, tokenizer: str) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("the cat sat on a mat\n" * 10)
    options = {"tokenizer": tokenizer, "task": "causal-lm"}
    recorded = data_digest(DataChoice("file", path, options))
    assert recorded["partition"] == {"name": "iid"}
    assert len(recorded["options"]["tokenizer"]) == 64
    assert [part.x.tolist() for part in loaded(path, options).train] == [
        part.x.tolist() for part in loaded(path, options).train
    ]
    choice = DataChoice("file", path, options, {"name": "dirichlet"})
    with pytest.raises(ConfigurationError, match="divides classes, not causal-lm"):
        load_dataset(choice, 2, np.random.default_rng(0))


def test_the_class_of_a_word_is_that_of_its_first_token(tmp_path: Path) -> None:
    from tokenizers.models import WordPiece

    pieces = {"[UNK]": 0, "ca": 1, "##t": 2, "sat": 3}
    made = Tokenizer(WordPiece(pieces, unk_token="[UNK]"))
    made.pre_tokenizer = Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    rows = [{"words": ["cat", "sat"], "label": [1, place % 2]} for place in range(6)]
    options = {"task": "token-classify", "tokenizer": str(tmp_path / "tokenizer.json")}
    data = loaded(json_lines(tmp_path, rows), options, 2)
    assert data.train[0].x[0].tolist() == [1, 2, 3]
    assert data.train[0].y[0][:2].tolist() == [1, NO_TARGET]
    assert (data.form.classes, data.form.task) == (2, "token-classify")


def test_rows_of_tokens_need_no_tokenizer(tmp_path: Path) -> None:
    rows = [{"tokens": [1, 2, 3][: 2 + place % 2], "label": place / 2} for place in range(6)]
    data = loaded(json_lines(tmp_path, rows), {"task": "regress"}, 2)
    assert (data.form.classes, data.form.vocabulary, data.form.task) == (1, 4, "regress")
    assert data.train[0].y.dtype == np.float32
    assert data.train[0].y.shape[1:] == (1,)


def test_numbers_to_regress_are_in_tables_and_arrays(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b,y\n" + "".join(f"{n},{n / 2},{n * 1.5}\n" for n in range(10)))
    data = loaded(path, {"task": "regress"}, 2)
    assert sorted(np.concatenate([part.y for part in (*data.train, data.test)])[:, 0]) == [
        n * 1.5 for n in range(10)
    ]
    made = Data(np.ones((8, 2)), np.ones((8, 3)), task="regress")
    again = loaded(made.save(tmp_path), made.options(), 2)
    assert again.form.classes == 3


def test_arrays_of_tokens_are_language_without_labels(tmp_path: Path) -> None:
    x = np.array([[1, 2, 3], [2, 3, NO_TOKEN]] * 4)
    data = Data(x, client=np.arange(8) % 2, task="causal-lm")
    federated = loaded(data.save(tmp_path), data.options(), 2)
    assert federated.form.classes == 4
    np.savez(tmp_path / "split.npz", x=x, x_test=x)
    split = loaded(tmp_path / "split.npz", {"task": "causal-lm"}, 2)
    assert len(split.test.y) == 8


@given(st.integers(1, 12), st.integers(1, 9), st.integers(0, 2**32))
def test_hidden_tokens_are_targets_and_all_others_stay(rows: int, length: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(5, 50, (rows, length))
    x[np.arange(length) >= rng.integers(1, length + 1, (rows, 1))] = NO_TOKEN
    inputs, targets = hidden(x, 1, rng)
    is_target = targets != NO_TARGET
    assert is_target.any(axis=1).all()
    assert np.array_equal(inputs[~is_target], x[~is_target])
    assert np.array_equal(targets[is_target], x[is_target])
    assert not is_target[x == NO_TOKEN].any()


@pytest.mark.parametrize(
    ("rows", "sentence", "options"),
    [
        ([], "has no rows|lacks", {}),
        ([{"text": 5, "label": 0}], "row 1: text: must be a text, a list of words", {}),
        ([{"text": "the", "label": 0}], r"is text; set data\.options\.tokenizer", {}),
        ([{"tokens": [1, 2], "label": -1}], "row 1: label: must be a whole number", {}),
        ([{"tokens": [1], "label": x} for x in (1, [1, 2])], "one length", {"task": "regress"}),
        ([{"tokens": [1, 2], "label": 1}], "a list of whole numbers", {"task": "token-classify"}),
        ([{"tokens": [1], "label": [-100]}], "row 0 has no token", {"task": "token-classify"}),
        ([{"tokens": [1]}], "row 1: 1 tokens; must be at least 2", {"task": "causal-lm"}),
        ([{"tokens": [1, 2]}], "masked-lm needs a mask token", {"task": "masked-lm"}),
        ([{"tokens": [1, 2]}], r"mask = 3: masked-lm", {"task": "masked-lm", "mask": 3}),
        ([{"tokens": [1, 2], "label": 0, "client": ""}], "client: must be of 1", {}),
        ([{"tokens": [1, 2], "label": 0, "is_test": "no"}], "is_test: must be true or false", {}),
        ([{"tokens": [1_000_000, 2], "label": 0}], r"whole numbers -1 \.\. 999999", {}),
        ([{"tokens": [1, 9], "label": 0}], r"must be tokens", {"vocabulary": 5}),
    ],
)
def test_broken_rows_are_refused_by_row_and_column(
    tmp_path: Path, rows: list[Any], sentence: str, options: dict[str, Any]
) -> None:
    path = json_lines(tmp_path, rows)
    refused(path, sentence, **options)


def test_rows_that_fill_memory_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = json_lines(tmp_path, [{"tokens": [1], "label": 0, "client": "a" * 100}] * 3)
    monkeypatch.setattr(own_reading, "MAX_OWN_BYTES", 1000)
    refused(named, "3 samples with client names of 100 characters")
    monkeypatch.setattr(own_reading, "_MOST_TOKENS", 10)
    refused(json_lines(tmp_path, [{"tokens": [1] * 11, "label": 0}]), "more than 10 tokens and")
    wide = json_lines(tmp_path, [{"tokens": [1], "label": [1.0] * 11}])
    refused(wide, "more than 10 tokens and targets", task="regress")
    uneven = json_lines(tmp_path, [{"tokens": [1] * size, "label": 0} for size in (1, 1, 5)])
    refused(uneven, "3 samples padded to 5 tokens are more than 10")


def test_other_broken_texts_are_refused_in_one_sentence(tmp_path: Path, tokenizer: str) -> None:
    path = json_lines(tmp_path, ROWS)
    refused(path, "vocabulary = 9: the tokenizer has 8", tokenizer=tokenizer, vocabulary=9)
    refused(path, "no such file", tokenizer=str(tmp_path / "none.json"))
    (tmp_path / "bad.json").write_text("{}")
    refused(path, r"bad\.json: is not a tokenizer\.json", tokenizer=str(tmp_path / "bad.json"))
    (tmp_path / "bad.jsonl").write_text("{\n")
    refused(tmp_path / "bad.jsonl", "line 1: not JSON")
    (tmp_path / "rows.csv").write_text("x,y\n1,2\n")
    refused(tmp_path / "rows.csv", "must be .jsonl", task="causal-lm")
    x = np.array([[1, 2], [NO_TOKEN, 1]])
    with pytest.raises(ConfigurationError, match="row 1 has no token, or one after its end"):
        Data(x, [0, 1], task="classify")
    with pytest.raises(ConfigurationError, match="takes no labels"):
        Data(abs(x), [0, 1], task="causal-lm")
    with pytest.raises(ConfigurationError, match="must be tokens"):
        Data(np.ones((2, 2)), task="causal-lm")
    with pytest.raises(ConfigurationError, match="row 1 has a number that is not finite"):
        Data(np.ones((2, 2)), [1.0, np.nan], task="regress")
