"""A data set divided among clients, the records that it is made of, and named random streams."""

from __future__ import annotations

import ast
import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ledger.protocol.errors import ConfigurationError

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
FilePath = Annotated[str, Field(min_length=1)]


class SettingsTable(BaseModel):
    """Base class of TOML tables: unknown keys and implicit conversions are errors.

    The text under a setting is what `cmfl settings` prints.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


T = TypeVar("T", bound=SettingsTable)


def sentence_of(table: type[BaseModel], key: str) -> str:
    """Return a setting's description, or the text under it; empty without one."""
    if description := table.model_fields[key].description:
        return description
    # Not by pydantic, which would look for each text at each start of the program.
    owner = next(base for base in table.__mro__ if key in inspect.get_annotations(base))
    return _texts_of(owner).get(key, "")


@cache
def _texts_of(table: type) -> dict[str, str]:
    definition: Any = ast.parse(inspect.getsource(table)).body[0]
    return {
        ast.unparse(field.target): " ".join(ast.literal_eval(text.value).split())
        for field, text in pairwise(definition.body)
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)
    }


def parse_settings(table: type[T], values: Mapping[str, Any], where: str) -> T:
    """Return validated settings."""
    try:
        return table.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] == "missing":
            key = str(first["loc"][0])[:80]
            description = sentence_of(table, key) or "it has no default"
            raise ConfigurationError(f"{where}.{key} is required ({description})") from error
        raise ConfigurationError(f"{where}.{first_error(error)}") from error


def first_error(error: ValidationError) -> str:
    """Return the first setting that is wrong, its rule and its value, as one clause."""
    first = error.errors()[0]
    setting = ".".join(map(str, first["loc"]))[:80]
    rule = first["msg"] if first["type"] != "extra_forbidden" else "there is no such setting"
    value = "" if first["type"] == "missing" else f" (given: {str(first['input'])[:80]})"
    return f"{setting}: {rule}{value}"


V = TypeVar("V")


def named(subject: str, table: Mapping[str, V], name: str, own: str = "") -> V:
    """Return what a table has under a name; `own` is how a user names code of their own."""
    if name not in table:
        known = ", ".join(table) + (f", and {own}" if own else "")
        raise ConfigurationError(f"{subject} {name[:80]!r}; known are {known}")
    return table[name]


Inputs = NDArray[Any]
"""One row per sample, in the data set's compact form, such as bytes or tokens."""
Labels = NDArray[Any]
"""A row per sample: a class (int64), a class for each token (int64), or numbers (float32)."""
Indices = NDArray[np.int64]
"""Rows of samples."""
Collate = Callable[[Inputs], NDArray[Any]]
"""Makes a model's inputs of stored rows; a function of a module, so that it can be pickled."""
Task = Literal["classify", "causal-lm", "masked-lm", "token-classify", "regress"]
LANGUAGE: frozenset[Task] = frozenset({"causal-lm", "masked-lm"})
"""Tasks whose classes are the tokens of the vocabulary."""
PER_TOKEN: frozenset[Task] = LANGUAGE | {"token-classify"}
"""Tasks with a target for each token."""
NO_TARGET = -100
"""Target of a token that is not counted: padding, or nothing to predict."""
NO_TOKEN = -1
"""Input after the last token of a sequence that is shorter than the longest."""


class Samples(NamedTuple):
    """Stored inputs and their labels, one row each; unpacks as `x, y`."""

    x: Inputs
    y: Labels


@dataclass(frozen=True, slots=True, eq=False)
class DataForm:
    """The form of the data that a model depends on."""

    input_shape: tuple[int, ...]  # of one collated input: (channels, height, width), or (tokens,)
    classes: int  # labels are 0 .. classes - 1. Of `regress` the number of outputs
    input_dtype: Literal["float32", "int64"] = "float32"
    vocabulary: int | None = None
    embedding: NDArray[np.float32] | None = None  # fixed vectors, shape (vocabulary, width)
    task: Task = "classify"


def as_stored(rows: Inputs) -> NDArray[Any]:
    """Return rows that are a model's inputs already."""
    return rows


@dataclass(frozen=True, slots=True, eq=False)
class FederatedData:
    """A data set divided among clients."""

    name: str
    form: DataForm
    train: tuple[Samples, ...]  # of client i at index i, never empty; client_tests likewise
    test: Samples
    client_tests: tuple[Samples, ...] | None = None
    collate: Collate = as_stored
    registered: tuple[int, ...] | None = None  # samples, where those of some are elsewhere
    about: tuple[str, ...] = ()  # sentences about how a user's own data were read

    @property
    def clients(self) -> int:
        return len(self.train)

    @property
    def sample_counts(self) -> tuple[int, ...]:
        """Number of training samples n_i of each client: the weights of aggregation."""
        if self.registered is not None:
            return self.registered
        return tuple(len(samples.y) for samples in self.train)


def named_stream(seed: int | bytes, *names: str | int) -> np.random.Generator:
    """Return the generator of a named purpose, such as "attack", 17, under a seed.

    A purpose that draws more, or less, never shifts another's numbers: two methods compared on one
    seed see the same data, the same initial model, the same attackers.
    """
    digest = hashlib.sha256(repr((seed, *names)).encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "little")))


def frozen_samples(x: Inputs, y: Labels) -> Samples:
    """Return contiguous, read-only copies, which all actors share; labels as in `Labels`."""
    kind = np.float32 if np.asarray(y).dtype.kind == "f" else np.int64
    samples = Samples(np.array(x, order="C"), np.array(y, dtype=kind, order="C"))
    for part in samples:
        part.setflags(write=False)
    return samples


