"""How a user's own data were read: features, labels and clients, and what may be a mistake."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clients.datasets.federated_data import NO_TARGET, PER_TOKEN
from clients.datasets.files.lines import MOST_SHOWN, quoted
from clients.datasets.own import plain_name
from clients.datasets.own_columns import ColumnRoles, FileOptions
from clients.datasets.own_targets import class_count
from clients.datasets.records import Reading, Records

_EXACT = 2**24
"""float32 holds each whole number up to this one."""
_FEWEST_ROWS = 4
"""Of a column that counts them: three numbers in a row are often chance."""


def reading_of(
    x: NDArray[Any], records: Records, options: FileOptions, roles: ColumnRoles, *, may_end: bool
) -> Reading:
    """Return how validated samples were read.

    Args:
        may_end: whether the inputs are texts or rows of tokens.
    """
    roles = ColumnRoles(
        tuple(map(plain_name, roles.features)),
        roles.label and plain_name(roles.label),
        roles.client and plain_name(roles.client),
        roles.is_test,
    )
    lines = (
        _inputs_line(x, records.x, roles),
        _labels_line(records.y, options, roles),
        _clients_line(records, roles),
    )
    notes = [*_column_notes(records.x, roles.features)]
    if not may_end:
        notes += _single_note(x, records.x, options, roles)
    outputs = None
    if not options.is_language:
        outputs = class_count(options.task or "classify", records.y, options.outputs, None)
        notes += _label_notes(records.y, outputs, options, roles)
    return Reading(roles.features, outputs, lines, (*notes, *_client_notes(records.owners)))


def _inputs_line(x: NDArray[Any], stored: NDArray[Any], roles: ColumnRoles) -> str:
    count = "1 feature" if len(roles.features) == 1 else f"{len(roles.features)} features"
    return f"{count}: {quoted(roles.features)} ({x.dtype}), taken for {_content(x, stored)}"


def _content(x: NDArray[Any], stored: NDArray[Any]) -> str:
    if stored.dtype == np.uint8:
        return "pixels, divided by 255"
    if stored.dtype == np.int64:
        return f"tokens, 0 to {stored.max()}"
    return "numbers" if x.dtype.kind == "f" else "numbers, not scaled"


def _labels_line(y: NDArray[Any], options: FileOptions, roles: ColumnRoles) -> str:
    if roles.label is None:
        return "labels: none; the tokens are the targets"
    if options.task == "regress":
        return f"target: {roles.label!r}, {y.shape[1]} model outputs"
    seen, outputs = _seen(y, options), class_count("classify", _counted(y, options), None, None)
    outputs = options.outputs or outputs
    named = f": {quoted(options.class_names)}" if options.class_names else ""
    return f"label: {roles.label!r}, {len(seen)} classes seen, {outputs} model outputs{named}"


def _clients_line(records: Records, roles: ColumnRoles) -> str:
    if records.owner is None:
        return "clients: none named; the partition divides the samples"
    return f"clients: {roles.client!r}, {len(records.owners)} of them"


def _counted(y: NDArray[Any], options: FileOptions) -> NDArray[Any]:
    return y[y != NO_TARGET] if options.task in PER_TOKEN else y


def _seen(y: NDArray[Any], options: FileOptions) -> list[int]:
    labels: list[int] = np.unique(_counted(y, options)).tolist()
    return labels


def _column_notes(x: NDArray[Any], features: Sequence[str]) -> Iterator[str]:
    """Yield a note on each column of a table that counts rows or that float32 rounds."""
    if x.ndim != 2 or not (x.dtype == np.float32 or x.shape[1] == 1):
        return
    rows, low, high = len(x), x.min(axis=0).astype(np.float64), x.max(axis=0).astype(np.float64)
    counts = (high - low == rows - 1) & (rows >= _FEWEST_ROWS)
    rounds = np.maximum(abs(low), abs(high)) >= _EXACT
    for column in np.flatnonzero(counts | rounds).tolist():
        values, name = x[:, column], _column_name(column, x.shape[1], features)
        if not (values == np.floor(values)).all():
            continue
        if rounds[column]:
            yield _rounded(f"feature {name}", high[column])
        elif len(np.unique(values)) == rows:
            yield (
                f"feature {name} counts the rows, {low[column]:.0f} to {high[column]:.0f}: if it "
                f"is an index, leave it out"
            )


def _rounded(subject: str, most: float) -> str:
    return (
        f"{subject} holds whole numbers beyond 2^24, up to {most:.0f}: float32, the type of a "
        f"model's numbers, rounds them"
    )


def _column_name(column: int, width: int, features: Sequence[str]) -> str:
    if len(features) == width:
        return repr(features[column])
    return f"{column} of {features[0]!r}"


def _single_note(
    x: NDArray[Any], stored: NDArray[Any], options: FileOptions, roles: ColumnRoles
) -> Iterator[str]:
    if stored.shape[1:] == (1,) and stored.dtype != np.float32 and options.inputs is None:
        yield (
            f"feature {roles.features[0]!r} is one column of whole numbers ({x.dtype}), and is "
            f"taken for {_content(x, stored)}: data.options.inputs=numbers takes it for a number"
        )


def _label_notes(
    y: NDArray[Any], outputs: int, options: FileOptions, roles: ColumnRoles
) -> Iterator[str]:
    if options.task == "regress":
        if (y == np.floor(y)).all() and abs(y).max() >= _EXACT:
            yield _rounded(f"target {roles.label!r}", float(y.max()))
        return
    seen = _seen(y, options)
    if options.outputs is None and len(seen) < outputs:
        setting = ""
        if len(seen) <= MOST_SHOWN:
            setting = f": data.options.classes={json.dumps([*map(str, seen)])} numbers them from 0"
        yield (
            f"{len(seen)} classes are seen, {seen[0]} to {seen[-1]}, and the model gets {outputs} "
            f"outputs, 0 to {outputs - 1}{setting}"
        )


def _client_notes(owners: Sequence[str]) -> Iterator[str]:
    """Yield a note on names of clients that differ in blanks or Unicode form alone."""
    alike: dict[str, list[str]] = defaultdict(list)
    for name in owners:
        alike[plain_name(name)].append(name)
    groups = [names for names in alike.values() if len(names) > 1]
    if groups:
        more = f" ({len(groups) - 1} more such names)" if len(groups) > 1 else ""
        yield (
            f"clients {', '.join(map(ascii, groups[0]))} differ in blanks or Unicode form alone, "
            f"and count as {len(groups[0])}{more}"
        )
