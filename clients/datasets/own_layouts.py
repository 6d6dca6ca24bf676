"""Layouts of a user's own data: arrays by name, or tables whose columns have roles.

Arrays (`.npz`, `.safetensors`) are named `x`, `y`, `client` (or `writer`) and `is_test`; instead of
`is_test` there may be `x_test` and `y_test`, as in a worker's own file (`own`). Tables (`.csv`,
`.parquet`, a folder of `datasets.save_to_disk`) have columns of these roles under any name.
"""

from __future__ import annotations

from array import array as compact_array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clients.datasets.federated_data import PER_TOKEN
from clients.datasets.files.archives import (
    LONGEST_TEXT,
    MAX_OWN_BYTES,
    ArrayRule,
    read_any_tensors,
    read_arrays,
    stated_forms,
)
from clients.datasets.files.layout import FileKind, Layout, layout_of
from clients.datasets.files.tables import TEST, opened, quoted, read_columns, read_csv, values_of
from clients.datasets.own import names_setting
from clients.datasets.own_columns import ARRAYS, ColumnRoles, FileOptions, X, column_roles
from clients.datasets.own_texts import read_texts
from ledger.protocol.errors import ConfigurationError

X_TEST, Y_TEST = "x_test", "y_test"
_TRUTHS = {"0": False, "1": True, "false": False, "true": True}


def read_samples(path: Path, options: FileOptions) -> tuple[dict[str, NDArray[Any]], ColumnRoles]:
    """Return x, y and, where they are there, client and is_test of a file or folder, with roles."""
    layout = layout_of(path)
    if holds_sequences(layout, options):
        return read_texts(layout, options)
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


def _from_arrays(
    layout: Layout, options: FileOptions
) -> tuple[dict[str, NDArray[Any]], ColumnRoles]:
    for name in ("features", "label"):
        if getattr(options, name) is not None:
            raise ConfigurationError(
                f"data.options.{name}: is for tables; the arrays of {layout.path} are {X} and y"
            )
    roles = column_roles(
        str(layout.path), sorted(layout.fields - {X_TEST, Y_TEST}), options, ARRAYS
    )
    has_test = not layout.fields.isdisjoint({X_TEST, Y_TEST})
    targets = set() if options.is_language else {"y", Y_TEST}
    names = {X, X_TEST} | targets if has_test else {X, *roles.columns}
    if names != layout.fields:
        needed = X if options.is_language else f"{X} and y"
        tests = X_TEST if options.is_language else f"{X_TEST} and {Y_TEST}"
        raise ConfigurationError(
            f"{layout.path}: holds {quoted(sorted(layout.fields))}; must hold {needed}, and may "
            f"hold client (or writer, or the name of data.options.client) and is_test, or {tests}"
        )
    is_tensors = layout.kind is FileKind.TENSORS
    held = read_any_tensors(layout.path) if is_tensors else _from_archive(layout.path)
    if not has_test:
        return roles.taken(str(layout.path), held), roles
    is_test = np.repeat([False, True], [len(held[X]), len(held[X_TEST])])
    x = joined(f"{layout.path}: {X}", [held[X], held[X_TEST]])
    samples = {"x": x, "is_test": is_test}
    if not options.is_language:
        samples["y"] = joined(f"{layout.path}: y", [held["y"], held[Y_TEST]])
    return samples, roles


def _from_archive(path: Path) -> dict[str, NDArray[Any]]:
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


def _from_lines(
    layout: Layout, options: FileOptions
) -> tuple[dict[str, NDArray[Any]], ColumnRoles]:
    (path,) = layout.files
    if options.task in PER_TOKEN or options.tokenizer is not None:
        raise ConfigurationError(
            f"{path}: a table of numbers; texts and tokens are in a .jsonl, .txt or .parquet file, "
            f"or a folder of datasets.save_to_disk"
        )
    roles = column_roles(str(path), layout.names, options)
    width = len(roles.features)
    numbers = compact_array("f")
    lists: dict[str, list[str]] = {name: [] for name in roles.columns[width:]}
    row = 0
    for row, fields in enumerate(read_csv(path, roles.columns), start=1):
        try:
            numbers.extend(map(float, fields[:width]))
        except ValueError:
            name, text = next(
                (name, text)
                for name, text in zip(roles.features, fields, strict=False)
                if not _is_number(text)
            )
            raise ConfigurationError(
                f"{path}: row {row}: {name}: {text[:80]!r} is no number (which columns are "
                f"features: data.options.features)"
            ) from None
        for values, text in zip(lists.values(), fields[width:], strict=True):
            values.append(text)
        if len(numbers) * numbers.itemsize > MAX_OWN_BYTES:
            raise ConfigurationError(f"{path}: more than {MAX_OWN_BYTES} bytes of numbers")
    if not row:
        raise ConfigurationError(f"{path}: has a header and no row")
    x = np.frombuffer(numbers, dtype=np.float32).reshape(row, width)
    if not np.isfinite(x).all():
        at, column = np.argwhere(~np.isfinite(x))[0].tolist()
        raise ConfigurationError(
            f"{path}: row {at + 1}: {roles.features[column]}: is not finite (NaN, infinite, or too "
            f"large for float32)"
        )
    held: dict[str, NDArray[Any]] = {"x": x, "y": _labels(path, lists, roles, options)}
    if roles.client is not None:
        held["client"] = _short(path, roles.client, lists[roles.client], "client")
    if roles.is_test is not None:
        held["is_test"] = _truths(path, roles.is_test, lists[roles.is_test])
    return held, roles


