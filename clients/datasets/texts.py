r"""Published texts, Shakespeare and Sent140, and GloVe word vectors.

Only the vectors of requested words are kept: usual files have 400,000 words and more.

A sample is a window of 80 characters and the next one; windows start at every character.

* `split = "official"` is the split of files and paper: test characters occur in training.
* `split = "position"` is the last fifth of each role: no training window overlaps the test.

As in the authors' code: the first 25 words and marks, padded on the right; untrained GloVe vectors,
zeros for unknown words and padding. Unlike there, text is lowered first, because GloVe 6B has no
capitals: without that every sixth word is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Set
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from clients.datasets.data_set import DataSet, FileFormat, HubFiles
from clients.datasets.federated_data import (
    DataForm,
    FilePath,
    PooledData,
    Records,
    Samples,
    SettingsTable,
    Share,
    as_tokens,
    held_out,
    numbered,
    pooled,
)
from clients.datasets.files.archives import ArrayRule, read_arrays
from clients.datasets.files.layout import (
    FileKind,
    Layout,
    LeafUser,
    UserSamples,
    read_leaf,
    train_first,
)
from clients.datasets.files.tables import (
    LONGEST_ENTRY,
    Column,
    read_csv,
    read_lines,
    read_table,
    require_names,
)
from ledger.protocol.errors import ConfigurationError

WIDEST = 4096
GLOVE_RULES = {
    "word": ArrayRule("<U", (None,), rows="words"),
    "vector": ArrayRule("<f4", (None, None), rows="words", by_column=True),
}


def read_glove(path: Path, words: Set[str]) -> dict[str, NDArray[np.float32]]:
    """Return the vectors of the words in a file, at least one; of a repeated word the first."""
    vectors: dict[str, NDArray[np.float32]] = {}
    found = _glove_arrays(path) if path.suffix == ".npz" else _glove_lines(path, words)
    for word, vector in found:
        if word in words:
            vectors.setdefault(word, vector)
    if not vectors:
        raise ConfigurationError(f"{path}: has none of the {len(words)} words of the data")
    return vectors


def _glove_arrays(path: Path) -> Iterator[tuple[str, NDArray[np.float32]]]:
    arrays = read_arrays(path, GLOVE_RULES)
    width = arrays["vector"].shape[1]
    if not 1 <= width <= WIDEST:
        raise ConfigurationError(f"{path}: vectors of {width} numbers; must be 1 .. {WIDEST}")
    yield from zip(arrays["word"].tolist(), arrays["vector"], strict=True)


def _glove_lines(path: Path, words: Set[str]) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Yield requested words alone: the numbers of others are not read."""
    width = 0
    for number, line in enumerate(read_lines(path), start=1):
        fields = line.rstrip("\n").rstrip(" \r").count(" ")
        width = width or fields
        if fields != width or not 1 <= width <= WIDEST:
            raise ConfigurationError(
                f"{path}, line {number}: {fields} numbers; every line must have {width}, like "
                f"the first, and at most {WIDEST}"
            )
        word, _, numbers = line.partition(" ")
        if word not in words:
            continue
        try:
            vector = np.array(numbers.split(), dtype=np.float64)
        except ValueError as error:
            raise ConfigurationError(f"{path}, line {number}: {error}") from error
        if len(vector) != width:
            raise ConfigurationError(f"{path}, line {number}: numbers must have one blank between")
        if not (np.abs(vector) <= np.finfo(np.float32).max).all():
            raise ConfigurationError(f"{path}, line {number}: has a number that is not finite")
        yield word, vector.astype(np.float32)


ALPHABET = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
WINDOW = 80
MAX_ROWS = 10_000_000
SHAKESPEARE_RULES = {
    "chars": ArrayRule("|u1", (None,), 0, len(ALPHABET) - 1, rows="characters"),
    "text_offset": ArrayRule("<i8", (None,), 0, rows="offsets"),
    "sample_offset": ArrayRule("<i8", (None,), 0, rows="offsets"),
    "is_test": ArrayRule("|u1", (None,), 0, 1),
    "role": ArrayRule("<U", (None,), rows="roles"),
    "alphabet": ArrayRule("<U1", (len(ALPHABET),), rows="alphabet"),
}
COLUMNS = ("character_id", "x", "y")


