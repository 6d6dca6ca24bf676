"""Functions that make a model's inputs of compactly stored rows; they can be pickled by name."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clients.datasets.federated_data import Inputs

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
