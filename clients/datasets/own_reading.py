"""Layouts of a user's own data: arrays by name, tables whose columns have roles, and sequences.

Arrays (`.npz`, `.safetensors`) are named `x`, `y`, `client` (or `writer`) and `is_test`; instead of
`is_test` there may be `x_test` and `y_test`, as in a worker's own file (`own`). Tables (`.csv`,
`.parquet`, a folder of `datasets.save_to_disk`) have columns of these roles under any name.

A sequence is a text, a list of words, or a list of tokens. Texts and words become tokens by a
`tokenizer.json`, the file of Hugging Face's `tokenizers`; nothing in it is executed. Rows that are
shorter than the longest end with `NO_TOKEN`.
"""

from __future__ import annotations

from array import array as compact_array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clients.datasets.federated_data import NO_TARGET, NO_TOKEN, PER_TOKEN
from clients.datasets.files.archives import (
    LONGEST_TEXT,
    MAX_OWN_BYTES,
    ArrayRule,
    read_arrays,
    stated_forms,
)
from clients.datasets.files.layout import FileKind, Layout, layout_of
from clients.datasets.files.tables import (
    LONGEST_TEXT_LINE,
    quoted,
    read_batches,
    read_csv,
    read_json_lines,
    read_lines,
    values_of,
)
from clients.datasets.own import class_numbers, names_setting, plain_name
from clients.datasets.own_columns import (
    ARRAYS,
    CLIENTS,
    TESTS,
    ColumnRoles,
    FileOptions,
    X,
    column_roles,
    tokenizer_at,
)
from ledger.io.user_code import as_configuration_error
from ledger.protocol.errors import ConfigurationError

X_TEST, Y_TEST = "x_test", "y_test"
SEQUENCES = ("text", "words", "tokens", "input_ids", "x")
"""Names that the column of the sequences has where the options name none."""
_TRUTHS = {"0": False, "1": True, "false": False, "true": True}
_ROWS_AT_ONCE = 64
_MOST_TOKENS = MAX_OWN_BYTES // 16


class OwnColumns(NamedTuple):
    """What a file or folder holds.

    Attributes:
        held: `x`, the `y` of tasks with labels and, where they are there, `client` and `is_test`.
    """

    held: dict[str, NDArray[Any]]
    roles: ColumnRoles


def read_samples(path: Path, options: FileOptions) -> OwnColumns:
    """Return the samples of a file or folder."""
    layout = layout_of(path)
    if holds_sequences(layout, options):
        return _sequences(layout, options)
    match layout.kind:
        case FileKind.ARRAYS | FileKind.TENSORS:
            return _from_arrays(layout, options)
        case FileKind.LINES:
            return _from_lines(layout, options)
        case FileKind.TABLE | FileKind.SAVED:
            return _from_arrow(layout, options)
        case _:
            raise ConfigurationError(
                f"{path}: a folder of LEAF is read as femnist, shakespeare or sent140"
            )


def holds_sequences(layout: Layout, options: FileOptions) -> bool:
    """Return whether samples are texts or rows of tokens that may differ in length."""
    if layout.kind in {FileKind.JSON_LINES, FileKind.TEXTS}:
        return True
    is_table = layout.kind in {FileKind.TABLE, FileKind.SAVED}
    return is_table and (options.tokenizer is not None or options.task in PER_TOKEN)


