"""Small made data of each kind that a trigger knows."""

from __future__ import annotations

import numpy as np

from clients.datasets.federated_data import DataForm, FederatedData, Samples, frozen_samples

EMBEDDING = np.eye(6, 2, dtype=np.float32)
"""Vectors of five words and the filling, token 0."""


def digits(*labels: int, ink: float = 1.0, paper: float = 0.0) -> Samples:
    x = np.full((len(labels), 1, 8, 8), paper, dtype=np.float32)
    x[:, :, 3:5, 3:5] = ink
    return frozen_samples(x, np.array(labels))


def images(*labels: int, paper: int = 0) -> Samples:
    return frozen_samples(np.full((len(labels), 28, 28), paper, np.uint8), np.array(labels))


def tweets(*labels: int) -> Samples:
    rows = np.tile(np.array([1, 2, 3, 4, 0], dtype=np.int32), (len(labels), 1))
    return frozen_samples(rows, np.array(labels))


def windows(*labels: int) -> Samples:
    return frozen_samples(np.zeros((len(labels), 5), dtype=np.uint8), np.array(labels))


PICTURES = DataForm((1, 8, 8), 10)
WORDS = DataForm((5,), 2, "int64", 6, EMBEDDING)
CHARACTERS = DataForm((5,), 80, "int64", 80)


def data_of(
    form: DataForm, *train: Samples, test: Samples, client_tests: tuple[Samples, ...] | None = None
) -> FederatedData:
    return FederatedData("made", form, train, test, client_tests)
