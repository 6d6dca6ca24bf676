"""Made data of every form that the built-in models take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clients.datasets.federated_data import DataForm, FederatedData, Samples

if TYPE_CHECKING:
    from clients.models.model import Option

IMAGES = DataForm((1, 28, 28), 62)
CHARACTERS = DataForm((80,), 80, "int64", vocabulary=80)


def words(width: int, vocabulary: int = 10) -> DataForm:
    vectors = np.random.default_rng(8).standard_normal((vocabulary, width)).astype(np.float32)
    return DataForm((25,), 2, "int64", vocabulary, vectors)


SCALED_DOWN: list[tuple[str, DataForm, dict[str, Option]]] = [
    ("softmax", IMAGES, {}),
    ("cnn", IMAGES, {}),
    ("leaf_cnn", IMAGES, {"hidden": 8}),
    ("alexnet", IMAGES, {"hidden": 8}),
    ("sent140_lstm", words(6), {"hidden": 5}),
    ("shakespeare_lstm", CHARACTERS, {"hidden": 5}),
    ("mlp", IMAGES, {"hidden": 4}),
]
"""Every built-in model, as small as it can be."""


def samples(form: DataForm, count: int, seed: int = 0) -> Samples:
    rng = np.random.default_rng(seed)
    shape = (count, *form.input_shape)
    x = rng.integers(0, form.vocabulary, shape) if form.vocabulary else rng.random(shape, "float32")
    return Samples(x, rng.integers(0, form.classes, count))


def made(form: DataForm, clients: int = 2, count: int = 4) -> FederatedData:
    train = tuple(samples(form, count, seed) for seed in range(clients))
    return FederatedData("made", form, train, samples(form, 2 * count, 99))