def joined(where: str, parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return arrays one after the other."""
    if len({part.shape[1:] for part in parts}) > 1:
        shapes = ", ".join(str(shape) for shape in sorted({part.shape[1:] for part in parts}))
        raise ConfigurationError(f"{where}: rows of shapes {shapes}; must be of one")
    return np.concatenate(parts)


def _from_arrays(layout: Layout, options: FileOptions) -> OwnColumns:
    path, names = layout.path, layout.fields
    for name in ("features", "label"):
        if getattr(options, name) is not None:
            raise ConfigurationError(
                f"data.options.{name}: is for tables; the arrays of {path} are {X} and y"
            )
    roles = column_roles(str(path), sorted(names - {X_TEST, Y_TEST}), options, ARRAYS)
    has_test = not names.isdisjoint({X_TEST, Y_TEST})
    pairs = [(X, X_TEST)] if options.is_language else [(X, X_TEST), ("y", Y_TEST)]
    if names != ({*chain(*pairs)} if has_test else {X, *roles.columns}):
        needed, tests = (" and ".join(group) for group in zip(*pairs, strict=True))
        raise ConfigurationError(
            f"{path}: holds {quoted(sorted(names))}; must hold {needed}, and may hold client (or "
            f"writer, or the name of data.options.client) and is_test, or {tests}"
        )
    held = _held_arrays(path)
    if not has_test:
        return OwnColumns(roles.taken(str(path), held), roles)
    samples = {one: joined(f"{path}: {one}", [held[one], held[test]]) for one, test in pairs}
    samples["is_test"] = np.repeat([False, True], [len(held[X]), len(held[X_TEST])])
    return OwnColumns(samples, roles)


def _held_arrays(path: Path) -> dict[str, NDArray[Any]]:
    rules = {}
    for name, (dtype, shape) in stated_forms(path, MAX_OWN_BYTES).items():
        kind = np.dtype(dtype).kind
        if kind not in "biufU":
            raise ConfigurationError(
                f"{path}: {name}: must hold numbers or text, holds {dtype} (nothing is unpickled)"
            )
        free = tuple(None for _ in shape)
        group = "test samples" if name in {X_TEST, Y_TEST} else "samples"
        rules[name] = ArrayRule("<U" if kind == "U" else dtype, free, rows=group, by_column=True)
    return read_arrays(path, rules, MAX_OWN_BYTES)


def _from_lines(layout: Layout, options: FileOptions) -> OwnColumns:
    (path,) = layout.files
    if options.task in PER_TOKEN or options.tokenizer is not None:
        raise ConfigurationError(
            f"{path}: texts and tokens are in .jsonl, .txt, .parquet or Arrow files"
        )
    roles = column_roles(str(path), layout.names, options)
    width = len(roles.features)
    numbers = compact_array("f")
    texts: dict[str, list[str]] = {name: [] for name in roles.columns[width:]}
    row = 0
    for row, fields in enumerate(read_csv(path, roles.columns), start=1):
        try:
            numbers.extend(map(float, fields[:width]))
        except ValueError:
            for name, text in zip(roles.features, fields, strict=False):
                _FEATURE.value(f"{path}: row {row}: {name}", text)
        for values, text in zip(texts.values(), fields[width:], strict=True):
            values.append(text)
        if len(numbers) * numbers.itemsize > MAX_OWN_BYTES:
            raise ConfigurationError(f"{path}: more than {MAX_OWN_BYTES} bytes of numbers")
    if not row:
        raise ConfigurationError(f"{path}: has a header and no row")
    x = np.frombuffer(numbers, dtype=np.float32).reshape(row, width)
    if not np.isfinite(x).all():
        at, column = np.argwhere(~np.isfinite(x))[0].tolist()
        raise ConfigurationError(
            f"{path}: row {at + 1}: {roles.features[column]}: is not finite in float32"
        )
    assert roles.label is not None, "only sequences go without a label"
    label = _NUMBER if options.task == "regress" else _label(texts[roles.label])
    kinds = (
        ("y", roles.label, _NAME if options.class_names is not None else label),
        ("client", roles.client, _NAME),
        ("is_test", roles.is_test, _TRUTH),
    )
    return OwnColumns(
        {"x": x} | {role: kind.array(path, n, texts[n]) for role, n, kind in kinds if n}, roles
    )


@dataclass(frozen=True, slots=True)
class _Field:
    """A column of a CSV file: how its texts are converted, and the rule for them."""

    convert: Callable[[str], Any]
    rule: str

    def value(self, where: str, text: str) -> Any:
        try:
            return self.convert(text)
        except (ValueError, KeyError):
            raise ConfigurationError(f"{where}: must be {self.rule}, not {text[:80]!r}") from None

    def array(self, path: Path, name: str, texts: Sequence[str]) -> NDArray[Any]:
        values = [self.value(f"{path}: row {n}: {name}", text) for n, text in enumerate(texts, 1)]
        return np.array(values)


def _whole(text: str) -> int:
    if not (text.strip().isdecimal() and text.isascii() and len(text) < 10):
        raise ValueError(text)
    return int(text)


def _label(labels: Sequence[str]) -> _Field:
    rule = f"a whole number from 0 on (text is numbered by {names_setting(labels)})"
    return _Field(_whole, rule)


def _name(text: str) -> str:
    if not 0 < len(text) <= LONGEST_TEXT:
        raise ValueError(text)
    return text


_FEATURE = _Field(float, "a number (which columns are features: data.options.features)")
_NUMBER = _Field(float, "a number")
_NAME = _Field(_name, f"of 1 .. {LONGEST_TEXT} characters")
_TRUTH = _Field(lambda text: _TRUTHS[text.strip().lower()], "0, 1, true or false")


def _from_arrow(layout: Layout, options: FileOptions) -> OwnColumns:
    roles = column_roles(str(layout.path), layout.names, options)
    held: dict[str, list[NDArray[Any]]] = {name: [] for name in roles.columns}
    is_test, size, rows = [], 0, 0
    for file in layout.files:
        for batch in read_batches(file, roles.columns):
            for name in roles.columns:
                where = f"{file}: {name}, from row {rows}"
                held[name].append(values_of(where, batch.column(name)))
                size += held[name][-1].nbytes
            rows += batch.num_rows
            is_test += [layout.is_for_test(file)] * batch.num_rows
            if size > MAX_OWN_BYTES:
                raise ConfigurationError(
                    f"{layout.path}: more than {MAX_OWN_BYTES} bytes of values"
                )
    if not rows:
        raise ConfigurationError(f"{layout.path}: has no rows")
    columns = {name: joined(f"{layout.path}: {name}", parts) for name, parts in held.items()}
    taken = roles.taken(str(layout.path), columns)
    if taken["x"].ndim == 1:
        taken["x"] = taken["x"][:, None]
    if layout.kind is FileKind.SAVED and roles.is_test is None and any(is_test):
        taken["is_test"] = np.array(is_test)
    return OwnColumns(taken, roles)


def _sequences(layout: Layout, options: FileOptions) -> OwnColumns:
    """Return texts and rows of tokens: `x` is int64 of shape (n, longest)."""
    where = str(layout.path)
    names = {plain_name(name): name for name in layout.names}
    given = [options.features[0]] if options.features else [*SEQUENCES]
    feature = next((names[n] for n in map(plain_name, given) if n in names), given[0])
    roles = column_roles(where, layout.names, options, (feature,))
    samples = _Samples(where, roles, options)
    number = 0
    for number, (row, is_test) in enumerate(_rows(layout, roles), start=1):
        samples.add(f"{where}: row {number}", row, is_test=is_test)
    if not number:
        raise ConfigurationError(f"{where}: has no rows")
    return OwnColumns(samples.arrays(), roles)


def _rows(layout: Layout, roles: ColumnRoles) -> Iterator[tuple[Mapping[str, Any], bool | None]]:
    """Yield each row, and whether the files themselves say that it is for the test."""
    has_split = layout.kind is FileKind.SAVED and roles.is_test is None
    for file in layout.files:
        match layout.kind:
            case FileKind.JSON_LINES:
                for number, row in enumerate(read_json_lines(file), start=1):
                    for name in {*CLIENTS, *TESTS} & row.keys() - layout.fields:
                        # Otherwise it would be passed over in silence.
                        raise ConfigurationError(
                            f"{file}: row {number}: has {name!r}, and the first row has none"
                        )
                    yield row, None
            case FileKind.TEXTS:
                for line in read_lines(file, LONGEST_TEXT_LINE):
                    if text := line.strip():
                        yield {"text": text, "client": file.stem}, None
            case _:
                is_test = layout.is_for_test(file) if has_split else None
                for batch in read_batches(file, roles.columns):
                    # A few rows at a time: one long text may stand in all of them.
                    for first in range(0, batch.num_rows, _ROWS_AT_ONCE):
                        part = batch.slice(first, _ROWS_AT_ONCE).to_pylist()
                        yield from ((row, is_test) for row in part)


@dataclass(frozen=True, slots=True)
class _Sequence:
    """Tokens of a sample, and the word that each is a part of; None of rows of tokens."""

    tokens: list[int]
    words: list[int | None] | None = None


class _Samples:
    """Samples of sequences, as they are read."""

    def __init__(self, where: str, roles: ColumnRoles, options: FileOptions) -> None:
        self._where, self._roles, self._options = where, roles, options
        self._tokens: list[list[int]] = []
        self._targets: list[Any] = []
        self._clients: list[str] = []
        self._is_test: list[bool] = []
        self._size = 0

    def add(self, where: str, row: Mapping[str, Any], *, is_test: bool | None) -> None:
        """Add a row's samples: several of a long text of a language task."""
        roles, (feature,) = self._roles, self._roles.features
        sequence = _sequence(f"{where}: {feature}", row.get(feature), self._options.tokenizer)
        pieces = self._pieces(where, sequence.tokens)
        self._tokens += pieces
        self._size += len(sequence.tokens)
        if roles.label is not None:
            target = self._target(f"{where}: {roles.label}", row.get(roles.label), sequence)
            self._targets += [target] * len(pieces)
            self._size += len(target) if isinstance(target, list) else 0
        if roles.client is not None:
            client = _client(f"{where}: {roles.client}", row.get(roles.client))
            self._clients += [client] * len(pieces)
        if roles.is_test is not None:
            is_test = _flag(f"{where}: {roles.is_test}", row.get(roles.is_test))
        if is_test is not None:
            self._is_test += [is_test] * len(pieces)
        if self._size > _MOST_TOKENS:
            raise ConfigurationError(f"{self._where}: more than {_MOST_TOKENS} tokens and targets")

    def arrays(self) -> dict[str, NDArray[Any]]:
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
                f"{self._where}: {self._roles.label}: rows of different lengths; must be of one"
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

    def _target(self, where: str, value: Any, sequence: _Sequence) -> Any:
        names = self._options.class_names
        if self._options.task == "regress":
            return _regressed(where, value)
        if self._options.task == "token-classify":
            return _token_targets(where, value, sequence, names)
        if names is not None and type(value) in {int, str} and len(str(value)) <= LONGEST_TEXT:
            return str(value)
        if names is not None or not _is_whole(value):
            raise ConfigurationError(f"{where}: must be {_label([]).rule}, not {value!r:.80}")
        return value


def _regressed(where: str, value: object) -> list[float]:
    numbers: list[Any] = value if isinstance(value, list) else [value]
    if not numbers or not all(type(number) in {int, float} for number in numbers):
        raise ConfigurationError(f"{where}: must be a number or a list of them, not {value!r:.80}")
    try:
        return [float(number) for number in numbers]
    except OverflowError:
        raise ConfigurationError(f"{where}: is too large a number") from None


def _token_targets(
    where: str, value: object, sequence: _Sequence, names: Sequence[str] | None
) -> list[int]:
    """Return the class of each token: of a word that of its first token alone."""
    labels: list[Any] = value if isinstance(value, list) else [None]
    if names is not None and all(type(label) in {int, str} for label in labels):
        named = [str(label) for label in labels if label != NO_TARGET]
        numbers = iter(class_numbers(where, np.array(named, dtype=np.str_), names).tolist())
        labels = [label if label == NO_TARGET else next(numbers) for label in labels]
    if not all(_is_whole(label) or label == NO_TARGET for label in labels):
        raise ConfigurationError(
            f"{where}: must be a list of whole numbers from 0 on, or {NO_TARGET}, not {value!r:.80}"
        )
    words: Sequence[int | None] = sequence.words or range(len(sequence.tokens))
    count = len(set(words) - {None})
    if len(labels) != count:
        raise ConfigurationError(
            f"{where}: {len(labels)} labels; must be {count}, one for each word or token"
        )
    return [
        NO_TARGET if word is None or word == previous else labels[word]
        for previous, word in zip(chain([None], words), words, strict=False)
    ]


def _client(where: str, value: object) -> str:
    if type(value) is not int and not isinstance(value, str):
        raise ConfigurationError(f"{where}: a client must be text or a whole number")
    if not 0 < len(str(value)) <= LONGEST_TEXT:
        raise ConfigurationError(f"{where}: must be {_NAME.rule}")
    return str(value)


def _flag(where: str, value: Any) -> bool:
    if type(value) not in {bool, int} or value not in {0, 1}:
        raise ConfigurationError(f"{where}: must be true or false, or 1 or 0, not {value!r:.80}")
    return bool(value)


def _is_whole(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**31


def _filled(rows: Sequence[Sequence[int]], width: int, filling: int) -> NDArray[np.int64]:
    result = np.full((len(rows), width), filling, dtype=np.int64)
    for place, row in enumerate(rows):
        result[place, : len(row)] = row
    return result


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
            f"{where}: is text; set data.options.tokenizer to the path of a tokenizer.json"
        )
    encode = tokenizer_at(tokenizer).encode
    with as_configuration_error(f"{where}: the tokenizer fails"):
        encoded = encode(value, is_pretokenized=is_words)
    return _Sequence(list(encoded.ids), list(encoded.word_ids) if is_words else None)
