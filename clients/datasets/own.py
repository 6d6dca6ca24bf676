"""`own`: each client has a private file; the settings declare the form of the samples.

There is no data set to divide: the deployer has the form of the samples and, from the registry, the
number of each client's samples. A client's file is an `.npz` or a `.safetensors` with `x`
and `y`, and with `x_test` and `y_test` if the owner wants to evaluate models on private samples.
Next tokens to learn follow from `x`, and the file has no `y` then.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from clients.datasets.data_set import DataSet
from clients.datasets.federated_data import (
    LANGUAGE,
    NO_TARGET,
    NO_TOKEN,
    PER_TOKEN,
    Collate,
    Count,
    DataForm,
    FederatedData,
    PooledData,
    Records,
    Samples,
    SettingsTable,
    Task,
    as_brightness,
    as_stored,
    as_tokens,
    frozen_samples,
    next_tokens,
    require_ends,
    require_targets,
)
from clients.datasets.files.archives import TENSORS, ArrayRule, array_names, read_arrays
from clients.datasets.files.tables import MOST_SHOWN, quoted
from ledger.protocol.errors import ConfigurationError

MOST_CLASSES = 1_000_000
MOST_NUMBERS = 2**24  # limit of the size of one input
SUFFIXES = (".npz", TENSORS)
TRAINING, TEST = ("x", "y"), ("x_test", "y_test")

Size = Annotated[int, Field(ge=1, le=MOST_NUMBERS)]
ClassNames = list[str]  # class k has the name at place k


def plain_name(text: str) -> str:
    """Return a name without blanks around it, in Unicode form NFC."""
    return unicodedata.normalize("NFC", text).strip()


def require_class_names(names: Sequence[str]) -> None:
    """Reject names of classes that are fewer than two, empty or equal."""
    distinct = {plain_name(name) for name in names}
    if not 2 <= len(names) <= MOST_CLASSES or len(distinct) < len(names) or "" in distinct:
        raise PydanticCustomError("classes", "must be a list of two or more different names")


def class_numbers(where: str, labels: NDArray[Any], names: Sequence[str]) -> NDArray[np.int64]:
    """Return the place of each label, as text, among the names of the classes."""
    numbers = {plain_name(name): number for number, name in enumerate(names)}
    distinct, places = np.unique(labels.astype(np.str_), return_inverse=True)
    found = [numbers.get(plain_name(label)) for label in distinct.tolist()]
    if None in found:
        unknown = found.index(None)
        place = int(np.argmax(places.reshape(-1) == unknown)) + 1
        raise ConfigurationError(
            f"{where}: label {place} is {str(distinct[unknown])[:80]!r}, none of {quoted(names)}"
        )
    return np.array(found, dtype=np.int64)[places.reshape(labels.shape)]


def names_setting(labels: Sequence[str]) -> str:
    """Return the setting that numbers labels which are text."""
    distinct = sorted({plain_name(label) for label in labels})
    shown = distinct if 2 <= len(distinct) <= MOST_SHOWN else ["NAME", "NAME"]
    return f"data.options.classes={json.dumps(shown, ensure_ascii=False)}"


class OwnOptions(SettingsTable):
    """The form of the samples; a run records nothing else about them."""

    task: Task | None = None
    """Task of the model. Files for causal-lm have no y. For token-classify and masked-lm, y has a
    class for each token, or -100. For regress, y has `classes` numbers."""
    inputs: Annotated[Literal["numbers", "pixels", "tokens"], Field(validate_default=True)] = (
        "numbers"
    )
    """Content of x: numbers (float32), pixels (uint8, which models divide by 255), or tokens
    (int64)."""
    shape: Annotated[list[Size], Field(min_length=1, max_length=3)]
    """Shape of one input: [channels, height, width] of an image, [tokens] of a text."""
    classes: Annotated[int, Field(ge=1, le=MOST_CLASSES)] | ClassNames
    """Number of classes, for the labels 0 .. classes - 1, or a list of their names."""
    vocabulary: Count | None = Field(default=None, validate_default=True)
    """Number of distinct tokens, for inputs = tokens."""

    @field_validator("inputs")
    @classmethod
    def _are_tokens_of_tasks_about_them(cls, inputs: str, info: ValidationInfo) -> str:
        if info.data.get("task") in PER_TOKEN and inputs != "tokens":
            raise PydanticCustomError("inputs", "must be tokens for this task")
        return inputs

    @field_validator("classes")
    @classmethod
    def _are_two_or_more(cls, classes: int | ClassNames, info: ValidationInfo) -> int | ClassNames:
        if isinstance(classes, list):
            if info.data.get("task") not in {None, "classify"}:
                raise PydanticCustomError("classes", "names are for the task classify")
            require_class_names(classes)
        elif info.data.get("task") != "regress" and classes < 2:
            raise PydanticCustomError("classes", "Input should be greater than or equal to 2")
        return classes

    @field_validator("shape")
    @classmethod
    def _is_possible(cls, shape: list[int], info: ValidationInfo) -> list[int]:
        if info.data.get("inputs") == "tokens" and len(shape) != 1:
            raise PydanticCustomError("shape", "tokens have a shape of one size")
        if np.prod(shape, dtype=object) > MOST_NUMBERS:
            raise PydanticCustomError("shape", "an input may have at most 2^24 numbers")
        return shape

    @field_validator("vocabulary")
    @classmethod
    def _goes_with_tokens(cls, vocabulary: int | None, info: ValidationInfo) -> int | None:
        if (info.data.get("inputs") == "tokens") != (vocabulary is not None):
            raise PydanticCustomError("vocabulary", "is only for inputs = tokens, and required")
        if info.data.get("task") in LANGUAGE and vocabulary != info.data.get("classes"):
            raise PydanticCustomError("vocabulary", "must be classes for a task of tokens")
        return vocabulary

    @property
    def outputs(self) -> int:
        return len(self.classes) if isinstance(self.classes, list) else self.classes

    def collate(self) -> Collate:
        return {"numbers": as_stored, "pixels": as_brightness, "tokens": as_tokens}[self.inputs]

    def form(self) -> DataForm:
        dtype: Literal["float32", "int64"] = "int64" if self.inputs == "tokens" else "float32"
        task = self.task or "classify"
        return DataForm(tuple(self.shape), self.outputs, dtype, self.vocabulary, task=task)

    def rules(self, names: tuple[str, str], rows: str) -> dict[str, ArrayRule]:
        per_token = self.task in PER_TOKEN
        x = ArrayRule("<f4" if self.inputs == "numbers" else "|u1", (None, *self.shape), rows=rows)
        if self.vocabulary is not None:
            least = 0 if self.task is None else NO_TOKEN
            x = ArrayRule("<i8", (None, *self.shape), least, self.vocabulary - 1, rows)
        if self.task == "causal-lm":
            return {names[0]: x}
        if self.task == "regress":
            y = ArrayRule("<f4", (None, self.outputs), rows=rows)
        elif isinstance(self.classes, list):
            y = ArrayRule("<U", (None,), rows=rows)
        else:
            shape, least = ((None, *self.shape), NO_TARGET) if per_token else ((None,), 0)
            y = ArrayRule("<i8", shape, least, self.outputs - 1, rows)
        return {names[0]: x, names[1]: y}

    def samples(self, where: str, x: NDArray[Any], y: NDArray[Any] | None) -> Samples:
        """Return samples of a file that keeps the rules; y is None where it follows from x."""
        if self.task is not None and self.inputs == "tokens":
            require_ends(where, x)
        if y is None:
            return frozen_samples(x, next_tokens(where, x))
        if isinstance(self.classes, list):
            y = class_numbers(f"{where}: y", y, self.classes)
        if self.task in PER_TOKEN:
            if ((x == NO_TOKEN) & (y != NO_TARGET)).any():
                raise ConfigurationError(f"{where}: y must be {NO_TARGET} at each x of {NO_TOKEN}")
            require_targets(f"{where}: y", y)
        return frozen_samples(x, y)


class OwnSamples(NamedTuple):
    """The content of an owner's file: training samples, and test samples if there are any."""

    train: Samples
    test: Samples | None


