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
    NO_TOKEN,
    PER_TOKEN,
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
    require_ends,
)
from clients.datasets.files.archives import MAX_OWN_BYTES
from clients.datasets.files.layout import TEST, FileKind, Layout, layout_of
from clients.datasets.files.tables import MOST_SHOWN, quoted
from clients.datasets.own import (
    MOST_CLASSES,
    MOST_NUMBERS,
    class_numbers,
    names_setting,
    plain_name,
)
from clients.datasets.own_columns import (
    CLIENTS,
    LABELS,
    ColumnRoles,
    Content,
    FileOptions,
    X,
    class_count,
    column_roles,
    hidden,
    mask_of,
    targets_of,
    vocabulary_of,
)
from clients.datasets.own_reading import holds_sequences, joined, read_samples
from ledger.io.home import DISK
from ledger.io.user_code import UserCode, as_configuration_error
from ledger.protocol.errors import ConfigurationError

_EXACT = 2**24
"""float32 holds each whole number up to this one."""
_FEWEST_ROWS = 4
"""Of a column that counts them: three numbers in a row are often chance."""


def reading_of(
    x: NDArray[Any], records: Records, options: FileOptions, roles: ColumnRoles, *, may_end: bool
) -> Reading:
    """Return how validated samples were read; `may_end` is set for texts and rows of tokens."""
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


CHANNELS = (1, 3, 4)
_USUAL_SHARE = 0.2


