"""Making a model's inputs of rows that are stored small; functions that can be pickled by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clients.datasets.federated_data import Inputs

_BRIGHTEST = np.float32(255)


def as_pictures(rows: Inputs) -> NDArray[np.float32]:
    """Return grey images of bytes as numbers in [0, 1].

    Args:
        rows: uint8, shape (n, height, width).

    Returns:
        Shape (n, 1, height, width).
    """
    return rows[:, None].astype(np.float32) / _BRIGHTEST


def as_brightness(rows: Inputs) -> NDArray[np.float32]:
    """Return bytes as numbers in [0, 1], in whatever shape they have.

    Args:
        rows: uint8, one row for each input.
    """
    return rows.astype(np.float32) / _BRIGHTEST


def as_tokens(rows: Inputs) -> NDArray[np.int64]:
    """Return tokens as what an embedding is indexed by.

    Args:
        rows: whole numbers of any width, shape (n, tokens).
    """
    return rows.astype(np.int64)