class ShakespeareOptions(SettingsTable):
    """Split of the samples. Default: the split of the files, if they have one."""

    split: Literal["official", "position"] | None = None


def _arrays(layout: Layout) -> Records:
    """Return the windows of our own file, which has each text once."""
    path, arrays = layout.path, read_arrays(layout.path, SHAKESPEARE_RULES)
    if "".join(arrays["alphabet"]) != ALPHABET:
        raise ConfigurationError(f"{path}: alphabet must be LEAF's {len(ALPHABET)} characters")
    chars, text, sample = arrays["chars"], arrays["text_offset"], arrays["sample_offset"]
    sizes, lengths = np.diff(sample), np.diff(text)
    if len(arrays["role"]) != len(sizes) or len(set(arrays["role"])) != len(sizes):
        raise ConfigurationError(f"{path}: {len(arrays['role'])} roles, not {len(sizes)} different")
    ends = ((text, len(chars)), (sample, len(arrays["is_test"])))
    if (
        any(offset[0] != 0 or offset[-1] != end for offset, end in ends)
        or (sizes < 1).any()
        or (lengths - sizes != WINDOW).any()
    ):
        raise ConfigurationError(
            f"{path}: text_offset and sample_offset must rise from 0 to the end, by {WINDOW} "
            "more characters than samples in each role"
        )
    starts = np.arange(sample[-1]) + np.repeat(np.arange(len(sizes)) * WINDOW, sizes)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    labels = chars[starts + WINDOW].astype(np.int64)
    windows = np.lib.stride_tricks.sliding_window_view(chars, WINDOW)[starts]
    is_test = arrays["is_test"].astype(np.bool_)
    return Records(windows, labels, owner, tuple(map(str, arrays["role"])), is_test)


def _lines(layout: Layout) -> Records:
    """Return the windows of the Hugging Face layout, which has no split."""
    path = layout.files[0]
    roles: list[str] = []
    content = bytearray()
    for role, x, y in read_csv(path, COLUMNS):
        where = f"{path}: sample {len(roles)}"
        require_names(f"{where}: character_id", [role])
        if len(roles) == MAX_ROWS:
            raise ConfigurationError(f"{path}: more than {MAX_ROWS} samples")
        content += _bytes_of(where, x, y)
        roles.append(role)
    if not roles:
        raise ConfigurationError(f"{path}: has no samples")
    return Records(*_windows(str(path), content), *numbered(roles))


def _shakespeare_part(where: str, x: list[Any], y: list[Any]) -> Samples:
    pairs = zip(x, y, strict=True)
    return _windows(where, b"".join(_bytes_of(where, window, after) for window, after in pairs))


def _in_text_order(user: LeafUser) -> UserSamples:
    """Return training and test windows merged into the text that they were cut from."""
    samples = train_first(user)
    windows = [window.tobytes() for window in samples.x]
    successors = [
        window[1:].tobytes() + bytes([label])
        for window, label in zip(samples.x, samples.y.tolist(), strict=True)
    ]
    split, end = int(np.count_nonzero(~samples.is_test)), len(windows)
    inner = set(successors)
    train, test, order = 0, split, list[int]()
    while train < split and test < end:
        if order:
            takes_test = windows[test] == successors[order[-1]] != windows[train]
        else:  # the first window of a text continues no other one
            takes_test = windows[test] not in inner and windows[train] in inner
        order.append(test if takes_test else train)
        test, train = test + takes_test, train + (not takes_test)
    order += [*range(train, split), *range(test, end)]
    return UserSamples(samples.x[order], samples.y[order], samples.is_test[order])


