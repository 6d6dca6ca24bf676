"""`file`: a user's own data in a simulation, from one file or folder, or from arrays.

A sample is a row: its inputs, its label, and optionally its client and whether it is for the test.
Nothing is unpickled, and no number is guessed: what does not fit is refused with its file and name.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict

from clients.datasets.data_set import DataSet
from clients.datasets.federated_data import (
    LANGUAGE,
    NO_TARGET,
    DataForm,
    PooledData,
    Reading,
    Records,
    SettingsTable,
    Task,
    as_brightness,
    as_stored,
    as_tokens,
    held_out,
    numbered,
    parse_settings,
    pooled,
)
from clients.datasets.files.archives import MAX_OWN_BYTES
from clients.datasets.files.layout import TEST, FileKind, Layout, layout_of
from clients.datasets.files.tables import MOST_SHOWN, quoted
from clients.datasets.own import class_numbers, names_setting, plain_name
from clients.datasets.own_columns import (
    CHANNELS,
    CLIENTS,
    LABELS,
    ColumnRoles,
    Content,
    FileOptions,
    X,
    column_roles,
    hidden,
    inputs_of,
    mask_of,
    require,
    targets_of,
    vocabulary_of,
)
from clients.datasets.own_reading import holds_sequences, joined, read_samples
from ledger.io.home import DISK
from ledger.io.user_code import UserCode, as_configuration_error
from ledger.protocol.errors import ConfigurationError

_EXACT = 2**24  # float32 holds each whole number up to this one


def reading_of(
    x: NDArray[Any], records: Records, options: FileOptions, roles: ColumnRoles, *, may_end: bool
) -> Reading:
    """Return how validated samples were read; `may_end` is set for texts and rows of tokens."""
    features, stored, y = tuple(map(plain_name, roles.features)), records.x, records.y
    content = "numbers" if x.dtype.kind == "f" else "numbers, not scaled"
    if stored.dtype == np.uint8:
        content = "pixels, divided by 255"
    elif stored.dtype == np.int64:
        content = f"tokens, 0 to {stored.max()}"
    count = "1 feature" if len(features) == 1 else f"{len(features)} features"
    lines = [f"{count}: {quoted(features)} ({x.dtype}), taken for {content}"]
    notes = [*_column_notes(stored, features)]
    is_narrow = stored.shape[1:] == (1,) and stored.dtype != np.float32 and not may_end
    if is_narrow and options.inputs is None:
        notes.append(
            f"feature {features[0]!r} is one column of whole numbers ({x.dtype}), and is taken for "
            f"{content}: data.options.inputs=numbers takes it for a number"
        )
    label, outputs = plain_name(roles.label or ""), None
    if options.is_language:
        lines.append("labels: none; the tokens are the targets")
    elif options.task == "regress":
        outputs = int(y.shape[1])
        lines.append(f"target: {label!r}, {outputs} model outputs")
        if (y == np.floor(y)).all() and abs(y).max() >= _EXACT:
            notes.append(_rounded(f"target {label!r}", float(y.max())))
    else:
        seen: list[int] = np.unique(y[y != NO_TARGET]).tolist()
        outputs = options.outputs or seen[-1] + 1
        named = f": {quoted(options.class_names)}" if options.class_names else ""
        lines.append(f"label: {label!r}, {len(seen)} classes seen, {outputs} model outputs{named}")
        if options.outputs is None and len(seen) < outputs:
            setting = f"data.options.classes={json.dumps([*map(str, seen)])}"
            hint = f": {setting} numbers them from 0" if len(seen) <= MOST_SHOWN else ""
            notes.append(
                f"{len(seen)} classes are seen, {seen[0]} to {seen[-1]}, and the model gets "
                f"{outputs} outputs, 0 to {outputs - 1}{hint}"
            )
    if records.owner is None:
        lines.append("clients: none named; the partition divides the samples")
    else:
        lines.append(f"clients: {plain_name(roles.client or '')!r}, {len(records.owners)} of them")
    return Reading(features, outputs, tuple(lines), (*notes, *_client_notes(records.owners)))


def _column_notes(x: NDArray[Any], features: Sequence[str]) -> Iterator[str]:
    if x.ndim != 2 or not (x.dtype == np.float32 or x.shape[1] == 1):
        return
    rows, low, high = len(x), x.min(axis=0).astype(np.float64), x.max(axis=0).astype(np.float64)
    # Three numbers in a row are often chance.
    counts = (high - low == rows - 1) & (rows > 3)
    rounds = np.maximum(abs(low), abs(high)) >= _EXACT
    for column in np.flatnonzero(counts | rounds).tolist():
        values = x[:, column]
        is_each = len(features) == x.shape[1]
        name = repr(features[column]) if is_each else f"{column} of {features[0]!r}"
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


def _client_notes(owners: Sequence[str]) -> Iterator[str]:
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


class Data:
    """A user's own samples as arrays, for a simulated run; checked on construction.

    Attributes:
        x: inputs, shape (n, ...): floats are numbers, bytes pixels, other whole numbers tokens.
        y: labels, shape (n,), from 0 on, or names of `classes`; of a task (n, tokens) with -100 for
            a token that does not count, or numbers, or None where the tokens are the targets.
        client: owner of each sample, shape (n,), whole numbers or text; None to divide the samples
            by a partition.
        is_test: True for each sample of the test, shape (n,); None to hold out a share.
    """

    def __init__(  # noqa: PLR0913 - the arrays, and what they mean
        self,
        x: Any,
        y: Any = None,
        client: Any = None,
        is_test: Any = None,
        *,
        inputs: Content | None = None,
        classes: int | Sequence[str] | None = None,
        vocabulary: int | None = None,
        task: Task | None = None,
        mask: int | None = None,
    ) -> None:
        names = classes if isinstance(classes, int | None) else [*classes]
        given: dict[str, Any] = {"inputs": inputs, "classes": names, "vocabulary": vocabulary}
        given |= {"task": task, "mask": mask}
        self._options = {name: value for name, value in given.items() if value is not None}
        columns = {"x": x, "y": y, "client": client, "is_test": is_test}
        held = {
            name: _plain(name, values)
            for name, values in columns.items()
            if values is not None or name == "x" or (name == "y" and task not in LANGUAGE)
        }
        settings = parse_settings(FileOptions, self._options, "data")
        roles = ColumnRoles(("x",), "y" if "y" in held else None, "client", "is_test")
        self.records = _records("data", held, settings, roles, may_end=task is not None)
        self.x, self.y = self.records.x, held.get("y")
        self.client, self.is_test = held.get("client"), held.get("is_test")

    @classmethod
    def from_dataset(
        cls,
        dataset: Any,
        *,
        features: Sequence[str] | None = None,
        label: str | None = None,
        client: str | None = None,
        classes: int | Sequence[str] | None = None,
    ) -> Data:
        """Return the samples of a Hugging Face `Dataset`, or of a `DatasetDict` with a `train`.

        `features` are the columns of the inputs; all that have no other role by default.
        """
        splits = dataset if hasattr(dataset, "keys") else {"train": dataset}
        if "train" not in splits:
            raise ConfigurationError("data: the dataset must have a split 'train'")
        given = {"features": features and [*features], "label": label, "client": client}
        named = {name: value for name, value in given.items() if value is not None}
        options = parse_settings(FileOptions, named, "data")
        parts = []
        for name in ("train", TEST):
            if name not in splits:
                continue
            if not hasattr(splits[name], "with_format"):
                kind = type(splits[name]).__name__
                raise ConfigurationError(f"data: {name} is of type {kind}; must be a dataset")
            rows = splits[name].with_format("numpy")[:]
            roles = column_roles("data", [*rows], options)
            held = {column: _channels_first(rows[column]) for column in roles.columns}
            part = roles.taken("data", held)
            if roles.is_test is None and TEST in splits:
                part["is_test"] = np.full(len(part["x"]), name == TEST)
            parts.append(part)
        columns: dict[str, Any] = {
            name: joined(f"data: {name}", [part[name] for part in parts]) for name in parts[0]
        }
        return cls(**columns, classes=classes)

    def options(self) -> dict[str, Any]:
        return dict(self._options)

    def save(self, folder: Path) -> Path:
        """Write the arrays to a file that is named by its digest, and return its path."""
        columns = {"x": self.x, "y": self.y, "client": self.client, "is_test": self.is_test}
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as archive:
            for name, values in columns.items():
                if values is not None:
                    member = zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0))
                    with archive.open(member, "w", force_zip64=True) as file:
                        plain = np.ascontiguousarray(values)
                        np.lib.format.write_array(file, plain, (1, 0), allow_pickle=False)
        data = content.getbuffer()
        if len(data) > MAX_OWN_BYTES:
            raise ConfigurationError(f"data: {len(data)} bytes, more than {MAX_OWN_BYTES}")
        path = folder / f"data-{hashlib.sha256(data).hexdigest()[:12]}.npz"
        if not path.exists():
            DISK.write_whole(path, data)
        return path


def _channels_first(values: Any) -> NDArray[Any]:
    plain = np.asarray(values)
    is_image = plain.ndim == 4 and plain.dtype == np.uint8 and plain.shape[3] in CHANNELS
    return np.moveaxis(plain, 3, 1) if is_image and plain.shape[1] not in CHANNELS else plain


def _plain(name: str, values: Any) -> NDArray[Any]:
    try:
        plain = np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:  # of a tensor: it is on a GPU
        raise ConfigurationError(f"data: {name} is not an array ({error!s:.200})") from error
    if plain.dtype.kind not in "biufU":
        raise ConfigurationError(f"data: {name} must hold numbers or text, not {plain.dtype}")
    return plain


def _records(
    where: str,
    held: Mapping[str, NDArray[Any]],
    options: FileOptions,
    roles: ColumnRoles,
    *,
    may_end: bool,
) -> Records:
    """Return validated samples; where `may_end`, rows of tokens may be shorter than the longest."""
    reference = "x" if options.is_language else "y"
    y = held[reference]
    names = options.class_names
    if options.task in {None, "classify"}:
        is_text = y.ndim == 1 and y.dtype.kind == "U"
        hint = f" (text is numbered by {names_setting(y.tolist())})" if is_text else ""
        is_label = y.ndim == 1 and y.dtype.kind in ("iu" if names is None else "iuU")
        require(is_label, f"{where}: y", f"whole numbers, one for each sample{hint}", y)
        if names is not None:
            held = {**held, "y": class_numbers(f"{where}: y", y, names)}
    for name, values in held.items():
        if not values.ndim:
            raise ConfigurationError(f"{where}: {name} is one value; must be one for each sample")
        if not len(values) or len(values) != len(y):
            raise ConfigurationError(
                f"{where}: {name} has {len(values)} rows, {reference} {len(y)}"
            )
    x = inputs_of(where, held["x"], options, may_end=may_end)
    records = Records(x, targets_of(where, x, held.get("y"), options))
    if (clients := held.get("client")) is not None:
        is_name = clients.ndim == 1 and clients.dtype.kind in "iuU"
        require(is_name, f"{where}: client", "whole numbers or text, one for each sample", clients)
        if clients.dtype.kind == "U" and not np.char.str_len(clients).all():
            row = int(np.argmin(clients != ""))
            raise ConfigurationError(f"{where}: row {row} of client is empty")
        owner, owners = numbered(clients)
        records = replace(records, owner=owner, owners=owners)
    if (flags := held.get("is_test")) is not None:
        is_flag = flags.ndim == 1 and flags.dtype.kind in "biu" and np.isin(flags, (0, 1)).all()
        rule = "true or false, or 1 or 0, one for each sample"
        require(is_flag, f"{where}: is_test", rule, flags)
        if flags.all():
            raise ConfigurationError(f"{where}: has no training samples")
        records = replace(records, is_test=flags.astype(np.bool_))
    reading = reading_of(held["x"], records, options, roles, may_end=may_end)
    return replace(records, reading=reading)


def _pool(records: Records, options: FileOptions, rng: np.random.Generator) -> PooledData:
    if records.owner is None and records.is_test is None:
        order = rng.permutation(len(records.y))
        is_test = np.zeros(len(order), dtype=np.bool_)
        is_test[order[: int((options.test_share or 0.2) * len(order) + 0.5)]] = True
    else:
        is_test = held_out(records, options.test_share, rng)
    x, collate, vocabulary, task = records.x, as_stored, None, options.task or "classify"
    dtype: Literal["float32", "int64"] = "float32"
    if x.dtype == np.uint8:
        collate = as_brightness
    elif x.dtype == np.int64:
        vocabulary = vocabulary_of(options) or int(x.max()) + 1
        dtype, collate = "int64", as_tokens
    if task == "masked-lm":
        x, y = hidden(x, mask_of(options, vocabulary), rng)
        records = replace(records, y=y)
    if task in LANGUAGE:
        assert vocabulary is not None, "its inputs are tokens"
        classes = vocabulary
    elif task == "regress":
        classes = int(records.y.shape[1])
    else:
        # NO_TARGET is below every class.
        classes = options.outputs or int(records.y.max()) + 1
    form = DataForm(x.shape[1:], classes, dtype, vocabulary, task=task)
    return pooled(records, is_test, form, collate, x)


class FunctionOptions(SettingsTable):
    """Keyword arguments of a user's function that returns `Data`."""

    model_config = ConfigDict(extra="allow")


