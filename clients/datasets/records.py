"""A data set as a whole: as its files have it, then as models take it, not yet divided."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clients.datasets.federated_data import as_stored
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clients.datasets.federated_data import Collate, DataForm, Inputs, Labels

Indices = NDArray[np.int64]
"""Which samples, by their row."""


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """All samples of a data set, before any is prepared for a model.

    Attributes:
        x: what its files have of each sample: an image, a window of characters, a text.
        y: labels, shape (n,).
        owner: whose each sample is, as an index into `owners`; None without natural clients.
        owners: names of the natural clients, in client order.
        is_test: whether the files have each sample for the test; None where they do not say.
    """

    x: NDArray[Any]
    y: Labels
    owner: NDArray[np.int64] | None = None
    owners: tuple[str, ...] = ()
    is_test: NDArray[np.bool_] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class PooledData:
    """All samples of a data set as models take them, before they are divided among clients.

    Attributes:
        form: what a model has to know.
        x: inputs as stored, one row each.
        y: labels, shape (n,).
        train: rows of the training samples.
        test: rows of the test samples.
        owner: whose each row is, as an index into `owners`; None without natural clients.
        owners: names of the natural clients, in client order.
        owned_by: what the natural clients are called: "writers".
        collate: makes a model's inputs of stored rows.
        source: what refusals call the data: their path.
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
    """Return the number of each sample's owner, and the owners' names in ascending order.

    Args:
        owners: of each sample, names or numbers.

    Returns:
        Shape (n,), and the names by number.
    """
    if isinstance(owners, np.ndarray):
        known, numbers = np.unique(owners, return_inverse=True)
        return numbers.astype(np.int64), tuple(str(name) for name in known)
    names = tuple(sorted(set(owners)))
    number = {name: place for place, name in enumerate(names)}
    return np.array([number[name] for name in owners], dtype=np.int64), names


def pooled(
    records: Records,
    is_test: NDArray[np.bool_],
    prepare: Callable[[NDArray[Any]], tuple[DataForm, Inputs]],
    collate: Collate,
    owned_by: str,
) -> PooledData:
    """Return records as models take them.

    Args:
        records: of the data set's files.
        is_test: which of them are for the test, shape (n,).
        prepare: makes form and stored inputs of what the files have.
        collate: makes a model's inputs of stored rows.
        owned_by: what the natural clients are called.
    """
    form, x = prepare(records.x)
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
    held: NDArray[np.int64], owners: tuple[str, ...], owned_by: str, source: str
) -> None:
    """Refuse natural clients of whom one has nothing to train on.

    Args:
        held: training samples of each.
        owners: their names.
        owned_by: what they are called.
        source: what the data are called.

    Raises:
        ConfigurationError: names the first of them.
    """
    if not held.all():
        name = owners[int(np.argmin(held))]
        raise ConfigurationError(f"{source}: {name!r} of the {owned_by} has no training sample")


def held_out(
    records: Records, share: float | None, rng: np.random.Generator, usual: float = 0.2
) -> NDArray[np.bool_]:
    """Return which samples are for the test: as the files say, else a share of each owner's.

    Args:
        records: of the data set's files, with owners.
        share: of each owner's samples, rounded to whole ones; None for the usual one. An owner's
            last sample is never taken from its training.
        rng: draws the samples that are held out.
        usual: the share where none is given.

    Returns:
        Shape (n,).

    Raises:
        ConfigurationError: there is a share, but the files have a split of their own.
        ValueError: the records have neither owners nor a split.
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
    held = np.bincount(records.owner, minlength=len(records.owners))
    taken = np.minimum(np.floor(held * (share or usual) + 0.5).astype(np.int64), held - 1)
    shuffled = rng.permutation(len(records.y))
    order = shuffled[np.argsort(records.owner[shuffled], kind="stable")]
    place = np.arange(len(order)) - np.repeat(np.cumsum(held) - held, held)
    is_test = np.zeros(len(order), dtype=np.bool_)
    is_test[order] = place < np.repeat(taken, held)
    return is_test
