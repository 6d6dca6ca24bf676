"""A data set that is already divided among clients: what training and evaluation see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Inputs = NDArray[np.float32]
Labels = NDArray[np.int64]


class Samples(NamedTuple):
    """Inputs and their labels, one row each; unpacks as `x, y`."""

    x: Inputs
    y: Labels


@dataclass(frozen=True, slots=True, eq=False)
class FederatedData:
    """One data set, divided among clients.

    Attributes:
        name: the data set's name in the registry.
        classes: number of classes; labels are 0 .. classes - 1.
        input_shape: shape of one input, (channels, height, width).
        train: training samples of client i at index i, never empty.
        test: the global test set: what accuracy and loss are measured on.
        client_tests: test samples of client i at index i, where the data has natural clients.
    """

    name: str
    classes: int
    input_shape: tuple[int, ...]
    train: tuple[Samples, ...]
    test: Samples
    client_tests: tuple[Samples, ...] | None = None

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
        x: inputs, shape (n, channels, height, width).
        y: labels, shape (n,).

    Returns:
        The same samples, read-only, float32 and int64.
    """
    inputs = np.array(x, dtype=np.float32, order="C")
    labels = np.array(y, dtype=np.int64, order="C")
    inputs.setflags(write=False)
    labels.setflags(write=False)
    return Samples(inputs, labels)
