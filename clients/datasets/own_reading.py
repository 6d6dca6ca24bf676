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
from itertools import chain
from pathlib import Path
from typing import Any

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
from ledger.io.home import naming
from ledger.io.user_code import as_configuration_error
from ledger.protocol.errors import ConfigurationError

X_TEST, Y_TEST = "x_test", "y_test"
_TRUTHS = {"0": False, "1": True, "false": False, "true": True}
_NAME_RULE = f"of 1 .. {LONGEST_TEXT} characters"
_ROWS_AT_ONCE = 64
_MOST_TOKENS = MAX_OWN_BYTES // 16

OwnColumns = tuple[dict[str, NDArray[Any]], ColumnRoles]
"""`x`, the `y` of tasks with labels and, where they are there, `client` and `is_test`."""


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
            raise ConfigurationError(f"{path}: LEAF is read as femnist, shakespeare or sent140")


def holds_sequences(layout: Layout, options: FileOptions) -> bool:
    """Return whether samples are texts or rows of tokens that may differ in length."""
    if layout.kind in {FileKind.JSON_LINES, FileKind.TEXTS}:
        return True
    is_table = layout.kind in {FileKind.TABLE, FileKind.SAVED}
    return is_table and (options.tokenizer is not None or options.task in PER_TOKEN)


