r"""`sent140`: the sentiment of a tweet; one client for each Twitter account (Sentiment140, LEAF).

As in the authors' code: words and marks by `[\w']+|[.,!?;]`, the first 25 of them, padded on the
right; untrained GloVe vectors, zeros for unknown words and padding. Unlike there, text is lowered
first, because GloVe 6B has no capitals: without that every sixth word is unknown (`lower = false`
does as the authors did).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from clients.datasets.collating import as_tokens
from clients.datasets.data_set import DataSet, FileFormat, HubFiles
from clients.datasets.federated_data import DataForm, Inputs
from clients.datasets.files.glove import read_glove
from clients.datasets.files.layout import FileKind, Layout
from clients.datasets.files.leaf import LeafPart, read_leaf
from clients.datasets.files.parquet import Column, read_rows
from clients.datasets.records import PooledData, Records, held_out, numbered, pooled
from clients.datasets.settings_table import FilePath, SettingsTable, Share
from ledger.protocol.errors import ConfigurationError

CLASSES = 2
TOKENS = 25
LONGEST_TEXT = 10_000
LONGEST_ACCOUNT = 200
OURS = {
    "user": Column.WHOLE,
    "is_test": Column.WHOLE,
    "label": Column.WHOLE,
    "text": Column.TEXT,
}
HUGGING_FACE = {"user": Column.TEXT, "text": Column.TEXT, "sentiment": Column.WHOLE}

_TOKEN = re.compile(r"[\w']+|[.,!?;]")
_TEXT_PLACE = 4  # LEAF: id, date, query, account, text
_ALLOWED = {"is_test": (0, 1), "label": (0, 1), "sentiment": (0, 4)}
"""Sentiment140 also has the sentiment 2, neutral, but only in its test file."""


class Sent140Options(SettingsTable):
    """Settings.

    Attributes:
        glove: path of the word vectors.
        lower: whether text is lowered before words are looked up.
        test_share: share of each account's samples in the test, by default 0.2; only for files
            without a split of their own.
    """

    glove: FilePath = Field(description="the path of GloVe word vectors, .npz or text")
    lower: bool = True
    test_share: Share | None = None


def _tweets(layout: Layout, columns: Mapping[str, Column]) -> Records:
    """Return the tweets of a table, our own with its split or the Hugging Face layout without."""
    found: dict[str, list[Any]] = {name: [] for name in columns}
    for path in layout.files:
        for rows in read_rows(path, columns):
            where = f"{path}: from row {len(found['text'])}"
            _require_texts(where, rows["text"])
            for name in _ALLOWED.keys() & columns.keys():
                _require_one_of(where, name, rows[name], _ALLOWED[name])
            for name, kind in columns.items():
                found[name] += rows[name] if kind is Column.TEXT else [rows[name]]
    numbers = {
        name: np.concatenate(found[name]) for name, kind in columns.items() if kind is Column.WHOLE
    }
    users = numbers.get("user", found["user"])
    if "user" not in numbers and any(not 0 < len(user) <= LONGEST_ACCOUNT for user in set(users)):
        raise ConfigurationError(
            f"{layout.path}: user: must have 1 .. {LONGEST_ACCOUNT} characters"
        )
    owner, owners = numbered(users)
    label = numbers["label"] if "label" in numbers else numbers["sentiment"] // 4
    is_test = numbers["is_test"].astype(np.bool_) if "is_test" in numbers else None
    return Records(_as_records(found["text"]), label, owner, owners, is_test)


def _leaf_part(where: str, x: list[Any], y: list[Any]) -> LeafPart:
    if not all(_is_tweet(tweet) for tweet in x):
        raise ConfigurationError(
            f"{where}: x must be lists of at least {_TEXT_PLACE + 1} texts: id, date, query, "
            "account, text"
        )
    texts = _require_texts(where, [tweet[_TEXT_PLACE] for tweet in x])
    labels: list[int] = []
    for label in y:
        # LEAF writes "0" and "4" as text; some tools write numbers, and 1 for 4.
        class_ = {"0": 0, "1": 1, "4": 1}.get(str(label)) if type(label) in {str, int} else None
        if class_ is None:
            raise ConfigurationError(
                f"{where}: label {str(label)[:20]!r}; must be 0 (negative), or 4 or 1 (positive)"
            )
        labels.append(class_)
    return LeafPart(_as_records(texts), np.array(labels, dtype=np.int64))


def _is_tweet(value: object) -> bool:
    return (
        isinstance(value, list) and len(value) > _TEXT_PLACE and isinstance(value[_TEXT_PLACE], str)
    )


def _require_texts(where: str, texts: list[str]) -> list[str]:
    for text in texts:
        if len(text) > LONGEST_TEXT:
            raise ConfigurationError(
                f"{where}: a text of {len(text)} characters, more than {LONGEST_TEXT}"
            )
    return texts


def _require_one_of(
    where: str, name: str, values: NDArray[np.int64], allowed: tuple[int, ...]
) -> None:
    wrong = ~np.isin(values, allowed)
    if wrong.any():
        raise ConfigurationError(
            f"{where}: {name} {values[wrong][0]}; must be {' or '.join(map(str, allowed))}"
        )


def _as_records(texts: list[str]) -> NDArray[Any]:
    rows = np.empty(len(texts), dtype=object)
    rows[:] = texts
    return rows


def _pool(records: Records, options: Sent140Options, rng: np.random.Generator) -> PooledData:
    is_test = held_out(records, options.test_share, rng)
    form, x = _prepared(records.x, Path(options.glove), lower=options.lower)
    return pooled(records, is_test, form, x, as_tokens, "accounts")


def _prepared(texts: NDArray[Any], glove: Path, *, lower: bool) -> tuple[DataForm, Inputs]:
    """Return tokens of the texts, and the vectors of the known words that occur.

    Token 0 is padding and unknown words; the others are words in ascending order.
    """
    rows = [_TOKEN.findall(text.lower() if lower else text)[:TOKENS] for text in texts]
    vectors = read_glove(glove, {word for row in rows for word in row})
    words = sorted(vectors)
    token = {word: number for number, word in enumerate(words, start=1)}
    embedding = np.zeros((len(words) + 1, len(next(iter(vectors.values())))), dtype=np.float32)
    embedding[1:] = [vectors[word] for word in words]
    embedding.setflags(write=False)
    tokens = np.zeros((len(rows), TOKENS), dtype=np.int32)
    for number, row in enumerate(rows):
        tokens[number, : len(row)] = [token.get(word, 0) for word in row]
    return DataForm((TOKENS,), CLASSES, "int64", len(embedding), embedding), tokens


SENT140 = DataSet(
    "sent140",
    Sent140Options,
    _pool,
    (
        FileFormat(FileKind.TABLE, frozenset(OURS), partial(_tweets, columns=OURS)),
        FileFormat(FileKind.TABLE, frozenset(HUGGING_FACE), partial(_tweets, columns=HUGGING_FACE)),
        FileFormat(FileKind.LEAF, frozenset(), lambda layout: read_leaf(layout, _leaf_part)),
    ),
    owned_by="accounts",
    is_input_of=_is_tweet,
    # Without the test file, which has a third class, neutral.
    hub=HubFiles(
        "stanfordnlp/sentiment140",
        (
            ("main", r"sentiment140/train-[^/]+\.parquet"),
            ("refs/convert/parquet", r"sentiment140/train/[^/]+\.parquet"),
        ),
    ),
)
