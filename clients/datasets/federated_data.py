"""A data set divided among clients, for training and evaluation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Inputs = NDArray[Any]
"""One row per sample, in the data set's compact form, such as bytes or tokens."""

Labels = NDArray[Any]
"""Targets, one row per sample: a class (int64), a class for each token (int64), or numbers
(float32)."""

Task = Literal["classify", "causal-lm", "masked-lm", "token-classify", "regress"]
"""What a model learns: the class of a sample, the next token, the hidden tokens, the class of each
token, or numbers."""

LANGUAGE: frozenset[Task] = frozenset({"causal-lm", "masked-lm"})
"""Tasks whose classes are the tokens of the vocabulary."""

PER_TOKEN: frozenset[Task] = LANGUAGE | {"token-classify"}
"""Tasks with a target for each token."""

NO_TARGET = -100
"""Target of a token that is not counted: padding, or nothing to predict."""

NO_TOKEN = -1
"""Input after the last token of a sequence that is shorter than the longest."""

Collate = Callable[[Inputs], NDArray[Any]]
"""Makes a model's inputs of stored rows; a function of a module, so that it can be pickled."""


class Samples(NamedTuple):
    """Stored inputs and their labels, one row each; unpacks as `x, y`."""

    x: Inputs
    y: Labels


@dataclass(frozen=True, slots=True, eq=False)
class DataForm:
    """The form of the data that a model depends on.

    Attributes:
        input_shape: shape of one collated input: (channels, height, width), or (tokens,).
        classes: number of classes; labels are 0 .. classes - 1. Of `regress` the outputs.
        input_dtype: type of a collated input: numbers, or tokens 0 .. vocabulary - 1.
        vocabulary: number of distinct tokens; None if inputs are not tokens.
        embedding: fixed vector of each token, shape (vocabulary, width); None without.
    """

    input_shape: tuple[int, ...]
    classes: int
    input_dtype: Literal["float32", "int64"] = "float32"
    vocabulary: int | None = None
    embedding: NDArray[np.float32] | None = None
    task: Task = "classify"


def as_stored(rows: Inputs) -> NDArray[Any]:
    """Return rows that are a model's inputs already."""
    return rows


@dataclass(frozen=True, slots=True, eq=False)
class FederatedData:
    """A data set divided among clients.

    Attributes:
        train: training samples of client i at index i, never empty.
        client_tests: test samples of client i at index i, if the data have natural clients.
        registered: number of each client's training samples by the registry, where the samples of
            some clients are not here; None where all are.
        about: sentences about how a user's own data were read.
    """

    name: str
    form: DataForm
    train: tuple[Samples, ...]
    test: Samples
    client_tests: tuple[Samples, ...] | None = None
    collate: Collate = as_stored
    registered: tuple[int, ...] | None = None
    about: tuple[str, ...] = ()

    @property
    def clients(self) -> int:
        """Number of clients K."""
        return len(self.train)

    @property
    def sample_counts(self) -> tuple[int, ...]:
        """Number of training samples n_i of each client: the weights of aggregation."""
        if self.registered is not None:
            return self.registered
        return tuple(len(samples.y) for samples in self.train)


def frozen_samples(x: Inputs, y: Labels) -> Samples:
    """Return contiguous, read-only samples, which all actors share.

    Labels are int64, or float32 if they are numbers to regress.
    """
    inputs = np.array(x, order="C")
    kind = np.float32 if np.asarray(y).dtype.kind == "f" else np.int64
    labels = np.array(y, dtype=kind, order="C")
    inputs.setflags(write=False)
    labels.setflags(write=False)
    return Samples(inputs, labels)