def _bytes_of(where: str, window: object, following: object) -> bytes:
    if not isinstance(window, str) or not isinstance(following, str):
        raise ConfigurationError(f"{where}: x and y must be text")
    if len(window) != WINDOW or len(following) != 1:
        raise ConfigurationError(
            f"{where}: {len(window)} characters and {len(following)} more; must be {WINDOW} and 1"
        )
    try:
        return (window + following).encode("latin-1")
    except UnicodeEncodeError as error:
        character = error.object[error.start]
        raise ConfigurationError(f"{where}: {character!r} is not in the alphabet") from error


def _windows(where: str, content: bytes | bytearray) -> Samples:
    outside = 255
    index_of = np.full(256, outside, dtype=np.uint8)
    index_of[np.frombuffer(ALPHABET.encode("latin-1"), dtype=np.uint8)] = np.arange(len(ALPHABET))
    characters = np.frombuffer(content, dtype=np.uint8)
    numbers = index_of[characters]
    if (numbers == outside).any():
        first = int(np.argmax(numbers == outside))
        raise ConfigurationError(
            f"{where}: sample {first // (WINDOW + 1)}, {chr(characters[first])!r} not in alphabet"
        )
    rows = numbers.reshape(-1, WINDOW + 1)
    return Samples(rows[:, :WINDOW], rows[:, WINDOW].astype(np.int64))


def _pool_shakespeare(
    records: Records, options: ShakespeareOptions, _: np.random.Generator
) -> PooledData:
    form = DataForm((WINDOW,), len(ALPHABET), "int64", len(ALPHABET))
    return pooled(records, _is_test(records, options.split), form, as_tokens)


def _is_test(records: Records, split: str | None) -> NDArray[np.bool_]:
    if split == "official" and records.is_test is None:
        raise ConfigurationError("data.options.split = 'official': must be 'position' here")
    if split != "position" and records.is_test is not None:
        return records.is_test
    assert records.owner is not None, "each layout has roles"
    is_test = np.zeros(len(records.y), dtype=np.bool_)
    for number, role in enumerate(records.owners):
        rows = np.flatnonzero(records.owner == number)
        x, y = records.x[rows], records.y[rows]
        follows = (x[1:, :-1] == x[:-1, 1:]).all(axis=1) & (x[1:, -1] == y[:-1])
        if not follows.all():
            raise ConfigurationError(
                f"data.options.split = 'position': window {int(np.argmin(follows)) + 1} of role "
                f"{role!r} does not continue the previous one; the files are not in text order"
            )
        is_test[rows[len(rows) - int(0.2 * len(rows) + 0.5) :]] = True
    return is_test


SHAKESPEARE = DataSet(
    "shakespeare",
    ShakespeareOptions,
    _pool_shakespeare,
    (
        FileFormat(FileKind.ARRAYS, frozenset(SHAKESPEARE_RULES), _arrays),
        FileFormat(FileKind.LINES, frozenset(COLUMNS), _lines),
        FileFormat(
            FileKind.LEAF,
            frozenset(),
            partial(read_leaf, convert=_shakespeare_part, ordered=_in_text_order),
        ),
    ),
    owned_by="roles",
    is_input_of=lambda value: isinstance(value, str),
    hub=HubFiles("flwrlabs/shakespeare", (("main", r"shakespeare\.csv"),)),
)


TOKENS = 25
OURS = dict.fromkeys(("user", "is_test", "label"), Column.WHOLE) | {"text": Column.TEXT}
HUGGING_FACE = {"user": Column.TEXT, "text": Column.TEXT, "sentiment": Column.WHOLE}
_TEXT_PLACE = 4  # LEAF: id, date, query, account, text
_ALLOWED = {"is_test": (0, 1), "label": (0, 1), "sentiment": (0, 4)}
"""Sentiment140 also has the sentiment 2, neutral, but only in its test file."""


