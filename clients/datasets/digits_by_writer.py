"""`digits-by-writer`: 10,000 handwritten 28 × 28 digits, one client for each of 297 writers.

The file is an `.npz` with `image` (0 background, 255 ink), `label`, `writer` and `is_test`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clients.datasets.archive import ArrayRule, read_arrays
from clients.datasets.federated import FederatedData, Samples, frozen_samples
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

NAME = "digits-by-writer"
CLASSES = 10
RULES = {
    "image": ArrayRule("|u1", (None, 28, 28), 0, 255),
    "label": ArrayRule("|u1", (None,), 0, CLASSES - 1),
    "writer": ArrayRule("<i2", (None,), 0, 2**15 - 1),
    "is_test": ArrayRule("|u1", (None,), 0, 1),
}


def load_digits_by_writer(
    clients: int,
    rng: np.random.Generator,
    path: Path | None = None,
    dirichlet_alpha: float = 0.5,  # noqa: ARG001 - one signature for all data sets
) -> FederatedData:
    """Return the digits of K writers, drawn by `rng` and numbered in writer order.

    The file's own division into training and test samples is kept; the global test set is the
    chosen writers' test samples, in client order.

    Args:
        clients: number of clients K; each is one writer.
        rng: stream that draws the writers.
        path: the `.npz` file.
        dirichlet_alpha: not used: the writers are the clients.

    Returns:
        K clients with at least one training sample each, pixels in [0, 1].

    Raises:
        ConfigurationError: there is no path, the file is damaged or breaks a rule, or it has
            fewer than K writers.
    """
    if path is None:
        raise ConfigurationError(f"data set {NAME!r} needs the path of its .npz file")
    arrays = read_arrays(path, RULES)
    writer, is_test = arrays["writer"], arrays["is_test"].astype(bool)
    writers = np.unique(writer)
    if not 1 <= clients <= len(writers):
        raise ConfigurationError(
            f"more clients than data: {clients} clients, but {path} has {len(writers)} writers"
            if clients > len(writers)
            else f"clients = {clients}: at least 1 is needed"
        )
    if untrained := sorted(set(writers.tolist()) - set(writer[~is_test].tolist())):
        raise ConfigurationError(f"{path}: writer {untrained[0]} has no training sample")
    chosen = np.sort(rng.choice(writers, clients, replace=False))

    def samples(rows: np.ndarray) -> Samples:
        x = arrays["image"][rows].astype(np.float32) / np.float32(255)
        return frozen_samples(x.reshape(-1, 1, 28, 28), arrays["label"][rows])

    tests = tuple(samples((writer == one) & is_test) for one in chosen)
    if not any(len(test.y) for test in tests):
        raise ConfigurationError(f"{path}: no test samples of the {clients} writers chosen")
    return FederatedData(
        name=NAME,
        classes=CLASSES,
        input_shape=(1, 28, 28),
        train=tuple(samples((writer == one) & ~is_test) for one in chosen),
        test=frozen_samples(
            np.concatenate([test.x for test in tests]),
            np.concatenate([test.y for test in tests]),
        ),
        client_tests=tests,
    )