@dataclass(frozen=True, slots=True)
class Reading:
    """Notes on reading a user's own data."""

    features: tuple[str, ...]
    outputs: int | None  # of a model; None where tokens are the targets
    lines: tuple[str, ...]  # sentences about features, labels and clients
    notes: tuple[str, ...]  # sentences about what may be another thing than the user meant


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """All samples of a data set, not prepared for models."""

    x: NDArray[Any]  # content of the files per sample: an image, a window of characters, a text
    y: Labels
    owner: NDArray[np.int64] | None = None  # index into `owners`; None without natural clients
    owners: tuple[str, ...] = ()  # names of the natural clients, in client order
    is_test: NDArray[np.bool_] | None = None  # None if the files do not say
    reading: Reading | None = None


@dataclass(frozen=True, slots=True, eq=False)
class PooledData:
    """All samples of a data set, prepared for models and not yet divided; see `Records`."""

    form: DataForm
    x: Inputs
    y: Labels
    train: Indices
    test: Indices
    owner: NDArray[np.int64] | None = None
    owners: tuple[str, ...] = ()
    owned_by: str = "clients"
    collate: Collate = as_stored
    source: str = "the data"


def numbered(owners: Sequence[str] | NDArray[Any]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return the number of each sample's owner, shape (n,), and the owners' names, ascending."""
    held = owners.tolist() if isinstance(owners, np.ndarray) else owners
    names = sorted(set(held))
    number = {name: place for place, name in enumerate(names)}
    return np.array([number[name] for name in held], dtype=np.int64), tuple(map(str, names))


def pooled(
    records: Records,
    is_test: NDArray[np.bool_],
    form: DataForm,
    collate: Collate,
    x: Inputs | None = None,
) -> PooledData:
    """Return records prepared for models; `is_test` has shape (n,), and `x` replaces theirs."""
    x = records.x if x is None else x
    split = np.flatnonzero(~is_test), np.flatnonzero(is_test)
    whose = records.owner, records.owners
    return PooledData(form, x, records.y, *split, *whose, collate=collate)


def require_trained(
    counts: NDArray[np.int64], owners: tuple[str, ...], owned_by: str, source: str
) -> None:
    """Reject natural clients without training samples."""
    if not counts.all():
        name = owners[int(np.argmin(counts))]
        raise ConfigurationError(f"{source}: {name!r} of the {owned_by} has no training sample")


def held_out(records: Records, share: float | None, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return which samples are for the test: by the files, else a share, never an owner's last."""
    if records.is_test is not None:
        if share is not None:
            raise ConfigurationError(f"data.options.test_share = {share}: the files have a split")
        return records.is_test
    if records.owner is None:
        raise ValueError("records without owners and without a split")
    counts = np.bincount(records.owner, minlength=len(records.owners))
    test_counts = np.minimum(np.floor(counts * (share or 0.2) + 0.5).astype(np.int64), counts - 1)
    shuffled = rng.permutation(len(records.y))
    order = shuffled[np.argsort(records.owner[shuffled], kind="stable")]
    rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    is_test = np.zeros(len(order), dtype=np.bool_)
    is_test[order] = rank < np.repeat(test_counts, counts)
    return is_test


def require_ends(where: str, x: NDArray[Any]) -> None:
    """Reject rows without a token, or with one after their end."""
    is_token = x != NO_TOKEN
    bad = ~is_token[:, 0] | (is_token[:, 1:] & ~is_token[:, :-1]).any(axis=1)
    if bad.any():
        raise ConfigurationError(
            f"{where}: row {np.argmax(bad)} has no token, or one after its end, {NO_TOKEN}"
        )


def next_tokens(where: str, x: NDArray[Any]) -> NDArray[np.int64]:
    """Return the next token of each, shape (n, length)."""
    y = np.full(x.shape, NO_TARGET, dtype=np.int64)
    y[:, :-1] = np.where(x[:, 1:] == NO_TOKEN, NO_TARGET, x[:, 1:])
    alone = (y == NO_TARGET).all(axis=1)
    if alone.any():
        raise ConfigurationError(f"{where}: row {np.argmax(alone)} of x has 1 token, not 2 or more")
    return y


def require_targets(where: str, y: NDArray[Any]) -> None:
    """Reject targets of tokens that are neither classes nor `NO_TARGET`, and rows without any."""
    if ((y < 0) & (y != NO_TARGET)).any():
        raise ConfigurationError(f"{where}: must be classes from 0 on, or {NO_TARGET} for no class")
    counted = (y != NO_TARGET).any(axis=1)
    if not counted.all():
        raise ConfigurationError(f"{where}: row {np.argmin(counted)} has no token with a class")


_BRIGHTEST = np.float32(255)


def as_pictures(rows: Inputs) -> NDArray[np.float32]:
    """Return grey images of bytes, shape (n, h, w), as numbers in [0, 1], shape (n, 1, h, w)."""
    return rows[:, None].astype(np.float32) / _BRIGHTEST


def as_brightness(rows: Inputs) -> NDArray[np.float32]:
    """Return bytes as numbers in [0, 1], in any shape."""
    return rows.astype(np.float32) / _BRIGHTEST


def as_tokens(rows: Inputs) -> NDArray[np.int64]:
    """Return whole numbers of any width as indices of an embedding."""
    return rows.astype(np.int64)
