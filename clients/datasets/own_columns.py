"""Columns and settings of a user's own data: which column has which role, by options or by name."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import numpy as np
from pydantic import Field

from clients.datasets.federated_data import LANGUAGE, Task
from clients.datasets.own import MOST_CLASSES, MOST_NUMBERS, Size
from clients.datasets.settings_table import Count, FilePath, SettingsTable, Share
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

LABELS, CLIENTS, TESTS = ("y", "label"), ("client", "writer"), ("is_test",)
"""Names that columns have where the options name none."""
X = "x"

Name = Annotated[str, Field(min_length=1)]
Content = Literal["numbers", "pixels", "tokens"]


class FileOptions(SettingsTable):
    """Settings of own data; what is not given follows from the file.

    Attributes:
        features: columns of the inputs; all that have no other role, in the file's order.
        label: column of the labels; y or label.
        client: column of the clients; client or writer.
        is_test: column of the split; is_test.
        inputs: content of the inputs; pixels for bytes, tokens for rows of whole numbers, else
            numbers.
        shape: of one input, such as [1, 28, 28]; as the file has it.
        classes: number of classes; one more than the largest label.
        vocabulary: number of distinct tokens; one more than the largest token.
        test_share: share of the samples in the test, .2, where the file has no split.
        task: what is learned: the class of a sample (classify), the next token (causal-lm), hidden
            tokens (masked-lm), the class of each token (token-classify), or numbers (regress).
        tokenizer: path of a tokenizer.json, which makes tokens of texts.
        length: tokens of a sample at most; language tasks cut longer texts into samples, others
            refuse them.
        mask: token that hides others, of masked-lm; the tokenizer's.
    """

    features: Annotated[list[Name], Field(min_length=1)] | None = None
    label: Name | None = None
    client: Name | None = None
    is_test: Name | None = None
    inputs: Content | None = None
    shape: Annotated[list[Size], Field(min_length=1, max_length=3)] | None = None
    classes: Annotated[int, Field(ge=2, le=MOST_CLASSES)] | None = None
    vocabulary: Count | None = None
    test_share: Share | None = None
    task: Task | None = None
    tokenizer: FilePath | None = None
    length: Annotated[int, Field(ge=2, le=MOST_NUMBERS)] | None = None
    mask: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None

    @property
    def is_language(self) -> bool:
        """Whether the targets are the tokens themselves, and the samples need no label."""
        return self.task in LANGUAGE


@dataclass(frozen=True, slots=True)
class ColumnRoles:
    """The columns of a table by their role."""

    features: tuple[str, ...]
    label: str | None
    client: str | None
    is_test: str | None

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that are read."""
        others = (self.label, self.client, self.is_test)
        return (*self.features, *(name for name in others if name is not None))

    def taken(self, where: str, held: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return a table's columns under the names of the arrays."""
        wide = [held[name] for name in self.features]
        if len(wide) == 1:
            x = wide[0]
        else:
            for name, values in zip(self.features, wide, strict=True):
                if values.ndim != 1 or values.dtype.kind not in "biuf":
                    raise ConfigurationError(
                        f"{where}: {name}: must hold numbers, or be the only feature: name the "
                        f"columns with data.options.features"
                    )
            with np.errstate(over="ignore"):  # what is too large is refused with its row
                x = np.stack([values.astype(np.float32) for values in wide], axis=1)
        result = {"x": x}
        if self.label is not None:
            result["y"] = held[self.label]
        if self.client is not None:
            result["client"] = held[self.client]
        if self.is_test is not None:
            result["is_test"] = held[self.is_test]
        return result


def column_roles(
    where: str, names: Sequence[str], options: FileOptions, features: tuple[str, ...] = ()
) -> ColumnRoles:
    """Return which column has which role, by the options or by the usual names.

    Raises:
        ConfigurationError: a column is missing, or two have the same role.
    """

    def column(role: str, usual: tuple[str, ...]) -> str | None:
        given = getattr(options, role)
        present = [name for name in ((given,) if given else usual) if name in names]
        if len(present) > 1:
            raise ConfigurationError(
                f"{where}: {' and '.join(present)}: choose one with data.options.{role}"
            )
        if given and not present:
            _refuse_missing(where, names, f"data.options.{role} = {given}")
        return present[0] if present else None

    label = None if options.is_language else column("label", LABELS)
    if label is None and not options.is_language:
        _refuse_missing(where, names, f"its labels, {' or '.join(LABELS)}")
    client, is_test = column("client", CLIENTS), column("is_test", TESTS)
    others = [name for name in names if name not in {label, client, is_test}]
    chosen = features or tuple(options.features or ((X,) if X in others else others))
    for name in chosen:
        if name not in names:
            _refuse_missing(where, names, f"its inputs, {name}")
    if not chosen:
        _refuse_missing(where, names, "its inputs")
    given = (*chosen, *(role for role in (label, client, is_test) if role is not None))
    twice = next((name for name, count in Counter(given).items() if count > 1), None)
    if twice is not None:
        raise ConfigurationError(f"{where}: {twice}: is named twice; a column has one role")
    return ColumnRoles(chosen, label, client, is_test)


def _refuse_missing(where: str, names: Sequence[str], wanted: str) -> NoReturn:
    raise ConfigurationError(f"{where}: has {', '.join(names)[:200]}, and lacks {wanted}")
