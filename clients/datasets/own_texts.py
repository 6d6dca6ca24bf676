"""Texts and rows of tokens of a user's own data, as arrays of equal width.

A sequence is a text, a list of words, or a list of tokens. Texts and words become tokens by a
`tokenizer.json`, the file of Hugging Face's `tokenizers`; nothing in it is executed. Rows that are
shorter than the longest end with `NO_TOKEN`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clients.datasets.federated_data import NO_TARGET, NO_TOKEN
from clients.datasets.files.archives import LONGEST_TEXT, MAX_OWN_BYTES, require_file
from clients.datasets.files.layout import FileKind, Layout
from clients.datasets.files.tables import (
    LONGEST_TEXT_LINE,
    TEST,
    imported,
    opened,
    read_columns,
    read_json_lines,
    read_lines,
)
from clients.datasets.own import class_numbers, names_setting, plain_name
from clients.datasets.own_columns import CLIENTS, TESTS, ColumnRoles, FileOptions, column_roles
from ledger.io.home import read_file
from ledger.io.user_code import as_configuration_error
from ledger.protocol.errors import ConfigurationError

SEQUENCES = ("text", "words", "tokens", "input_ids", "x")
"""Names that the column of the sequences has where the options name none."""
MAX_TOKENIZER_BYTES = 1 << 26
"""Of a file with a vocabulary of a quarter of a million: 33 million bytes."""
MASKS = ("[MASK]", "<mask>")
_ROWS_AT_ONCE = 64
_MOST_TOKENS = MAX_OWN_BYTES // 16


def read_texts(layout: Layout, options: FileOptions) -> tuple[dict[str, NDArray[Any]], ColumnRoles]:
    """Return x, the y of tasks with labels and, where they are there, client and is_test.

    Returns:
        `x` are tokens, int64 of shape (n, longest). `y` are whole numbers of shape (n,) or
        (n, longest), float64 of shape (n, outputs), or names of classes. The roles of the columns
        are returned with them.
    """
    where = str(layout.path)
    given = [options.features[0]] if options.features else [*SEQUENCES]
    names = {plain_name(name): name for name in layout.names}
    feature = next(
        (names[plain_name(name)] for name in given if plain_name(name) in names), given[0]
    )
    roles = column_roles(where, layout.names, options, (feature,))
    samples = _Samples(where, roles, options)
    number, is_test = 0, None
    for number, (row, is_test) in enumerate(_rows(layout, roles), start=1):
        if layout.kind is FileKind.JSON_LINES:
            _require_no_late_role(f"{where}: row {number}", row, layout)
        samples.add(number, row, is_test=is_test)
    if not number:
        raise ConfigurationError(f"{where}: has no rows")
    return samples.arrays(), roles


def _require_no_late_role(where: str, row: Mapping[str, Any], layout: Layout) -> None:
    """Reject a client or a split that the first row lacks: it would be passed over in silence."""
    for name in (*CLIENTS, *TESTS):
        if name in row and name not in layout.fields:
            raise ConfigurationError(f"{where}: has {name!r}, and the first row has none")


def _rows(layout: Layout, roles: ColumnRoles) -> Iterator[tuple[Mapping[str, Any], bool | None]]:
    """Yield each row, and whether the files themselves say that it is for the test."""
    has_split = layout.kind is FileKind.SAVED and roles.is_test is None
    for file in layout.files:
        match layout.kind:
            case FileKind.JSON_LINES:
                yield from ((row, None) for row in read_json_lines(file))
            case FileKind.TEXTS:
                for line in read_lines(file, LONGEST_TEXT_LINE):
                    if text := line.strip():
                        yield {"text": text, "client": file.stem}, None
            case FileKind.SAVED:
                is_test = file.parent != layout.path and file.parent.name == TEST
                with opened(file) as stream:
                    for batch in stream:
                        batch.validate(full=True)
                        rows = _rows_of(batch.select(list(roles.columns)))
                        yield from ((row, is_test if has_split else None) for row in rows)
            case _:
                for batch in read_columns(file, roles.columns):
                    yield from ((row, None) for row in _rows_of(batch))


def _rows_of(batch: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of a batch, a few at a time: one long text may stand in all of them."""
    for first in range(0, batch.num_rows, _ROWS_AT_ONCE):
        yield from batch.slice(first, _ROWS_AT_ONCE).to_pylist()


@dataclass(frozen=True, slots=True)
class _Sequence:
    """Tokens of a sample, and the word that each is a part of; None of rows of tokens."""

    tokens: list[int]
    words: list[int | None] | None = None


