"""Shakespeare: three layouts of one text, and what a split by position keeps apart."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from clients.datasets.registry import DATASETS, DataChoice, load_dataset, recognise
from clients.datasets.shakespeare import ALPHABET
from ledger.protocol.errors import ConfigurationError
from tests.clients.datasets import leaf

if TYPE_CHECKING:
    from clients.datasets.federated_data import FederatedData
    from clients.datasets.records import Records

FIXTURE = Path(__file__).parents[2] / "fixtures" / "hugging_face" / "shakespeare"
REAL_FILE = Path(__file__).parents[4] / "shared" / "data" / "shakespeare.npz"

# No window of 80 characters stands twice in it, but some characters do.
TEXT = "".join(ALPHABET[(place * place + place // 7) % 80] for place in range(105))
OTHER = TEXT[::-1][:91]


def records(path: Path) -> Records:
    return DATASETS["shakespeare"].records(path)


def loaded(path: Path, split: str | None = None) -> FederatedData:
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
    """The same samples and the same split as in `arrays`."""
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
    found = records(npz(tmp_path / "s.npz"))
    assert found.owners == ("A", "B")
    assert found.x.shape == (36, 80)
    assert found.x.dtype == np.uint8
    for row, text, start in ((0, TEXT, 0), (24, TEXT, 24), (25, OTHER, 0), (35, OTHER, 10)):
        assert "".join(ALPHABET[c] for c in found.x[row]) == text[start : start + 80]
        assert ALPHABET[found.y[row]] == text[start + 80]


@pytest.mark.parametrize("split", ["official", "position"])
def test_arrays_and_leaf_give_equal_samples_in_order(tmp_path: Path, split: str) -> None:
    one, same = loaded(npz(tmp_path / "s.npz"), split), loaded(in_leaf(tmp_path / "leaf"), split)
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
    one, same = loaded(npz(tmp_path / "s.npz"), "position"), loaded(path)
    assert one.sample_counts == same.sample_counts == (20, 9)
    assert np.array_equal(one.test.x, same.test.x)
    with pytest.raises(ConfigurationError, match="split = 'official': the files state no split"):
        loaded(path, "official")
    assert len(records(FIXTURE).owners) == 2


def test_by_position_no_training_window_overlaps_the_test(tmp_path: Path) -> None:
    data = loaded(npz(tmp_path / "s.npz"), "position")
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
    with pytest.raises(
        ConfigurationError, match="'position': window 3 of role 'A' does not continue"
    ):
        loaded(csv_of(tmp_path / "s.csv", swapped + other))


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"alphabet": np.array(list(ALPHABET[::-1]))}, "alphabet: must be LEAF's 80 characters"),
        ({"chars": np.full(196, 80, dtype=np.uint8)}, r"chars: values 80 \.\. 80, outside 0"),
        ({"chars": np.zeros(195, dtype=np.uint8)}, "text_offset and sample_offset"),
        ({"text_offset": np.array([0, 106, 196])}, "by 80 more characters than samples"),
        ({"sample_offset": np.array([0, 25, 35])}, "must rise from 0"),
        ({"is_test": np.zeros(35, dtype=np.uint8)}, "must rise from 0"),
        ({"role": np.array(["A", "A"])}, "2 roles, of which 1 different, for 2 texts"),
    ],
)
def test_arrays_that_do_not_go_together_are_refused(
    tmp_path: Path, changed: dict[str, Any], sentence: str
) -> None:
    path = npz(tmp_path / "s.npz", **changed)
    with pytest.raises(ConfigurationError, match=rf"s\.npz: .*{sentence}"):
        records(path)


@pytest.mark.parametrize(
    ("role", "x", "y", "sentence"),
    [
        ("A", "x" * 79, "y", "sample 0: 79 characters and 1 that follow; must be 80 and 1"),
        ("A", "x" * 79 + "é", "y", "'é' is not in the alphabet"),
        ("", "x" * 80, "y", "character_id: must have 1"),
    ],
)
def test_a_character_outside_the_alphabet_or_another_length_is_refused(
    tmp_path: Path, role: str, x: str, y: str, sentence: str
) -> None:
    path = csv_of(tmp_path / "s.csv", [(role, x, y)])
    with pytest.raises(ConfigurationError, match=rf"s\.csv: .*{sentence}"):
        records(path)


@pytest.mark.parametrize(
    ("x", "y", "sentence"),
    [(["x" * 80], [5], "x and y must be text"), (["x" * 80], ["ß"], "'ß' is not in the alphabet")],
)
def test_non_windows_in_leaf_are_refused_with_the_user(
    tmp_path: Path, x: list[Any], y: list[Any], sentence: str
) -> None:
    with pytest.raises(ConfigurationError, match=rf"all_data_train\.json: 'A': {sentence}"):
        records(leaf.written(tmp_path, {"A": (x, y)}, {}))


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
