"""A data set before its division: as its files have it, and as models take it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clients.datasets.federated_data import Collate, DataForm, Inputs, Labels, as_stored
from ledger.protocol.errors import ConfigurationError

Indices = NDArray[np.int64]
"""Rows of samples."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How a user's own data were read.

    Attributes:
        features: names of the columns or the array of the inputs.
        outputs: number of outputs that a model gets; None where tokens are the targets.
        notes: sentences about what may be another thing than the user meant.
    """

    features: tuple[str, ...]
    outputs: int | None
    lines: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """All samples of a data set, not prepared for models.

    Attributes:
        x: content of the files per sample: an image, a window of characters, a text.
        y: labels, shape (n,).
        owner: owner of each sample, as an index into `owners`; None without natural clients.
        owners: names of the natural clients, in client order.
        is_test: whether each sample is for the test; None if the files do not say.
        reading: how a user's own data were read; None of a data set of this project.
    """

    x: NDArray[Any]
    y: Labels
    owner: NDArray[np.int64] | None = None
    owners: tuple[str, ...] = ()
    is_test: NDArray[np.bool_] | None = None
    reading: Reading | None = None


@dataclass(frozen=True, slots=True, eq=False)
class PooledData:
    """All samples of a data set, prepared for models and not yet divided.

    Attributes:
        y: labels, shape (n,).
        owner: owner of each row, as an index into `owners`; None without natural clients.
        owners: names of the natural clients, in client order.
    """

    form: DataForm
    x: Inputs
    y: Labels
    train: Indices
    test: Indices
    owner: NDArray[np.int64] | None = None
    owners: tuple[str, ...] = ()
    owned_by: str = "clients"
    collate: Collate = as_stored
    source: str = "the data"


def numbered(owners: Sequence[str] | NDArray[Any]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return the number of each sample's owner, shape (n,), and the owners' names, ascending."""
    if isinstance(owners, np.ndarray):
        distinct, numbers = np.unique(owners, return_inverse=True)
        return numbers.astype(np.int64), tuple(str(name) for name in distinct)
    names = tuple(sorted(set(owners)))
    number = {name: number_ for number_, name in enumerate(names)}
    return np.array([number[name] for name in owners], dtype=np.int64), names


def pooled(
    records: Records,
    is_test: NDArray[np.bool_],
    form: DataForm,
    x: Inputs,
    collate: Collate,
    owned_by: str,
) -> PooledData:
    """Return records prepared for models.

    Args:
        is_test: whether each is for the test, shape (n,).
    """
    return PooledData(
        form=form,
        x=x,
        y=records.y,
        train=np.flatnonzero(~is_test),
        test=np.flatnonzero(is_test),
        owner=records.owner,
        owners=records.owners,
        owned_by=owned_by,
        collate=collate,
    )


def require_trained(
    counts: NDArray[np.int64], owners: tuple[str, ...], owned_by: str, source: str
) -> None:
    """Reject natural clients without training samples."""
    if not counts.all():
        name = owners[int(np.argmin(counts))]
        raise ConfigurationError(f"{source}: {name!r} of the {owned_by} has no training sample")


def held_out(
    records: Records, share: float | None, rng: np.random.Generator, usual: float = 0.2
) -> NDArray[np.bool_]:
    """Return whether each sample is for the test: from the files, else a share per owner.

    Args:
        share: of each owner's samples, rounded; None for the default. An owner's last sample is
            always for training.
        usual: the default share.

    Returns:
        Shape (n,).
    """
    if records.is_test is not None:
        if share is not None:
            raise ConfigurationError(
                f"data.options.test_share = {share} has no effect: the files say which samples "
                "are for the test"
            )
        return records.is_test
    if records.owner is None:
        raise ValueError("records without owners and without a split")
    counts = np.bincount(records.owner, minlength=len(records.owners))
    test_counts = np.minimum(np.floor(counts * (share or usual) + 0.5).astype(np.int64), counts - 1)
    shuffled = rng.permutation(len(records.y))
    order = shuffled[np.argsort(records.owner[shuffled], kind="stable")]
    rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    is_test = np.zeros(len(order), dtype=np.bool_)
    is_test[order] = rank < np.repeat(test_counts, counts)
    return is_test