class Data:
    """A user's own samples as arrays, for a simulated run; checked on construction.

    Attributes:
        x: inputs, shape (n, ...): floats are numbers, bytes (uint8) pixels, other whole numbers
            tokens.
        y: labels, shape (n,), whole numbers from 0 on, or names of `classes`; of `task`, (n,
            tokens) with -100 for a token that does not count, or numbers, or None where the tokens
            themselves are the targets.
        client: owner of each sample, shape (n,), whole numbers or text; None to divide the samples
            by a partition.
        is_test: whether each sample is for the test, shape (n,); None to hold out a share.
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
        given = {
            "inputs": inputs,
            "classes": classes if isinstance(classes, int | None) else [*classes],
            "vocabulary": vocabulary,
            "task": task,
            "mask": mask,
        }
        self._options = {name: value for name, value in given.items() if value is not None}
        columns = {"x": x, "y": y, "client": client, "is_test": is_test}
        held = {
            name: _plain(name, values)
            for name, values in columns.items()
            if values is not None or name == "x" or (name == "y" and task not in LANGUAGE)
        }
        settings = parse_settings(FileOptions, self._options, "data")
        roles = ColumnRoles(("x",), "y" if "y" in held else None, "client", "is_test")
        records = _records("data", held, settings, roles, may_end=task is not None)
        self.records = records
        self.x, self.y = records.x, held.get("y")
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
        """Return the samples of a Hugging Face `Dataset`, or of a `DatasetDict` with a split.

        Args:
            dataset: anything with `with_format("numpy")`, or a mapping of such with `train` and, if
                there is one, `test`.
            features: columns of the inputs; all that have no other role by default.
        """
        splits = dataset if hasattr(dataset, "keys") else {"train": dataset}
        if "train" not in splits:
            raise ConfigurationError("data: the dataset must have a split 'train'")
        given = {"features": features and [*features], "label": label, "client": client}
        named = {name: value for name, value in given.items() if value is not None}
        options = parse_settings(FileOptions, named, "data")
        parts = []
        for name in ("train", TEST):
            if name in splits:
                if not hasattr(splits[name], "with_format"):
                    kind = type(splits[name]).__name__
                    raise ConfigurationError(f"data: {name}: is no dataset, but of type {kind}")
                rows = splits[name].with_format("numpy")[:]
                roles = column_roles("data", [*rows], options)
                held = {column: _channels_first(rows[column]) for column in roles.columns}
                parts.append(roles.taken("data", held) | _split(roles, held, name, splits))
        columns = {
            name: joined(f"data: {name}", [part[name] for part in parts]) for name in parts[0]
        }
        return cls(
            columns["x"],
            columns["y"],
            columns.get("client"),
            columns.get("is_test"),
            classes=classes,
        )

    def options(self) -> dict[str, Any]:
        """Return the settings `data.options` that go with the saved file."""
        return dict(self._options)

    def save(self, folder: Path) -> Path:
        """Write the arrays to a file that is named by its digest, and return its path.

        The same arrays give the same bytes.
        """
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


def _split(
    roles: ColumnRoles, held: Mapping[str, NDArray[Any]], name: str, splits: Any
) -> dict[str, NDArray[Any]]:
    if roles.is_test is not None or TEST not in splits:
        return {}
    return {"is_test": np.full(len(held[roles.columns[0]]), name == TEST)}


def _channels_first(values: Any) -> NDArray[Any]:
    plain = np.asarray(values)
    is_image = plain.ndim == 4 and plain.dtype == np.uint8 and plain.shape[3] in CHANNELS
    return np.moveaxis(plain, 3, 1) if is_image and plain.shape[1] not in CHANNELS else plain


def _plain(name: str, values: Any) -> NDArray[Any]:
    """Return an array of numbers or text; tensors of PyTorch and lists are converted."""
    try:
        plain = np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:  # of a tensor: it is on a GPU
        raise ConfigurationError(f"data: {name}: is no array: {error!s:.200}") from error
    if plain.dtype.kind not in "biufU":
        raise ConfigurationError(f"data: {name}: must hold numbers or text, holds {plain.dtype}")
    return plain


def _records(
    where: str,
    held: Mapping[str, NDArray[Any]],
    options: FileOptions,
    roles: ColumnRoles,
    *,
    may_end: bool,
) -> Records:
    """Return validated samples, their inputs in the type that is stored.

    Where `may_end`, rows of tokens may be shorter than the longest.
    """
    reference = "x" if options.is_language else "y"
    y = held[reference]
    names = options.class_names
    if options.task in {None, "classify"}:
        kinds = "iu" if names is None else "iuU"
        if y.ndim != 1 or y.dtype.kind not in kinds:
            is_text = y.ndim == 1 and y.dtype.kind == "U"
            hint = f"; text is numbered by {names_setting(y.tolist())}" if is_text else ""
            raise ConfigurationError(
                f"{where}: y: labels must be whole numbers, one for each sample, not {y.dtype} of "
                f"shape {y.shape}{hint}"
            )
        if names is not None:
            held = {**held, "y": class_numbers(f"{where}: y", y, names)}
    for name, values in held.items():
        if not values.ndim:
            raise ConfigurationError(f"{where}: {name}: is one value; must be one for each sample")
        if not len(values) or len(values) != len(y):
            raise ConfigurationError(
                f"{where}: {name} has {len(values)} rows and {reference} {len(y)}; must be equally "
                f"many, at least 1"
            )
    x = _inputs(where, held["x"], options, may_end=may_end)
    records = Records(x, targets_of(where, x, held.get("y"), options))
    if "client" in held:
        owner, owners = numbered(_owners(where, held["client"]))
        records = replace(records, owner=owner, owners=owners)
    if "is_test" in held:
        is_test = _flags(where, held["is_test"])
        if is_test.all():
            raise ConfigurationError(f"{where}: has no training samples")
        records = replace(records, is_test=is_test)
    reading = reading_of(held["x"], records, options, roles, may_end=may_end)
    return replace(records, reading=reading)


def _inputs(where: str, x: NDArray[Any], options: FileOptions, *, may_end: bool) -> NDArray[Any]:
    """Return inputs as float32 numbers, bytes of pixels or int64 tokens."""
    if x.dtype.kind not in "biuf" or x.ndim < 2:
        raise ConfigurationError(
            f"{where}: x: must hold numbers of shape (samples, ...), not {x.dtype} of shape "
            f"{x.shape}"
        )
    content = options.inputs or _content_of(x)
    if options.task in PER_TOKEN and content != "tokens":
        raise ConfigurationError(
            f"{where}: x: the task {options.task} is about tokens, whole numbers of shape "
            f"(samples, tokens), not {x.dtype} of shape {x.shape}"
        )
    if content == "pixels" and x.ndim == 3 and options.shape is None:
        x = x[:, None]  # grey images
    if options.shape is not None:
        if np.prod(options.shape, dtype=object) != np.prod(x.shape[1:], dtype=object):
            raise ConfigurationError(
                f"{where}: x: data.options.shape = {options.shape} does not fit inputs of shape "
                f"{x.shape[1:]}"
            )
        x = x.reshape(-1, *options.shape)
    shape = x.shape[1:]
    if len(shape) > 3 or not 0 < np.prod(shape, dtype=object) <= MOST_NUMBERS:
        raise ConfigurationError(
            f"{where}: x: an input of shape {shape}; must have 1 to 3 sizes and at most "
            f"{MOST_NUMBERS} numbers"
        )
    if content == "pixels":
        return _pixels(where, x)
    if content == "tokens":
        return _tokens(where, x, vocabulary_of(options), may_end=may_end)
    with np.errstate(over="ignore"):
        numbers = np.ascontiguousarray(x, dtype=np.float32)
    if not np.isfinite(numbers).all():
        row = int(np.argmin(np.isfinite(numbers).reshape(len(x), -1).all(axis=1)))
        raise ConfigurationError(
            f"{where}: x: row {row} holds a number that is not finite (NaN, infinite, or too large "
            f"for float32)"
        )
    return numbers


def _content_of(x: NDArray[Any]) -> Content:
    if x.dtype == np.uint8:
        return "pixels"
    return "tokens" if x.dtype.kind in "iu" and x.ndim == 2 else "numbers"


def _pixels(where: str, x: NDArray[Any]) -> NDArray[np.uint8]:
    if x.dtype.kind not in "iu" or x.min() < 0 or x.max() > 255:
        raise ConfigurationError(
            f"{where}: x: pixels must be whole numbers 0 .. 255, not {x.dtype} {x.min()} .. "
            f"{x.max()}"
        )
    if x.ndim == 4 and x.shape[3] in CHANNELS and x.shape[1] not in CHANNELS:
        raise ConfigurationError(
            f"{where}: x: images of shape {x.shape[1:]}; must be (channels, height, width)"
        )
    return np.ascontiguousarray(x, dtype=np.uint8)


def _tokens(
    where: str, x: NDArray[Any], vocabulary: int | None, *, may_end: bool
) -> NDArray[np.int64]:
    # A model has a row for each: one wild token must not ask for 2^31 of them.
    most, least = (vocabulary or MOST_CLASSES) - 1, NO_TOKEN if may_end else 0
    if x.dtype.kind not in "iu" or x.ndim != 2 or x.min() < least or x.max() > most:
        raise ConfigurationError(
            f"{where}: x: tokens must be whole numbers {least} .. {most} of shape (samples, "
            f"tokens), not {x.dtype} of shape {x.shape}, {x.min()} .. {x.max()} (how many there "
            f"are: data.options.vocabulary)"
        )
    tokens = np.ascontiguousarray(x, dtype=np.int64)
    if may_end:
        require_ends(where, tokens)
    return tokens


def _owners(where: str, values: NDArray[Any]) -> NDArray[Any]:
    if values.ndim != 1 or values.dtype.kind not in "iuU":
        raise ConfigurationError(
            f"{where}: client: must be whole numbers or text, one for each sample, not "
            f"{values.dtype} of shape {values.shape}"
        )
    if values.dtype.kind == "U" and not np.char.str_len(values).all():
        raise ConfigurationError(f"{where}: client: row {int(np.argmin(values != ''))} is empty")
    return values


def _flags(where: str, values: NDArray[Any]) -> NDArray[np.bool_]:
    if values.ndim != 1 or values.dtype.kind not in "biu" or not np.isin(values, (0, 1)).all():
        raise ConfigurationError(
            f"{where}: is_test: must be true or false, or 1 or 0, one for each sample"
        )
    return values.astype(np.bool_)


def _pool(records: Records, options: FileOptions, rng: np.random.Generator) -> PooledData:
    if records.owner is None and records.is_test is None:
        order = rng.permutation(len(records.y))
        count = int((options.test_share or _USUAL_SHARE) * len(order) + 0.5)
        is_test = np.zeros(len(order), dtype=np.bool_)
        is_test[order[:count]] = True
    else:
        is_test = held_out(records, options.test_share, rng)
    shape, vocabulary = records.x.shape[1:], None
    dtype: Literal["float32", "int64"] = "float32"
    x, y, collate = records.x, records.y, as_stored
    if x.dtype == np.uint8:
        collate = as_brightness
    elif x.dtype == np.int64:
        vocabulary = vocabulary_of(options) or int(x.max()) + 1
        dtype, collate = "int64", as_tokens
    task = options.task or "classify"
    if task == "masked-lm":
        x, y = hidden(x, mask_of(options, vocabulary), rng)
    classes = class_count(task, y, options.outputs, vocabulary)
    return PooledData(
        form=DataForm(shape, classes, dtype, vocabulary, task=task),
        x=x,
        y=y,
        train=np.flatnonzero(~is_test),
        test=np.flatnonzero(is_test),
        owner=records.owner,
        owners=records.owners,
        collate=collate,
    )


class FunctionOptions(SettingsTable):
    """Keyword arguments of a user's function that returns `Data`."""

    model_config = ConfigDict(extra="allow")


