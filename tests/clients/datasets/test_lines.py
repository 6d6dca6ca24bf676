"""CSV files and word vectors: lines that are bounded, and what is wrong with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from clients.datasets.files.glove import read_glove
from clients.datasets.files.lines import read_csv, read_lines
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path


def text(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_rows_of_csv_come_by_the_names_of_their_columns(tmp_path: Path) -> None:
    path = text(tmp_path / "a.csv", 'b,a,c\n1,"x, ""y""",2\r\n3,"two\nlines",4\n')
    assert list(read_csv(path, ("a", "b"))) == [['x, "y"', "1"], ["two\nlines", "3"]]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("a\n1\n", "has the columns 'a'; must have one 'b'"),
        ("a,b\n1,2\n3\n", "line 3: 1 fields, but the header has 2"),
        ('a,b\n1,"2\n', "line 2: unexpected end of data"),
        (b"a,b\n1,\xff\n", "not UTF-8 text"),
        ("a,b\n1," + "x" * 70_000 + "\n", "line 2 is longer than 65536 bytes"),
        ('a,b\n1,"' + "x\n" * 70_000 + '"\n', "field larger than field limit"),
    ],
)
def test_a_damaged_csv_file_is_refused_with_line_and_rule(
    tmp_path: Path, content: str | bytes, sentence: str
) -> None:
    path = text(tmp_path / "a.csv", content)
    with pytest.raises(ConfigurationError, match=rf"a\.csv: .*{sentence}"):
        list(read_csv(path, ("a", "b")))


def test_a_file_that_is_missing_or_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        list(read_lines(tmp_path / "none.csv"))
    path = text(tmp_path / "a.csv", "abc")
    assert list(read_lines(path)) == ["abc"]
    monkeypatch.setattr("clients.datasets.files.lines.MAX_FILE_BYTES", 2)
    with pytest.raises(ConfigurationError, match="3 bytes, more than 2"):
        list(read_lines(path))


def test_only_requested_vectors_are_read_and_the_first_counts(tmp_path: Path) -> None:
    path = text(tmp_path / "g.txt", "the 0.5 -1\nnaïve 1e-3 2\nthe 9 9\n\u0085 1 1\n")
    found = read_glove(path, {"the", "naïve", "absent"})
    assert {word: vector.tolist() for word, vector in found.items()} == {
        "the": [0.5, -1.0],
        "naïve": [np.float32(1e-3), 2.0],
    }
    arrays = tmp_path / "g.npz"
    words = np.array(["the", "of", "the"])
    np.savez(arrays, word=words, vector=np.array([[1, 2], [3, 4], [5, 6]], dtype="<f4", order="F"))
    assert {word: v.tolist() for word, v in read_glove(arrays, {"the"}).items()} == {
        "the": [1.0, 2.0]
    }


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("the 1 2\nof 1\n", "line 2 has 1 numbers; every line must have as many as the first, 2"),
        ("the 1 x\n", r"line 1: could not convert string to float: 'x'"),
        ("the 1 nan\n", "line 1: holds a number that is not finite in 32 bits"),
        ("of 1 2\n", r"has none of the 1 words of the data"),
        (b"the 1 2\n\xff 1 2\n", "not UTF-8 text"),
        ("the" + " 1" * 4097 + "\n", "line 1 has 4097 numbers; .* at most 4096"),
    ],
)
def test_damaged_word_vectors_are_refused_with_line_and_rule(
    tmp_path: Path, content: str | bytes, sentence: str
) -> None:
    path = text(tmp_path / "g.txt", content)
    with pytest.raises(ConfigurationError, match=rf"g\.txt: {sentence}"):
        read_glove(path, {"the"})


def test_damaged_arrays_of_word_vectors_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "g.npz"
    word, vector = np.array(["the", "of"]), np.zeros((2, 3), dtype="<f4")
    for arrays, sentence in (
        ({"word": word, "vector": vector[:1]}, "unequal length"),
        ({"word": word, "vector": vector[:, :0]}, r"vector: shape \(2, 0\) holds nothing"),
        ({"word": word}, "must hold exactly"),
    ):
        np.savez(path, allow_pickle=True, **arrays)
        with pytest.raises(ConfigurationError, match=rf"g\.npz: .*{sentence}"):
            read_glove(path, {"the"})