def joined(where: str, parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return arrays one after the other."""
    shapes = sorted({part.shape[1:] for part in parts})
    if len(shapes) > 1:
        raise ConfigurationError(
            f"{where}: rows have shapes {', '.join(map(str, shapes))}, not one"
        )
    return np.concatenate(parts)


def _from_arrays(layout: Layout, options: FileOptions) -> OwnColumns:
    path, names = layout.path, layout.fields
    for name in ("features", "label"):
        if getattr(options, name) is not None:
            raise ConfigurationError(f"data.options.{name}: is for tables, and {path} holds arrays")
    roles = column_roles(str(path), sorted(names - {X_TEST, Y_TEST}), options, ARRAYS)
    has_test = not names.isdisjoint({X_TEST, Y_TEST})
    pairs = [(X, X_TEST)] if options.is_language else [(X, X_TEST), ("y", Y_TEST)]
    if names != ({*chain(*pairs)} if has_test else {X, *roles.columns}):
        needed, tests = (" and ".join(group) for group in zip(*pairs, strict=True))
        raise ConfigurationError(
            f"{path}: holds {quoted(sorted(names))}; must hold {needed}, and may hold client (or "
            f"writer, or the name of data.options.client) and is_test, or {tests}"
        )
    rules = {}
    for name, (dtype, shape) in stated_forms(path, MAX_OWN_BYTES).items():
        kind = np.dtype(dtype).kind
        if kind not in "biufU":
            raise ConfigurationError(f"{path}: {name} must hold numbers or text, not {dtype}")
        group = "test samples" if name in {X_TEST, Y_TEST} else "samples"
        stated = "<U" if kind == "U" else dtype
        rules[name] = ArrayRule(stated, (None,) * len(shape), rows=group, by_column=True)
    held = read_arrays(path, rules, MAX_OWN_BYTES)
    if not has_test:
        return roles.taken(str(path), held), roles
    samples = {one: joined(f"{path}: {one}", [held[one], held[test]]) for one, test in pairs}
    samples["is_test"] = np.repeat([False, True], [len(held[X]), len(held[X_TEST])])
    return samples, roles


def _from_lines(layout: Layout, options: FileOptions) -> OwnColumns:
    (path,) = layout.files
    if options.task in PER_TOKEN or options.tokenizer is not None:
        raise ConfigurationError(f"{path}: must be .jsonl, .txt, .parquet or .arrow")
    roles = column_roles(str(path), layout.names, options)
    width, row = len(roles.features), 0
    numbers = compact_array("f")
    texts: dict[str, list[str]] = {array: [] for array in roles.others}
    for row, fields in enumerate(read_csv(path, roles.columns), start=1):
        try:
            numbers.extend(map(float, fields[:width]))
        except ValueError:
            rule = "a number (which columns are features: data.options.features)"
            for name, text in zip(roles.features, fields, strict=False):
                _converted(f"{path}: row {row}: {name}", float, text, rule)
        for values, text in zip(texts.values(), fields[width:], strict=True):
            values.append(text)
        if len(numbers) * numbers.itemsize > MAX_OWN_BYTES:
            raise ConfigurationError(f"{path}: more than {MAX_OWN_BYTES} bytes of numbers")
    if not row:
        raise ConfigurationError(f"{path}: has a header and no row")
    x = np.frombuffer(numbers, dtype=np.float32).reshape(row, width)
    if not np.isfinite(x).all():
        at, column = np.argwhere(~np.isfinite(x))[0].tolist()
        raise ConfigurationError(f"{path}, row {at + 1}: {roles.features[column]} is not finite")
    is_regress, name_kind = options.task == "regress", (_name, _NAME_RULE)
    label = (float, "a number") if is_regress else (_whole, _label_rule(texts["y"]))
    kinds: dict[str, tuple[Callable[[str], Any], str]] = {
        "y": label if options.class_names is None else name_kind,
        "client": name_kind,
        "is_test": (lambda text: _TRUTHS[text.strip().lower()], "0, 1, true or false"),
    }
    columns = {"x": x}
    for array, name in roles.others.items():
        convert, rule = kinds[array]
        rows = enumerate(texts[array], start=1)
        found = [_converted(f"{path}: row {n}: {name}", convert, text, rule) for n, text in rows]
        columns[array] = np.array(found)
    return columns, roles


def _converted(where: str, convert: Callable[[str], Any], text: str, rule: str) -> Any:
    try:
        return convert(text)
    except (ValueError, KeyError):
        raise _refused(where, rule, text) from None


def _refused(where: str, rule: str, value: object) -> ConfigurationError:
    return ConfigurationError(f"{where}: must be {rule}, not {value!r:.80}")


def _whole(text: str) -> int:
    if not (text.strip().isdecimal() and text.isascii() and len(text) < 10):
        raise ValueError(text)
    return int(text)


def _name(text: str) -> str:
    if not 0 < len(text) <= LONGEST_TEXT:
        raise ValueError(text)
    return text


def _label_rule(labels: Sequence[str]) -> str:
    return f"a whole number from 0 on (text is numbered by {names_setting(labels)})"


def _from_arrow(layout: Layout, options: FileOptions) -> OwnColumns:
    roles = column_roles(str(layout.path), layout.names, options)
    held: dict[str, list[NDArray[Any]]] = {name: [] for name in roles.columns}
    is_test: list[bool] = []
    size = 0
    for file in layout.files:
        for batch in read_batches(file, roles.columns):
            for name in roles.columns:
                where = f"{file}: {name}, from row {len(is_test)}"
                held[name].append(values_of(where, batch.column(name)))
                size += held[name][-1].nbytes
            is_test += [layout.is_for_test(file)] * batch.num_rows
            if size > MAX_OWN_BYTES:
                raise ConfigurationError(f"{layout.path}: more than {MAX_OWN_BYTES} bytes")
    if not is_test:
        raise ConfigurationError(f"{layout.path}: has no rows")
    columns = {name: joined(f"{layout.path}: {name}", parts) for name, parts in held.items()}
    taken = roles.taken(str(layout.path), columns)
    if taken["x"].ndim == 1:
        taken["x"] = taken["x"][:, None]
    if layout.kind is FileKind.SAVED and roles.is_test is None and any(is_test):
        taken["is_test"] = np.array(is_test)
    return taken, roles


def _sequences(layout: Layout, options: FileOptions) -> OwnColumns:
    """Return texts and rows of tokens; a long text of a language task becomes several samples."""
    where = str(layout.path)
    names = {plain_name(name): name for name in layout.names}
    usual = ("text", "words", "tokens", "input_ids", "x")
    given = options.features[:1] if options.features else usual
    feature = next((names[n] for n in map(plain_name, given) if n in names), given[0])
    roles = column_roles(where, layout.names, options, (feature,))
    columns: dict[str, list[Any]] = {"x": []} | {array: [] for array in roles.others}
    size = 0
    for number, (row, is_test) in enumerate(_rows(layout, roles), start=1):
        at = f"{where}: row {number}"
        tokens, words = _tokens(f"{at}: {feature}", row.get(feature), options.tokenizer)
        size += len(tokens)
        sample: dict[str, Any] = {} if is_test is None else {"is_test": is_test}
        for array, name in roles.others.items():
            column, value = f"{at}: {name}", row.get(name)
            if array == "y":
                sample[array] = target = _target(column, value, words, options)
                size += len(target) if isinstance(target, list) else 0
            else:
                sample[array] = (_client if array == "client" else _flag)(column, value)
        pieces = _pieces(at, tokens, options)
        columns["x"] += pieces
        for array, value in sample.items():
            columns.setdefault(array, []).extend([value] * len(pieces))
        if size > _MOST_TOKENS:
            raise ConfigurationError(f"{where}: more than {_MOST_TOKENS} tokens and targets")
    if not columns["x"]:
        raise ConfigurationError(f"{where}: has no rows")
    return _filled(where, columns, options), roles


def _rows(layout: Layout, roles: ColumnRoles) -> Iterator[tuple[Mapping[str, Any], bool | None]]:
    """Yield each row, and whether the files themselves say that it is for the test."""
    has_split = layout.kind is FileKind.SAVED and roles.is_test is None
    for file in layout.files:
        match layout.kind:
            case FileKind.JSON_LINES:
                for number, row in enumerate(read_json_lines(file), start=1):
                    for name in {*CLIENTS, *TESTS} & row.keys() - layout.fields:
                        # Otherwise it would be passed over in silence.
                        raise ConfigurationError(f"{file}, row {number}: {name!r} is not in row 1")
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
                        with naming(file, OverflowError):  # a date that Python lacks
                            part = batch.slice(first, _ROWS_AT_ONCE).to_pylist()
                        yield from ((row, is_test) for row in part)


def _tokens(
    where: str, value: object, tokenizer: str | None
) -> tuple[list[int], Sequence[int | None]]:
    """Return the tokens of a text, of words or of tokens, and the word of each token."""
    if isinstance(value, list) and value and all(map(_is_whole, value)):
        return value, range(len(value))
    is_words = isinstance(value, list) and all(isinstance(word, str) for word in value)
    if not is_words and not isinstance(value, str):
        raise _refused(where, "a text, a list of words, or a list of tokens", value)
    if tokenizer is None:
        raise ConfigurationError(f"{where}: is text; set data.options.tokenizer (a file)")
    encode = tokenizer_at(tokenizer).encode
    with as_configuration_error(f"{where}: the tokenizer fails"):
        encoded = encode(value, is_pretokenized=is_words)
    tokens = list(encoded.ids)
    return tokens, list(encoded.word_ids) if is_words else range(len(tokens))


def _pieces(where: str, tokens: list[int], options: FileOptions) -> list[list[int]]:
    most, least = options.length, 2 if options.task == "causal-lm" else 1
    if len(tokens) < least:
        raise ConfigurationError(f"{where}: {len(tokens)} tokens; must be at least {least}")
    if most is None or len(tokens) <= most:
        return [tokens]
    if not options.is_language:
        raise ConfigurationError(f"{where}: {len(tokens)} tokens, over data.options.length {most}")
    pieces = [tokens[start : start + most] for start in range(0, len(tokens), most)]
    return [piece for piece in pieces if len(piece) >= least]


def _target(where: str, value: Any, words: Sequence[int | None], options: FileOptions) -> Any:
    names = options.class_names
    if options.task == "regress":
        numbers: list[Any] = value if isinstance(value, list) else [value]
        if not numbers or not all(type(number) in {int, float} for number in numbers):
            raise _refused(where, "a number or a list of them", value)
        try:
            return [float(number) for number in numbers]
        except OverflowError:
            raise ConfigurationError(f"{where}: is too large a number") from None
    if options.task == "token-classify":
        return _token_targets(where, value, words, names)
    if names is not None and type(value) in {int, str} and len(str(value)) <= LONGEST_TEXT:
        return str(value)
    if names is not None or not _is_whole(value):
        raise _refused(where, _label_rule([]), value)
    return value


def _token_targets(
    where: str, value: object, words: Sequence[int | None], names: Sequence[str] | None
) -> list[int]:
    """Return the class of each token: only the first token of a word has one."""
    labels: list[Any] = value if isinstance(value, list) else [None]
    if names is not None and all(type(label) in {int, str} for label in labels):
        named = [str(label) for label in labels if label != NO_TARGET]
        numbers = iter(class_numbers(where, np.array(named, dtype=np.str_), names).tolist())
        labels = [label if label == NO_TARGET else next(numbers) for label in labels]
    if not all(_is_whole(label) or label == NO_TARGET for label in labels):
        raise _refused(where, f"a list of whole numbers from 0 on, or {NO_TARGET}", value)
    count = len(set(words) - {None})
    if len(labels) != count:
        raise ConfigurationError(f"{where}: {len(labels)} labels for {count} words or tokens")
    return [
        NO_TARGET if word is None or word == previous else labels[word]
        for previous, word in zip(chain([None], words), words, strict=False)
    ]


def _client(where: str, value: object) -> str:
    if type(value) is not int and not isinstance(value, str):
        raise ConfigurationError(f"{where}: a client must be text or a whole number")
    return str(_converted(where, _name, str(value), _NAME_RULE))


def _flag(where: str, value: Any) -> bool:
    if type(value) not in {bool, int} or value not in {0, 1}:
        raise _refused(where, "true or false, or 1 or 0", value)
    return bool(value)


def _is_whole(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**31


def _filled(
    where: str, columns: Mapping[str, list[Any]], options: FileOptions
) -> dict[str, NDArray[Any]]:
    """Return the columns of sequences as arrays: `x` is int64 of shape (n, longest)."""
    width, count = max(map(len, columns["x"])), len(columns["x"])
    if count * width > _MOST_TOKENS:
        raise ConfigurationError(
            f"{where}: {count} samples padded to {width} tokens are more than {_MOST_TOKENS} "
            "tokens; set data.options.length"
        )
    longest = max(map(len, columns.get("client", ())), default=0)
    if 4 * count * longest > MAX_OWN_BYTES:
        raise ConfigurationError(
            f"{where}: {count} samples with client names of {longest} characters need more "
            f"than {MAX_OWN_BYTES} bytes"
        )
    if options.task == "regress" and len(set(map(len, columns["y"]))) > 1:
        raise ConfigurationError(f"{where}: label rows must have one length")
    kinds = {"client": np.str_, "is_test": np.bool_, "y": np.int64}
    if options.task == "regress":
        kinds["y"] = np.float64
    elif options.class_names is not None:
        kinds["y"] = np.str_
    padding = {"x": NO_TOKEN} | ({"y": NO_TARGET} if options.task == "token-classify" else {})
    arrays: dict[str, NDArray[Any]] = {}
    for name, rows in columns.items():
        if name not in padding:
            arrays[name] = np.array(rows, dtype=kinds[name])
            continue
        arrays[name] = np.full((count, width), padding[name], dtype=np.int64)
        for place, row in enumerate(rows):
            arrays[name][place, : len(row)] = row
    return arrays