def read_own(path: Path, options: OwnOptions) -> OwnSamples:
    """Return the samples of one owner."""
    if path.is_file() and path.suffix not in SUFFIXES:
        given = path.suffix or "no extension"
        raise ConfigurationError(f"{path}: {given}; must be an .npz or .safetensors file")
    if path.suffix == TENSORS and isinstance(options.classes, list):
        raise ConfigurationError(f"{path}: data.options.classes are names; use .npz, not tensors")
    rules = options.rules(TRAINING, "samples")
    if not array_names(path).isdisjoint(TEST):
        rules |= options.rules(TEST, "test samples")
    arrays = read_arrays(path, rules)
    train, test = (
        options.samples(str(path), arrays[x], arrays.get(y)) if x in arrays else None
        for x, y in (TRAINING, TEST)
    )
    assert train is not None, "a rule asks for it"
    return OwnSamples(train, test)


def trial_data(options: OwnOptions, clients: int, rng: np.random.Generator) -> FederatedData:
    """Return the same few random samples of the form for each client, to try a model."""
    count = 8
    if options.task == "regress":
        y: NDArray[Any] = rng.random((count, options.outputs), dtype=np.float32)
    else:
        length = options.shape if options.task in PER_TOKEN else ()
        y = rng.integers(options.outputs, size=(count, *length))
    if options.inputs == "numbers":
        x: NDArray[Any] = rng.random((count, *options.shape), dtype=np.float32)
    elif options.inputs == "pixels":
        x = rng.integers(256, size=(count, *options.shape), dtype=np.uint8)
    else:
        x = rng.integers(options.vocabulary or 1, size=(count, *options.shape))
    train, nothing = (frozen_samples(x, y),) * clients, frozen_samples(x[:0], y[:0])
    return FederatedData(OWN.name, options.form(), train, nothing, collate=options.collate())


def _no_pool(_: Records, __: OwnOptions, ___: np.random.Generator) -> PooledData:
    raise AssertionError("`records` refuses first, because the samples of all clients are private")


OWN = DataSet("own", OwnOptions, _no_pool, owned_by="owners", is_declared=True)