def _from_arrow(
    layout: Layout, options: FileOptions
) -> tuple[dict[str, NDArray[Any]], ColumnRoles]:
    roles = column_roles(str(layout.path), layout.names, options)
    held: dict[str, list[NDArray[Any]]] = {name: [] for name in roles.columns}
    is_test, size, rows = [], 0, 0
    for file in layout.files:
        for batch in _batches(layout, file, roles.columns):
            for name in roles.columns:
                where = f"{file}: {name}, from row {rows}"
                held[name].append(values_of(where, batch.column(name)))
                size += held[name][-1].nbytes
            rows += batch.num_rows
            is_test += [layout.path != file.parent and file.parent.name == TEST] * batch.num_rows
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
    return taken, roles


def _batches(layout: Layout, file: Path, columns: Sequence[str]) -> Iterator[Any]:
    """Yield the validated batches of an Arrow or Parquet file."""
    if layout.kind is FileKind.TABLE:
        yield from read_columns(file, columns)
        return
    with opened(file) as stream:
        for batch in stream:
            batch.validate(full=True)
            yield batch.select(list(columns))


def joined(where: str, parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return arrays one after the other."""
    if len({part.shape[1:] for part in parts}) > 1:
        shapes = ", ".join(str(shape) for shape in sorted({part.shape[1:] for part in parts}))
        raise ConfigurationError(f"{where}: rows of shapes {shapes}; must be of one")
    return np.concatenate(parts)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _labels(
    path: Path, lists: dict[str, list[str]], roles: ColumnRoles, options: FileOptions
) -> NDArray[Any]:
    assert roles.label is not None, "only sequences go without a label"
    texts = lists[roles.label]
    if options.class_names is not None:
        return _short(path, roles.label, texts, "label")
    as_labels = _numbers if options.task == "regress" else _whole
    return as_labels(path, roles.label, texts)


def _whole(path: Path, name: str, texts: list[str]) -> NDArray[np.int64]:
    for row, text in enumerate(texts, start=1):
        if not (text.strip().isdecimal() and text.isascii() and len(text) < 10):
            raise ConfigurationError(
                f"{path}: row {row}: {name}: a label must be a whole number from 0 on, not "
                f"{text[:80]!r}; text is numbered by {names_setting(texts)}"
            )
    return np.array(texts, dtype=np.int64)


def _numbers(path: Path, name: str, texts: list[str]) -> NDArray[np.float64]:
    for row, text in enumerate(texts, start=1):
        if not _is_number(text):
            raise ConfigurationError(
                f"{path}: row {row}: {name}: a target must be a number, not {text[:80]!r}"
            )
    return np.array(texts, dtype=np.float64)


def _short(path: Path, name: str, texts: list[str], role: str) -> NDArray[Any]:
    for row, text in enumerate(texts, start=1):
        if not 0 < len(text) <= LONGEST_TEXT:
            raise ConfigurationError(
                f"{path}: row {row}: {name}: a {role} must have 1 .. {LONGEST_TEXT} characters"
            )
    return np.array(texts, dtype=np.str_)


def _truths(path: Path, name: str, texts: list[str]) -> NDArray[np.bool_]:
    for row, text in enumerate(texts, start=1):
        if text.strip().lower() not in _TRUTHS:
            raise ConfigurationError(
                f"{path}: row {row}: {name}: must be 0, 1, true or false, not {text[:80]!r}"
            )
    return np.array([_TRUTHS[text.strip().lower()] for text in texts])
