"""A data set that is already divided among clients: what training and evaluation see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Inputs = NDArray[Any]
"""One row per sample, as the data set stores it: pixels as bytes, tokens, whatever is small."""

Labels = NDArray[np.int64]

Collate = Callable[[Inputs], NDArray[Any]]
"""Makes a model's inputs of stored rows: a function of a module, so that it can be pickled."""


class Samples(NamedTuple):
    """Stored inputs and their labels, one row each; unpacks as `x, y`."""

    x: Inputs
    y: Labels


@dataclass(frozen=True, slots=True, eq=False)
class DataForm:
    """What a model has to know of the data.

    Attributes:
        input_shape: shape of one collated input: (channels, height, width), or (tokens,).
        classes: number of classes; labels are 0 .. classes - 1.
        input_dtype: type of a collated input: numbers, or tokens 0 .. vocabulary - 1.
        vocabulary: number of different tokens; None where inputs are no tokens.
        embedding: a fixed vector of each token, shape (vocabulary, width); None without.
    """

    input_shape: tuple[int, ...]
    classes: int
    input_dtype: Literal["float32", "int64"] = "float32"
    vocabulary: int | None = None
    embedding: NDArray[np.float32] | None = None


def as_stored(rows: Inputs) -> NDArray[Any]:
    """Return rows that are a model's inputs as they are."""
    return rows


@dataclass(frozen=True, slots=True, eq=False)
class FederatedData:
    """One data set, divided among clients.

    Attributes:
        name: the data set's name in the registry.
        form: what a model has to know of it.
        train: training samples of client i at index i, never empty.
        test: the global test set: what accuracy and loss are measured on.
        client_tests: test samples of client i at index i, where the data has natural clients.
        collate: makes a model's inputs of stored rows.
    """

    name: str
    form: DataForm
    train: tuple[Samples, ...]
    test: Samples
    client_tests: tuple[Samples, ...] | None = None
    collate: Collate = as_stored

    @property
    def clients(self) -> int:
        """Number of clients K."""
        return len(self.train)

    @property
    def sample_counts(self) -> tuple[int, ...]:
        """Training samples n_i of each client, at index i: the weights of aggregation."""
        return tuple(len(samples.y) for samples in self.train)


def frozen_samples(x: Inputs, y: Labels) -> Samples:
    """Return contiguous samples that nobody can write to, for they are shared by all actors.

    Args:
        x: stored inputs, one row each.
        y: labels, shape (n,).

    Returns:
        The same samples, read-only, labels as int64.
    """
    inputs = np.array(x, order="C")
    labels = np.array(y, dtype=np.int64, order="C")
    inputs.setflags(write=False)
    labels.setflags(write=False)
    return Samples(inputs, labels)