def own_data_set(code: UserCode) -> DataSet:
    """Return the data set of a user's function `(**options) -> Data`; it is not called yet."""

    def called(options: FunctionOptions) -> Data:
        return _called(code, tuple(sorted(options.model_dump().items())))

    def pool(records: Records, options: FunctionOptions, rng: np.random.Generator) -> PooledData:
        return _pool(records, FileOptions(**called(options).options()), rng)

    return DataSet(
        code.label,
        FunctionOptions,
        pool,
        has_owners=lambda _, options: called(options).client is not None,
        read=lambda _, options: called(options).records,
        has_path=False,
        code=code,
    )


@lru_cache(maxsize=1)
def _called(code: UserCode, options: tuple[tuple[str, Any], ...]) -> Data:
    """Return what a function gives; several parts of a run's preparation ask for it."""
    function = code.load_function("data.name")
    with as_configuration_error(f"data.name = {code.label!r}: it fails"):
        data = function(**dict(options))
    if not isinstance(data, Data):
        kind = type(data).__name__
        raise ConfigurationError(f"data.name = {code.label!r}: returns {kind}; must return Data")
    return data


def _fits(layout: Layout) -> bool:
    names = frozenset(map(plain_name, layout.fields))
    if layout.kind in {FileKind.ARRAYS, FileKind.TENSORS}:
        return {X, "y"} <= names
    if layout.kind in {FileKind.JSON_LINES, FileKind.TEXTS}:
        return True
    return layout.kind is not FileKind.LEAF and not names.isdisjoint(LABELS)


def _has_owners(path: Path | None, options: FileOptions) -> bool:
    assert path is not None, "only where there is a file"
    names = frozenset(map(plain_name, layout_of(path).fields))
    return not names.isdisjoint((plain_name(options.client),) if options.client else CLIENTS)


def _read(path: Path | None, options: FileOptions) -> Records:
    assert path is not None, "it has a path"
    may_end = options.task is not None or holds_sequences(layout_of(path), options)
    held, roles = read_samples(path, options)
    return _records(str(path), held, options, roles, may_end=may_end)


FILE = DataSet("file", FileOptions, _pool, read=_read, fits=_fits, has_owners=_has_owners)