class Sent140Options(SettingsTable):
    """Settings."""

    glove: FilePath
    """Path of the GloVe word vectors, .npz or text."""
    lower: bool = True
    """Whether words are converted to lower case before the look-up."""
    test_share: Share | None = None
    """Share of each account's samples in the test set, for files without a split. Default: 0.2."""


def _tweets(layout: Layout, columns: Mapping[str, Column]) -> Records:
    """Return the tweets of a table, our own with its split or the Hugging Face layout without."""

    def check(where: str, rows: Mapping[str, NDArray[Any]]) -> None:
        for name, allowed in _ALLOWED.items():
            values = rows.get(name, np.zeros(0))
            wrong = values[~np.isin(values, allowed)]
            if len(wrong):
                rule = " or ".join(map(str, allowed))
                raise ConfigurationError(f"{where}: {name} {wrong[0]}; must be {rule}")

    held = read_table(layout.files, columns, check)
    if columns["user"] is Column.TEXT:
        require_names(f"{layout.path}: user", held["user"])
    label = held["label"] if "label" in held else held["sentiment"] // 4
    is_test = held["is_test"].astype(np.bool_) if "is_test" in held else None
    return Records(held["text"], label, *numbered(held["user"]), is_test)


def _sent140_part(where: str, x: list[Any], y: list[Any]) -> Samples:
    if not all(_is_tweet(tweet) for tweet in x):
        raise ConfigurationError(f"{where}: x must be lists of id, date, query, account, text")
    texts = np.empty(len(x), dtype=object)
    texts[:] = [tweet[_TEXT_PLACE] for tweet in x]
    longest = max(map(len, texts), default=0)
    if longest > LONGEST_ENTRY:
        raise ConfigurationError(f"{where}: a text of {longest} characters, over {LONGEST_ENTRY}")
    labels: list[int] = []
    for label in y:
        # LEAF writes "0" and "4" as text; some tools write numbers, and 1 for 4.
        class_ = {"0": 0, "1": 1, "4": 1}.get(str(label)) if type(label) in {str, int} else None
        if class_ is None:
            raise ConfigurationError(
                f"{where}: label {str(label)[:20]!r}; must be 0 (negative), or 4 or 1 (positive)"
            )
        labels.append(class_)
    return Samples(texts, np.array(labels, dtype=np.int64))


def _is_tweet(value: object) -> bool:
    return (
        isinstance(value, list) and len(value) > _TEXT_PLACE and isinstance(value[_TEXT_PLACE], str)
    )


def _pool_sent140(
    records: Records, options: Sent140Options, rng: np.random.Generator
) -> PooledData:
    is_test = held_out(records, options.test_share, rng)
    texts = (text.lower() if options.lower else text for text in records.x)
    rows = [re.findall(r"[\w']+|[.,!?;]", text)[:TOKENS] for text in texts]
    vectors = read_glove(Path(options.glove), {word for row in rows for word in row})
    words = sorted(vectors)
    token = {word: number for number, word in enumerate(words, start=1)}
    embedding = np.zeros((len(words) + 1, len(vectors[words[0]])), dtype=np.float32)
    embedding[1:] = [vectors[word] for word in words]
    embedding.setflags(write=False)
    tokens = np.zeros((len(rows), TOKENS), dtype=np.int32)
    for number, row in enumerate(rows):
        tokens[number, : len(row)] = [token.get(word, 0) for word in row]
    form = DataForm((TOKENS,), 2, "int64", len(embedding), embedding)
    return pooled(records, is_test, form, as_tokens, tokens)


SENT140 = DataSet(
    "sent140",
    Sent140Options,
    _pool_sent140,
    (
        FileFormat(FileKind.TABLE, frozenset(OURS), partial(_tweets, columns=OURS)),
        FileFormat(FileKind.TABLE, frozenset(HUGGING_FACE), partial(_tweets, columns=HUGGING_FACE)),
        FileFormat(FileKind.LEAF, frozenset(), partial(read_leaf, convert=_sent140_part)),
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
