"""Columns, targets and settings of a user's own data.

Names of columns and of classes are compared without blanks around them, and in Unicode form NFC.

`causal-lm` has the next token as the target of each. `masked-lm` hides tokens as BERT does (Devlin,
Chang, Lee, Toutanova 2019, section 3.1): it draws 15 of 100 tokens. Of these, 80 of 100 become the
mask, 10 another token, and 10 stay. They are drawn once, from the stream of the split, so that an
update can be repeated.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from clients.datasets.federated_data import (
    LANGUAGE,
    NO_TARGET,
    NO_TOKEN,
    PER_TOKEN,
    Count,
    FilePath,
    SettingsTable,
    Share,
    Task,
    next_tokens,
    require_ends,
    require_targets,
)
from clients.datasets.files.archives import require_file
from clients.datasets.files.tables import imported, quoted
from clients.datasets.own import (
    MOST_CLASSES,
    MOST_NUMBERS,
    ClassNames,
    Size,
    plain_name,
    require_class_names,
)
from ledger.io.home import naming, read_file
from ledger.io.user_code import as_configuration_error
from ledger.protocol.errors import ConfigurationError

LABELS, CLIENTS, TESTS = ("y", "label"), ("client", "writer"), ("is_test",)
"""Names that columns have where the options name none."""
X = "x"
ARRAYS = (X,)  # features of files with arrays, which have no other columns than those with a role
_SUFFIX = r"[ ._-]?(?:ids?|uid|name|number|no|nr|index|idx)"
_LIKE_CLIENTS = re.compile(
    rf"(?:client|user|site|owner|writer|hospital|participant|institution|silo)s?(?:{_SUFFIX})?"
    rf"|(?:subject|patient|device|speaker|party|account|node|center|centre|person|worker){_SUFFIX}",
    re.IGNORECASE,
)
_LIKE_TESTS = re.compile(r"(?:is[ ._-]?)?(?:test|train)|split", re.IGNORECASE)
_UNNAMED = re.compile(r"|Unnamed: [0-9]+|__index_level_[0-9]+__")
"""Names that pandas gives to an index without one: none, or one of these."""

Name = Annotated[str, Field(min_length=1)]
Content = Literal["numbers", "pixels", "tokens"]


class FileOptions(SettingsTable):
    """Settings of own data; what is not given follows from the file."""

    features: Annotated[list[Name], Field(min_length=1)] | None = None
    """Columns of the inputs. Default: all columns without another role, in the file's order."""
    label: Name | None = None
    """Column of the labels. Default: y or label."""
    client: Name | None = None
    """Column of the clients. Default: client or writer."""
    is_test: Name | None = None
    """Column of the split. Default: is_test."""
    inputs: Content | None = None
    """Content of the inputs. Default: pixels for bytes, tokens for integer rows, else numbers."""
    shape: Annotated[list[Size], Field(min_length=1, max_length=3)] | None = None
    """Shape of one input, such as [1, 28, 28]. Default: the shape in the file."""
    classes: Annotated[int, Field(ge=2, le=MOST_CLASSES)] | ClassNames | None = None
    """Number of classes, or a list of their names; the place of a label in the list is its class.
    Default: the largest label plus 1."""
    vocabulary: Count | None = None
    """Number of distinct tokens. Default: the largest token plus 1."""
    test_share: Share | None = None
    """Share of the samples in the test set, for files without a split. Default: 0.2."""
    task: Task | None = None
    """Target of the model: the class of a sample (classify), the next token (causal-lm), hidden
    tokens (masked-lm), the class of each token (token-classify), or numbers (regress)."""
    tokenizer: FilePath | None = None
    """Path of a tokenizer.json that converts texts to tokens."""
    length: Annotated[int, Field(ge=2, le=MOST_NUMBERS)] | None = None
    """Largest number of tokens in a sample. Language tasks split longer texts, others reject
    them."""
    mask: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    """Token that replaces hidden tokens in masked-lm. Default: the tokenizer's mask token."""

    @field_validator("classes")
    @classmethod
    def _have_names(cls, classes: int | ClassNames | None) -> int | ClassNames | None:
        if isinstance(classes, list):
            require_class_names(classes)
        return classes

    @field_validator("task")
    @classmethod
    def _has_classes(cls, task: Task | None, info: ValidationInfo) -> Task | None:
        has_names = isinstance(info.data.get("classes"), list)
        if has_names and task not in {None, "classify", "token-classify"}:
            raise PydanticCustomError("task", "has no data.options.classes")
        return task

    @property
    def class_names(self) -> ClassNames | None:
        return self.classes if isinstance(self.classes, list) else None

    @property
    def outputs(self) -> int | None:
        return len(self.classes) if isinstance(self.classes, list) else self.classes

    @property
    def is_language(self) -> bool:
        return self.task in LANGUAGE


