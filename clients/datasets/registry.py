"""The data sets by name: a new one takes its file and one line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.datasets.digits import load_digits
from clients.datasets.digits_by_writer import load_digits_by_writer
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np

    from clients.datasets.federated import FederatedData

DATASETS: dict[str, Callable[[int, np.random.Generator, Path | None, float], FederatedData]] = {
    "digits": load_digits,
    "digits-by-writer": load_digits_by_writer,
}


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
    return DATASETS[name](clients, rng, path, dirichlet_alpha)
