"""The data sets by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.datasets import digits, digits_by_writer
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

    from clients.datasets.federated import FederatedData

DATASETS = (digits.NAME, digits_by_writer.NAME)


def load_dataset(
    name: str,
    clients: int,
    rng: np.random.Generator,
    path: Path | None = None,
    dirichlet_alpha: float = 0.5,
) -> FederatedData:
    """Return a data set, divided among clients; the same for the same arguments and stream.

    Args:
        name: one of `DATASETS`.
        clients: number of clients K.
        rng: stream of the division.
        path: the file, for data sets that are not bundled.
        dirichlet_alpha: concentration of the partition, for data without natural clients.

    Returns:
        The divided data.

    Raises:
        ConfigurationError: unknown name, a path missing or superfluous, more clients than
            data, or a file that is damaged or breaks a rule.
    """
    if name not in DATASETS:
        raise ConfigurationError(f"unknown data set {name!r}; known are {', '.join(DATASETS)}")
    if name == digits.NAME:
        if path is not None:
            raise ConfigurationError(f"data set {name!r} is bundled and takes no path")
        return digits.load_digits(clients, rng, dirichlet_alpha)
    if path is None:
        raise ConfigurationError(f"data set {name!r} needs the path of its .npz file")
    return digits_by_writer.load_digits_by_writer(clients, rng, path)