@dataclass(frozen=True, slots=True)
class ColumnRoles:
    """The columns of a table by their role."""

    features: tuple[str, ...]
    label: str | None
    client: str | None
    is_test: str | None

    @property
    def others(self) -> dict[str, str]:
        named = {"y": self.label, "client": self.client, "is_test": self.is_test}
        return {array: name for array, name in named.items() if name is not None}

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.features, *self.others.values())

    def taken(self, where: str, held: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        x = held[self.features[0]]
        if len(self.features) > 1:
            for name in self.features:
                if held[name].ndim != 1 or held[name].dtype.kind not in "biuf":
                    raise ConfigurationError(
                        f"{where}: column {name} must hold numbers, or be the only feature"
                    )
            with np.errstate(over="ignore"):  # what is too large is refused with its row
                x = np.stack([held[n].astype(np.float32) for n in self.features], axis=1)
        return {X: x} | {array: held[name] for array, name in self.others.items()}


def column_roles(
    where: str, names: Sequence[str], options: FileOptions, features: tuple[str, ...] = ()
) -> ColumnRoles:
    """Return which column has which role, by the options or by the usual names."""

    def found(name: str) -> list[str]:
        return [column for column in names if plain_name(column) == plain_name(name)]

    def refuse(wanted: str) -> NoReturn:
        raise ConfigurationError(f"{where}: has {quoted(names)}, and lacks {wanted}")

    def column(role: str, usual: tuple[str, ...]) -> str | None:
        given = getattr(options, role)
        present = [name for wanted in ((given,) if given else usual) for name in found(wanted)]
        if len(present) > 1:
            raise ConfigurationError(
                f"{where}: {' and '.join(map(repr, present))}; choose one, data.options.{role}"
            )
        if given and not present:
            refuse(f"data.options.{role} = {given!r}")
        return present[0] if present else None

    label = None if options.is_language else column("label", LABELS)
    if label is None and not options.is_language:
        refuse(f"its labels, {' or '.join(map(repr, LABELS))}")
    client, is_test = column("client", CLIENTS), column("is_test", TESTS)
    others = [name for name in names if name not in {label, client, is_test}]
    if options.features is None and features != ARRAYS:
        _require_read(where, others, features, has_clients=bool(client), has_split=bool(is_test))
    wanted = features or tuple(options.features or ())
    missing = next((name for name in wanted if not found(name)), None)
    if missing is not None:
        refuse(f"its inputs, {missing!r}")
    usual = [name for name in others if plain_name(name) == X] or others
    roles = ColumnRoles(tuple(found(n)[0] for n in wanted) or tuple(usual), label, client, is_test)
    if not roles.features:
        refuse("its inputs")
    if not wanted:
        _require_named(where, names, roles.features)
    count, given = Counter(map(plain_name, names)), Counter(roles.columns)
    twice = next((n for n in roles.columns if given[n] > 1 or count[plain_name(n)] > 1), None)
    if twice is not None:
        raise ConfigurationError(f"{where}: column {twice} is named twice; a column has one role")
    return roles


def _require_read(
    where: str, free: Sequence[str], features: Sequence[str], *, has_clients: bool, has_split: bool
) -> None:
    for is_there, role, noun, pattern in (
        (has_clients, "client", "clients", _LIKE_CLIENTS),
        (has_split, "is_test", "the split (1 is for the test)", _LIKE_TESTS),
    ):
        name = next((name for name in free if pattern.fullmatch(plain_name(name))), None)
        if name is not None and not is_there:
            rest = [other for other in features or free if other != name]
            raise ConfigurationError(
                f"{where}: {name!r} looks like {noun}; set "
                f"data.options.{role}={plain_name(name)}, or {_features_setting(rest)}"
            )


def _require_named(where: str, names: Sequence[str], chosen: Sequence[str]) -> None:
    unnamed = next((name for name in chosen if _UNNAMED.fullmatch(plain_name(name))), None)
    if unnamed is not None:
        rest = [name for name in chosen if name != unnamed]
        raise ConfigurationError(
            f"{where}: column {names.index(unnamed) + 1}, {unnamed!r}, has no name, like a "
            f"data frame's index; remove it from the table, or set {_features_setting(rest)}"
        )


def _features_setting(names: Sequence[str]) -> str:
    return f"data.options.features={json.dumps([*map(plain_name, names)], ensure_ascii=False):.300}"


MAX_TOKENIZER_BYTES = 1 << 26
"""Of a file with a vocabulary of a quarter of a million: 33 million bytes."""
CHANNELS = (1, 3, 4)
_HIDDEN, _MASKED, _REPLACED = 0.15, 0.8, 0.9


def inputs_of(where: str, x: NDArray[Any], options: FileOptions, *, may_end: bool) -> NDArray[Any]:
    """Return inputs as float32 numbers, bytes of pixels or int64 tokens."""
    require(x.dtype.kind in "biuf" and x.ndim > 1, f"{where}: x", "numbers (samples, ...)", x)
    content = options.inputs
    if content is None:
        is_row = x.dtype.kind in "iu" and x.ndim == 2
        content = "pixels" if x.dtype == np.uint8 else "tokens" if is_row else "numbers"
    if options.task in PER_TOKEN:
        rule = f"tokens, whole numbers (samples, tokens), for the task {options.task}"
        require(content == "tokens", f"{where}: x", rule, x)
    if content == "pixels" and x.ndim == 3 and options.shape is None:
        x = x[:, None]  # grey images
    if options.shape is not None:
        if np.prod(options.shape, dtype=object) != np.prod(x.shape[1:], dtype=object):
            raise ConfigurationError(
                f"{where}: data.options.shape = {options.shape} does not fit x, {x.shape[1:]}"
            )
        x = x.reshape(-1, *options.shape)
    is_possible = 0 < np.prod(x.shape[1:], dtype=object) <= MOST_NUMBERS
    rule = f"inputs of 1 to 3 sizes and at most {MOST_NUMBERS} numbers"
    require(x.ndim <= 4 and is_possible, f"{where}: x", rule, x)
    if content == "pixels":
        is_byte = x.dtype.kind in "iu" and x.min() >= 0 and x.max() <= 255
        require(is_byte, f"{where}: x", "pixels, whole numbers 0 .. 255", x)
        is_last = x.ndim == 4 and x.shape[3] in CHANNELS and x.shape[1] not in CHANNELS
        require(not is_last, f"{where}: x", "images (channels, height, width)", x)
        return np.ascontiguousarray(x, dtype=np.uint8)
    if content == "numbers":
        return finite(f"{where}: x", x)
    # A model has a row for each token: one wild token must not ask for 2^31 of them.
    most, least = (vocabulary_of(options) or MOST_CLASSES) - 1, NO_TOKEN if may_end else 0
    is_token = x.dtype.kind in "iu" and x.ndim == 2 and x.min() >= least and x.max() <= most
    rule = f"tokens, whole numbers {least} .. {most} (data.options.vocabulary says how many)"
    require(is_token, f"{where}: x", rule, x)
    tokens = np.ascontiguousarray(x, dtype=np.int64)
    if may_end:
        require_ends(where, tokens)
    return tokens


def require(keeps: object, subject: str, rule: str, values: NDArray[Any]) -> None:
    """Refuse an array that does not keep a rule, with its type, shape and range."""
    if not keeps:
        has_range = values.size and values.dtype.kind in "biuf"
        span = f", {values.min()} .. {values.max()}" if has_range else ""
        raise ConfigurationError(
            f"{subject}: must be {rule}, not {values.dtype} of shape {values.shape}{span}"
        )


def targets_of(
    where: str, x: NDArray[Any], y: NDArray[Any] | None, options: FileOptions
) -> NDArray[Any]:
    """Return the validated targets of samples; y is None where tokens are the targets."""
    if y is None:
        return next_tokens(where, x) if options.task == "causal-lm" else x
    where, given = f"{where}: y", f"not {y.dtype} of shape {y.shape}"
    if options.is_language:
        raise ConfigurationError(f"{where}: the task {options.task} takes no labels")
    if options.task == "regress":
        if (outputs := options.outputs) is not None:
            raise ConfigurationError(f"data.options.classes = {outputs}: regress has no classes")
        if y.dtype.kind not in "iuf" or y.ndim not in {1, 2} or 0 in y.shape[1:]:
            raise ConfigurationError(f"{where}: must be a number or a row for each sample, {given}")
        return finite(where, y.reshape(len(y), -1))
    classes = y
    if options.task == "token-classify":
        if y.dtype.kind not in "iu" or y.shape != x.shape:
            raise ConfigurationError(f"{where}: must be whole numbers, one for each token, {given}")
        y = np.where(x == NO_TOKEN, NO_TARGET, y)
        require_targets(where, y)
        classes = y[y != NO_TARGET]
    most = (options.outputs or MOST_CLASSES) - 1
    if not 0 <= classes.min() <= classes.max() <= most:
        span = f"{classes.min()} .. {classes.max()}"
        raise ConfigurationError(f"{where}: labels {span}, outside 0 .. {most}")
    if options.outputs is None and classes.max() < 1:
        raise ConfigurationError(f"{where}: all labels are 0; there must be 2 classes or more")
    return y.astype(np.int64)


def finite(subject: str, values: NDArray[Any]) -> NDArray[np.float32]:
    """Return values as float32; refuse a row with a number that is not finite there."""
    with np.errstate(over="ignore"):
        numbers = np.ascontiguousarray(values, dtype=np.float32)
    is_finite = np.isfinite(numbers).reshape(len(numbers), -1).all(axis=1)
    if not is_finite.all():
        row = int(np.argmin(is_finite))
        raise ConfigurationError(f"{subject}: row {row} has a number that is not finite in float32")
    return numbers


def vocabulary_of(options: FileOptions) -> int | None:
    """Return the number of tokens that the options state; None if they do not."""
    if options.tokenizer is None:
        return options.vocabulary
    size = int(tokenizer_at(options.tokenizer).get_vocab_size())
    if (given := options.vocabulary) not in {None, size}:
        raise ConfigurationError(f"data.options.vocabulary = {given}: the tokenizer has {size}")
    return size


def mask_of(options: FileOptions, vocabulary: int | None) -> int:
    """Return the token that hides others."""
    mask: int | None = options.mask
    if mask is None and options.tokenizer is not None:
        tokens = map(tokenizer_at(options.tokenizer).token_to_id, ("[MASK]", "<mask>"))
        mask = next((token for token in tokens if token is not None), None)
    if mask is None or vocabulary is None or mask >= vocabulary:
        raise ConfigurationError(
            f"data.options.mask = {mask}: masked-lm needs a mask token, 0 .. "
            f"{(vocabulary or 1) - 1}, and the tokenizer does not have one"
        )
    return mask


def hidden(
    x: NDArray[np.int64], mask: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return inputs with hidden tokens, at least one in each row, and the targets."""
    is_token = x != NO_TOKEN
    drawn = np.where(is_token, rng.random(x.shape), 2.0)
    chosen = drawn < _HIDDEN
    chosen[np.arange(len(x)), drawn.argmin(axis=1)] = True
    fate = rng.random(x.shape)
    others = rng.choice(x[is_token], size=x.shape)
    replaced = np.where(fate < _MASKED, mask, np.where(fate < _REPLACED, others, x))
    return np.where(chosen, replaced, x), np.where(chosen, x, NO_TARGET)


def tokenizer_at(name: str) -> Any:
    """Return the tokenizer of a file, which neither cuts nor pads."""
    path, setting = Path(name), f"data.options.tokenizer = {name}"
    with naming(f"{setting}: cannot be read"):
        require_file(path)
        state = path.stat()
    if (size := state.st_size) > MAX_TOKENIZER_BYTES:
        raise ConfigurationError(f"{setting}: {size} bytes, more than {MAX_TOKENIZER_BYTES}")
    return _loaded(path, state.st_mtime_ns, size)


@lru_cache(maxsize=1)
def _loaded(path: Path, *_: int) -> Any:
    """Return the tokenizer of a file, which is read again when it has changed."""
    tokenizers = imported("tokenizers", "transformers", "texts")
    with as_configuration_error(f"data.options.tokenizer = {path}: is not a tokenizer.json"):
        tokenizer = tokenizers.Tokenizer.from_buffer(read_file(path, MAX_TOKENIZER_BYTES))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
