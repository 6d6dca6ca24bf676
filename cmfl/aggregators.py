"""Robust aggregators on plain arrays: many updates in, one out.

Updates are the rows of a matrix of shape (n, d), or n vectors of shape (d,); CPU tensors do as
well. The result has shape (d,), float64. They are the rules that `cmfl.compare` plays; each class
in `clients.aggregators` names its paper.

    cmfl.aggregators.krum(updates, f=2)
    cmfl.aggregators.median(updates, pre=[("NNM", {"f": 2})])    # after nearest-neighbour mixing

A function raises ConfigurationError for an unknown name, a wrong option, or too few updates for it;
ValueError for shapes that do not fit and numbers that are not finite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clients.aggregators import Aggregation, aggregator_named, pre_aggregator_named
from cmfl.arguments import NUMBER, TABLE, TEXT, require
from cmfl.rules import matrix, numbers
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    Pre = Sequence[tuple[str, Mapping[str, object]]]

__all__ = [
    "aggregate",
    "centered_clipping",
    "fedavg",
    "geometric_median",
    "krum",
    "median",
    "multi_krum",
    "trimmed_mean",
]

Vector = NDArray[np.float64]


def fedavg(updates: ArrayLike, weights: ArrayLike | None = None, *, pre: Pre = ()) -> Vector:
    """Return the mean of the updates, weighted by the samples behind each.

    Args:
        updates: updates, shape (n, d).
        weights: numbers above 0, shape (n,); equal ones if not given.
        pre: pre-aggregators with their options, in order: "NNM" (f) and "Bucketing" (s).
    """
    return aggregate("FedAvg", updates, weights=weights, pre=pre)


def median(updates: ArrayLike, *, pre: Pre = ()) -> Vector:
    """Return the median of each coordinate; see `fedavg` for the arguments."""
    return aggregate("Median", updates, pre=pre)


def trimmed_mean(updates: ArrayLike, f: int, *, pre: Pre = ()) -> Vector:
    """Return the mean of each coordinate without the f smallest and the f largest, 2f < n."""
    return aggregate("TrMean", updates, {"f": f}, pre=pre)


def krum(updates: ArrayLike, f: int, *, pre: Pre = ()) -> Vector:
    """Return the update in the densest place; f updates may be anything, 2f + 2 < n."""
    return aggregate("Krum", updates, {"f": f}, pre=pre)


def multi_krum(
    updates: ArrayLike,
    f: int,
    m: int | None = None,
    weights: ArrayLike | None = None,
    *,
    pre: Pre = (),
) -> Vector:
    """Return the mean of the m updates in the densest places, n − f of them if m is not given."""
    options: dict[str, object] = {"f": f, "weighted": weights is not None}
    if m is not None:
        options["m"] = m
    return aggregate("MultiKrum", updates, options, weights=weights, pre=pre)


def geometric_median(
    updates: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    nu: float = 0.1,
    steps: int = 3,
    pre: Pre = (),
) -> Vector:
    """Return nearly the point with the smallest sum of distances, by Weiszfeld's steps.

    No distance below `nu`, which is above 0, is divided by.
    """
    require(NUMBER, nu=nu)
    options = {"nu": float(nu), "T": steps, "weighted": weights is not None}
    return aggregate("GeometricMedian", updates, options, weights=weights, pre=pre)


def centered_clipping(
    updates: ArrayLike, tau: float, *, last: ArrayLike | None = None, steps: int = 1, pre: Pre = ()
) -> Vector:
    """Return the last aggregate, moved by the clipped differences of the updates from it.

    One update can pull by a length of at most `tau`, above 0; see `aggregate` for `last`.
    """
    require(NUMBER, tau=tau)
    options = {"tau": float(tau), "L": steps}
    return aggregate("CenteredClipping", updates, options, last=last, pre=pre)


def aggregate(
    name: str,
    updates: ArrayLike,
    options: Mapping[str, object] | None = None,
    *,
    weights: ArrayLike | None = None,
    last: ArrayLike | None = None,
    pre: Pre = (),
    rng: np.random.Generator | None = None,
) -> Vector:
    """Return one vector of many by the name of an aggregator, as experiments name it.

    Args:
        name: one of FedAvg, Median, TrMean, Krum, MultiKrum, GeometricMedian, CenteredClipping,
            FLTrust and DnC.
        updates: shape (n, d), finite.
        options: settings of the aggregator.
        weights: numbers above 0, shape (n,); equal ones if not given.
        last: the aggregate of the round before, or for FLTrust the server's own update, shape
            (d,); zeros if not given.
        pre: pre-aggregators with their options, in order.
        rng: chance of Bucketing and DnC, which need it.
    """
    rows = matrix("updates", updates, keeps_float64=True)
    require(TEXT, name=name)
    if options is not None:
        require(TABLE, options=options)
    try:
        stages = tuple(pre_aggregator_named(stage, dict(given)) for stage, given in pre)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"pre = {pre!r:.80}: must be pairs of a name and a dict of options"
        ) from error
    aggregation = Aggregation(aggregator_named(name, dict(options or {})), stages)
    aggregation.require(len(rows))
    if rng is None and (draws := {"Bucketing", "DnC"} & {name, *(stage for stage, _ in pre)}):
        raise ConfigurationError(f"{min(draws)} draws: give rng=np.random.default_rng(seed)")
    count, dimension = rows.shape
    weighed: Any = np.ones(count) if weights is None else numbers("weights", weights)
    if weighed.shape != (count,) or not (np.isfinite(weighed).all() and (weighed > 0).all()):
        raise ValueError(f"weights: must be {count} finite numbers above 0")
    before = np.zeros(dimension) if last is None else numbers("last", last)
    if before.shape != (dimension,):
        raise ValueError(f"last: must have {dimension} numbers, not {before.shape}")
    chance = rng or np.random.default_rng(0)
    selection = aggregation.aggregate(list(rows), weighed, before, chance, are_finite=True)
    assert selection is not None, "the number of updates was checked"
    return selection.vector
