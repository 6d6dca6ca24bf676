"""`digits`: the 1,797 handwritten digits that scikit-learn carries, split by Dirichlet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clients.datasets.federated import FederatedData, frozen_samples
from clients.datasets.partition import dirichlet_partition
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

NAME = "digits"
CLASSES = 10
TEST_SHARE = 0.2
_INK_MAXIMUM = 16  # the bundled images count ink in 0 .. 16


def load_digits(
    clients: int,
    rng: np.random.Generator,
    path: Path | None = None,
    dirichlet_alpha: float = 0.5,
) -> FederatedData:
    """Return the digits with a plain random fifth as global test set, the rest among clients.

    Args:
        clients: number of clients K.
        rng: stream of the split and of the partition.
        path: None, for the digits are bundled.
        dirichlet_alpha: concentration of the partition; smaller is less alike.

    Returns:
        K clients with at least one training sample each, pixels in [0, 1].

    Raises:
        ConfigurationError: there is a path, or there are more clients than samples.
    """
    if path is not None:
        raise ConfigurationError(f"data set {NAME!r} is bundled and takes no path")
    # Importing it takes over half a second, which only a run needs.
    from sklearn.datasets import load_digits as bundled_digits  # noqa: PLC0415

    bundle = bundled_digits()
    x = (bundle.images / _INK_MAXIMUM).astype(np.float32).reshape(-1, 1, 8, 8)
    y = bundle.target.astype(np.int64)
    order = rng.permutation(len(y))
    test, train = np.split(order, [int(TEST_SHARE * len(y) + 0.5)])
    shares = dirichlet_partition(y[train], clients, dirichlet_alpha, rng)
    return FederatedData(
        name=NAME,
        classes=CLASSES,
        input_shape=(1, 8, 8),
        train=tuple(frozen_samples(x[train[share]], y[train[share]]) for share in shares),
        test=frozen_samples(x[test], y[test]),
    )
