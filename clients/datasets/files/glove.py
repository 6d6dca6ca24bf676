"""GloVe word vectors: text, one word and its numbers per line, or an `.npz` file.

Only the vectors of requested words are kept: usual files have 400,000 words and more.
"""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clients.datasets.files.data_archive import ArrayRule, read_arrays
from clients.datasets.files.lines import read_lines
from ledger.protocol.errors import ConfigurationError

WIDEST = 4096
RULES = {
    "word": ArrayRule("<U", (None,), rows="words"),
    "vector": ArrayRule("<f4", (None, None), rows="words", by_column=True),
}

WordVectors = dict[str, NDArray[np.float32]]
"""The vector of each word, all of one width."""


def read_glove(path: Path, words: Set[str]) -> WordVectors:
    """Return the vectors of those words that the file has.

    Args:
        path: an `.npz` file with `word` and `vector`, or a text file.

    Returns:
        At least one vector; the first for a repeated word.
    """
    vectors = _arrays(path, words) if path.suffix == ".npz" else _lines(path, words)
    if not vectors:
        raise ConfigurationError(f"{path}: has none of the {len(words)} words of the data")
    return vectors


def _arrays(path: Path, words: Set[str]) -> WordVectors:
    arrays = read_arrays(path, RULES)
    width = arrays["vector"].shape[1]
    if not 1 <= width <= WIDEST:
        raise ConfigurationError(f"{path}: vectors of {width} numbers; there may be 1 .. {WIDEST}")
    vectors: WordVectors = {}
    for word, vector in zip(arrays["word"].tolist(), arrays["vector"], strict=True):
        if word in words:
            vectors.setdefault(word, vector)
    return vectors


def _lines(path: Path, words: Set[str]) -> WordVectors:
    vectors: WordVectors = {}
    width = 0
    for number, line in enumerate(read_lines(path), start=1):
        fields = line.rstrip("\n").rstrip(" \r").count(" ")
        width = width or fields
        if fields != width or not 1 <= width <= WIDEST:
            raise ConfigurationError(
                f"{path}: line {number} has {fields} numbers; every line must have as many as the "
                f"first, {width}, and at most {WIDEST}"
            )
        word, _, numbers = line.partition(" ")
        if word in words and word not in vectors:
            vectors[word] = _vector(f"{path}: line {number}", numbers)
    return vectors


def _vector(where: str, numbers: str) -> NDArray[np.float32]:
    try:
        vector = np.array(numbers.split(), dtype=np.float64)
    except ValueError as error:
        raise ConfigurationError(f"{where}: {error}") from error
    if not (np.abs(vector) <= np.finfo(np.float32).max).all():
        raise ConfigurationError(f"{where}: holds a number that is not finite in 32 bits")
    return vector.astype(np.float32)
