"""Digits of 60 clients, and softmax regression by local SGD."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from benchmarks.crowding.rule import Array

CLIENTS, PIXELS, CLASSES = 60, 65, 10  # 8 x 8 pixels, and a one for the bias
BATCH, STEPS, RATE = 16, 5, 1.0


@dataclass(frozen=True, slots=True)
class Federation:
    """Clients' digits, padded with zeros to the largest client's, and the test set."""

    x: Array  # (clients, samples, pixels)
    y: Array  # (clients, samples, classes)
    sizes: Array
    test_x: Array
    test_y: Array

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Federation:
        """Keep a fifth for the test and divide the rest, until each client has a sample."""
        from sklearn.datasets import load_digits  # noqa: PLC0415 - takes half a second

        digits = load_digits()
        x = np.column_stack([digits.data / 16, np.ones(len(digits.data))])
        order = rng.permutation(len(x))
        test, train = np.split(order, [round(len(x) / 5)])
        owner, sizes = np.zeros(len(train), dtype=int), np.zeros(CLIENTS, dtype=int)
        while not sizes.min():
            for label in range(CLASSES):
                rows = np.flatnonzero(digits.target[train] == label)
                ends = np.cumsum(rng.dirichlet(np.full(CLIENTS, 0.5)))[:-1] * len(rows)
                owner[rows] = np.searchsorted(ends, np.arange(len(rows)), side="right")
            sizes = np.bincount(owner, minlength=CLIENTS)
        of_x, of_y = (np.zeros((CLIENTS, sizes.max(), width)) for width in (PIXELS, CLASSES))
        for client in range(CLIENTS):
            rows = train[owner == client]
            of_x[client, : len(rows)] = x[rows]
            of_y[client, np.arange(len(rows)), digits.target[rows]] = 1
        return cls(of_x, of_y, sizes, x[test], digits.target[test])

    def updates(self, model: Array, clients: Array, rng: np.random.Generator) -> Array:
        """Return w_t minus the model after local SGD, one row for each client."""
        local = np.tile(model.reshape(1, PIXELS, CLASSES), (len(clients), 1, 1))
        is_padding = np.arange(self.x.shape[1]) >= self.sizes[clients, None]
        for _ in range(STEPS):
            order = (rng.random(is_padding.shape) + is_padding).argsort(axis=1)[:, :BATCH]
            x, y = self.x[clients[:, None], order], self.y[clients[:, None], order]
            local -= RATE * gradient(local, x, y)
        return np.asarray(model - local.reshape(len(clients), -1))

    def accuracy(self, model: Array) -> float:
        """Return the share of the test set that is right."""
        right = (self.test_x @ model.reshape(PIXELS, CLASSES)).argmax(axis=1) == self.test_y
        return float(right.mean())


def gradient(model: Array, x: Array, y: Array) -> Array:
    """Return the gradient of the mean cross-entropy; rows of y that are zero do not count."""
    logits = x @ model
    likely = np.exp(logits - logits.max(axis=-1, keepdims=True))
    counted = y.sum(axis=-1, keepdims=True)
    wrong = (likely / likely.sum(axis=-1, keepdims=True) - y) * counted
    return np.asarray(np.swapaxes(x, -1, -2) @ wrong / counted.sum(axis=-2, keepdims=True))


def flipped_model(federation: Federation, malicious: Array) -> Array:
    """Return w_bad: 200 full steps on the colluders' samples with labels y + 1."""
    x, y = (part[malicious].reshape(-1, part.shape[2]) for part in (federation.x, federation.y))
    model = np.zeros((PIXELS, CLASSES))
    for _ in range(200):
        model -= RATE * gradient(model, x, np.roll(y, 1, axis=1))
    return model.ravel()