def own_data_set(code: UserCode) -> DataSet:
    """Return the data set of a user's function `(**options) -> Data`; it is not called yet."""

    def called(options: FunctionOptions) -> Data:
        return _called(code, tuple(sorted(options.model_dump().items())))

    def load(options: FunctionOptions) -> Records:
        return called(options).records

    def pool(records: Records, options: FunctionOptions, rng: np.random.Generator) -> PooledData:
        return _pool(records, FileOptions(**called(options).options()), rng)

    def has_owners(_: Path | None, options: FunctionOptions) -> bool:
        return called(options).client is not None

    return DataSet(code.label, FunctionOptions, pool, has_owners=has_owners, load=load, code=code)


@lru_cache(maxsize=1)
def _called(code: UserCode, options: tuple[tuple[str, Any], ...]) -> Data:
    """Return what a function gives; several parts of a run's preparation ask for it."""
    function = code.load_function("data.name")
    with as_configuration_error(f"data.name = {code.label!r}: it fails"):
        data = function(**dict(options))
    if not isinstance(data, Data):
        raise ConfigurationError(
            f"data.name = {code.label!r}: returns {type(data).__name__}; must return Data"
        )
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


def _read(path: Path, options: FileOptions) -> Records:
    may_end = options.task is not None or holds_sequences(layout_of(path), options)
    held, roles = read_samples(path, options)
    return _records(str(path), held, options, roles, may_end=may_end)


FILE = DataSet("file", FileOptions, _pool, read=_read, fits=_fits, has_owners=_has_owners)