class _Samples:
    """Rows as they are read."""

    def __init__(self, where: str, roles: ColumnRoles, options: FileOptions) -> None:
        self._where, self._roles, self._options = where, roles, options
        self._tokens: list[list[int]] = []
        self._targets: list[Any] = []
        self._clients: list[str] = []
        self._is_test: list[bool] = []
        self._size = 0

    def add(self, number: int, row: Mapping[str, Any], *, is_test: bool | None) -> None:
        """Add a row's samples: several of a long text of a language task."""
        where = f"{self._where}: row {number}"
        (feature,) = self._roles.features
        sequence = _sequence(f"{where}: {feature}", row.get(feature), self._options.tokenizer)
        pieces = self._pieces(where, sequence.tokens)
        target = None
        if self._roles.label is not None:
            target = self._target(f"{where}: {self._roles.label}", row, sequence)
        for piece in pieces:
            self._tokens.append(piece)
            self._targets.append(target)
            if self._roles.client is not None:
                self._clients.append(_client(f"{where}: {self._roles.client}", row, self._roles))
            split = self._split(where, row, is_test)
            if split is not None:
                self._is_test.append(split)
        self._size += len(sequence.tokens) + (len(target) if isinstance(target, list) else 0)
        if self._size > _MOST_TOKENS:
            raise ConfigurationError(f"{self._where}: more than {_MOST_TOKENS} tokens and targets")

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all samples."""
        width = max(map(len, self._tokens))
        if len(self._tokens) * width > _MOST_TOKENS:
            raise ConfigurationError(
                f"{self._where}: {len(self._tokens)} samples as long as the longest, {width} "
                f"tokens, are more than {_MOST_TOKENS}: set data.options.length"
            )
        result: dict[str, NDArray[Any]] = {"x": _filled(self._tokens, width, NO_TOKEN)}
        if self._options.task == "token-classify":
            result["y"] = _filled(self._targets, width, NO_TARGET)
        elif self._roles.label is not None:
            result["y"] = self._joined_targets()
        if self._clients:
            longest = max(map(len, self._clients))
            if 4 * len(self._clients) * longest > MAX_OWN_BYTES:
                raise ConfigurationError(
                    f"{self._where}: {len(self._clients)} samples with names of clients as long as "
                    f"the longest, {longest} characters, are more than {MAX_OWN_BYTES} bytes"
                )
            result["client"] = np.array(self._clients, dtype=np.str_)
        if self._is_test:
            result["is_test"] = np.array(self._is_test)
        return result

    def _joined_targets(self) -> NDArray[Any]:
        if self._options.task != "regress":
            kind = np.int64 if self._options.class_names is None else np.str_
            return np.array(self._targets, dtype=kind)
        if len({len(target) for target in self._targets}) > 1:
            raise ConfigurationError(
                f"{self._where}: {self._roles.label}: rows of different lengths; must be equally "
                f"many numbers"
            )
        return np.array(self._targets, dtype=np.float64)

    def _pieces(self, where: str, tokens: list[int]) -> list[list[int]]:
        most, least = self._options.length, 2 if self._options.task == "causal-lm" else 1
        if len(tokens) < least:
            raise ConfigurationError(f"{where}: {len(tokens)} tokens; must be at least {least}")
        if most is None or len(tokens) <= most:
            return [tokens]
        if not self._options.is_language:
            raise ConfigurationError(
                f"{where}: {len(tokens)} tokens, more than data.options.length = {most}"
            )
        pieces = [tokens[start : start + most] for start in range(0, len(tokens), most)]
        return [piece for piece in pieces if len(piece) >= least]

    def _target(self, where: str, row: Mapping[str, Any], sequence: _Sequence) -> Any:
        assert self._roles.label is not None, "asked for labels alone"
        value = row.get(self._roles.label)
        if self._options.task == "regress":
            numbers: list[Any] = value if isinstance(value, list) else [value]
            if not numbers or not all(type(number) in {int, float} for number in numbers):
                raise ConfigurationError(
                    f"{where}: must be a number or a list of them, not {value!r:.80}"
                )
            try:
                return [float(number) for number in numbers]
            except OverflowError:
                raise ConfigurationError(f"{where}: is too large a number") from None
        names = self._options.class_names
        if self._options.task == "token-classify":
            return _token_targets(where, value, sequence, names)
        if names is not None and type(value) in {int, str} and len(str(value)) <= LONGEST_TEXT:
            return str(value)
        if names is not None or not _is_whole(value):
            raise ConfigurationError(
                f"{where}: a label must be a whole number from 0 on, not {value!r:.80}; text is "
                f"numbered by {names_setting([])}"
            )
        return value

    def _split(self, where: str, row: Mapping[str, Any], is_test: bool | None) -> bool | None:
        if self._roles.is_test is None:
            return is_test
        value = row.get(self._roles.is_test)
        if type(value) not in {bool, int} or value not in {0, 1}:
            raise ConfigurationError(
                f"{where}: {self._roles.is_test}: must be true or false, or 1 or 0, not "
                f"{value!r:.80}"
            )
        return bool(value)


def tokenizer_at(path: Path) -> Any:
    """Return the tokenizer of a file, which neither cuts nor pads."""
    setting = f"data.options.tokenizer = {path}"
    try:
        require_file(path)
        state = path.stat()
    except OSError as error:
        raise ConfigurationError(f"{setting}: cannot be read: {error.strerror}") from error
    if state.st_size > MAX_TOKENIZER_BYTES:
        raise ConfigurationError(
            f"{setting}: {state.st_size} bytes, more than {MAX_TOKENIZER_BYTES}"
        )
    return _loaded(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=1)
def _loaded(path: Path, *_: int) -> Any:
    """Return the tokenizer of a file, which is read again when it has changed."""
    setting = f"data.options.tokenizer = {path}"
    tokenizers = imported("tokenizers", "transformers", "texts")
    with as_configuration_error(f"{setting}: is no tokenizer.json"):
        tokenizer = tokenizers.Tokenizer.from_buffer(read_file(path, MAX_TOKENIZER_BYTES))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def mask_token(tokenizer: Any) -> int | None:
    """Return the token of a tokenizer that hides others; None if it has none."""
    tokens = (tokenizer.token_to_id(name) for name in MASKS)
    return next((token for token in tokens if token is not None), None)


def _sequence(where: str, value: object, tokenizer: str | None) -> _Sequence:
    """Return the tokens of a text, a list of words, or a list of tokens."""
    if isinstance(value, list) and value and all(map(_is_whole, value)):
        return _Sequence(value)
    is_words = isinstance(value, list) and all(isinstance(word, str) for word in value)
    if not is_words and not isinstance(value, str):
        raise ConfigurationError(
            f"{where}: must be a text, a list of words, or a list of tokens, not {value!r:.80}"
        )
    if tokenizer is None:
        raise ConfigurationError(
            f"{where}: is text, and data.options.tokenizer, the path of a tokenizer.json, is not "
            f"set"
        )
    encode = tokenizer_at(Path(tokenizer)).encode
    with as_configuration_error(f"{where}: the tokenizer fails"):
        encoded = encode(value, is_pretokenized=is_words)
    return _Sequence(list(encoded.ids), list(encoded.word_ids) if is_words else None)


def _token_targets(
    where: str, value: object, sequence: _Sequence, names: Sequence[str] | None
) -> list[int]:
    """Return the class of each token: of a word that of its first token alone."""
    is_list = isinstance(value, list) and all(type(label) in {int, str} for label in value)
    if names is not None and isinstance(value, list) and is_list:
        named = [str(label) for label in value if label != NO_TARGET]
        numbers = iter(class_numbers(where, np.array(named, dtype=np.str_), names).tolist())
        value = [label if label == NO_TARGET else next(numbers) for label in value]
    allowed = isinstance(value, list) and all(
        _is_whole(label) or label == NO_TARGET for label in value
    )
    if not isinstance(value, list) or not allowed:
        raise ConfigurationError(
            f"{where}: must be a list of whole numbers from 0 on, or {NO_TARGET} for a token that "
            f"does not count, not {value!r:.80}"
        )
    words: Sequence[int | None] = sequence.words or range(len(sequence.tokens))
    count = len(set(words) - {None})
    if len(value) != count:
        raise ConfigurationError(
            f"{where}: {len(value)} labels; must be {count}, one for each word or token"
        )
    before = chain([None], words)
    return [
        NO_TARGET if word is None or word == previous else value[word]
        for previous, word in zip(before, words, strict=False)
    ]


def _client(where: str, row: Mapping[str, Any], roles: ColumnRoles) -> str:
    value = row.get(roles.client or "")
    if type(value) is not int and not isinstance(value, str):
        raise ConfigurationError(f"{where}: a client must be text or a whole number")
    if not 0 < len(str(value)) <= LONGEST_TEXT:
        raise ConfigurationError(f"{where}: a client must have 1 .. {LONGEST_TEXT} characters")
    return str(value)


def _is_whole(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**31


def _filled(rows: Sequence[Sequence[int]], width: int, filling: int) -> NDArray[np.int64]:
    result = np.full((len(rows), width), filling, dtype=np.int64)
    for place, row in enumerate(rows):
        result[place, : len(row)] = row
    return result
