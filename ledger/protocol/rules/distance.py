"""Computations on whole updates: distances, and the server step of Eq. globalUpdate.

The distance follows Eq. computeScore, or a user's own function. Orders of summation differ, so a
published distance is true within a margin.

An own distance's name in the parameters is `LABEL@sha256:DIGEST`, so that the run document binds
the code. The functions come from files that each participant and auditor names
(`ledger.io.user_code`); without its function a rule can be named, and not computed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ledger.protocol.documents.record import DISTANCE_LIMIT
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.rules.direction import direction_distances
from ledger.protocol.types import ClientId

RELATIVE_TOLERANCE = 1e-9  # between a published distance and the recomputed one
Layout = tuple[tuple[str, tuple[int, ...]], ...]  # each tensor, in the flat vector's order
Updates = Mapping[ClientId, NDArray[np.float32]]  # usable updates of one round, each of shape (d,)
Travel = NDArray[np.float32] | None  # w_s − w_t, shape (d,); None where no distance depends on it


@dataclass(frozen=True, slots=True)
class DistanceRule:
    """A way to score an update."""

    name: str  # as in the run document; strategy III's is in none
    sentence: str  # "by ... to the members"
    between: Callable[[NDArray[np.float32], NDArray[np.float32]], float] | None
    absolute_tolerance: float = 0.0  # absolute part of the margin, where `between` is given


Distances = Callable[[DistanceRule, Travel, Updates, Sequence[ClientId]], NDArray[np.float64]]
"""Computes all distances of a round at once; `plain_distances` is the one all others equal."""


def plain_distances(
    rule: DistanceRule, travel: Travel, updates: Updates, members: Sequence[ClientId]
) -> NDArray[np.float64]:
    """Return the distance of every update, clients ascending, from every member's, in rows."""
    clients = sorted(updates)
    if rule.between is None:
        return np.tile(direction_distances(updates, travel).distances, (len(members), 1))
    if len({updates[client].shape for client in clients}) > 1:
        raise ValueError("the updates differ in length")
    rows = [[rule.between(updates[k], updates[c]) for k in clients] for c in members]
    return np.array(rows, dtype=np.float64).reshape(len(members), len(clients))


Vector = NDArray[np.float32]  # shape (d,)
ServerStep = Callable[[Vector, Sequence[Vector], Sequence[float], float], Vector]
"""Computes w − η Σ_k a_k Δ_k from w, each Δ_k, each a_k and η, as `plain_server_step` does."""

_SUM_PART = 1 << 15  # numbers of the model that are summed at a time; changes no bit


def plain_server_step(
    model: Vector, updates: Sequence[Vector], weights: Sequence[float], rate: float
) -> Vector:
    """Return w − η Σ_k a_k Δ_k; the binding code.

    Every product and every sum is one IEEE operation in float64, in the order of the updates, and
    there is one rounding to float32 at the end: the same bytes on any processor.
    """
    result = np.empty(model.shape, dtype=np.float32)
    # Part by part: float64 copies of whole updates would not stay in cache.
    for start in range(0, len(model), _SUM_PART):
        part = slice(start, start + _SUM_PART)
        total = np.zeros(len(model[part]))
        for weight, update in zip(weights, updates, strict=True):
            total += weight * update[part].astype(np.float64)
        result[part] = moved(model[part], rate, total)
    return result


def moved(model: Vector, rate: float, total: NDArray[np.float64]) -> Vector:
    """Return w − η Δ, rounded to float32."""
    with np.errstate(over="ignore"):  # an overflow becomes inf, which no member votes for
        return (model.astype(np.float64) - rate * total).astype(np.float32)


def squared_distance(update: NDArray[np.float32], reference: NDArray[np.float32]) -> float:
    """Return D = ‖Δ_k − Δ_c‖², the paper's distance, accumulated in float64."""
    delta = update.astype(np.float64) - reference.astype(np.float64)
    parts = (delta[at : at + 2**16] for at in range(0, len(delta), 2**16))
    return float(sum(part @ part for part in parts))  # one sum would absorb small numbers


SQUARED = DistanceRule("squared", "squared distances", squared_distance)
DIRECTION = DistanceRule("direction", "distances of direction", None)


ABSOLUTE_TOLERANCE = 1e-12  # absolute part of the margin: a distance near 0 may be a difference
OWN_DISTANCES: dict[str, DistanceRule] = {}  # those that are loaded; a name determines the code

_NAME = re.compile(
    r"(?P<label>[\w.+-]{1,100}:(?P<function>[A-Za-z_]\w{0,99}))@sha256:(?P<digest>[0-9a-f]{64})",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class OwnRuleName:
    """The name of an own rule in parameters."""

    label: str
    function: str
    digest: str  # of the code, 64 hex digits

    @classmethod
    def of(cls, name: str) -> OwnRuleName | None:
        match = _NAME.fullmatch(name)
        return None if match is None else cls(**match.groupdict())

    def __str__(self) -> str:
        return f"{self.label}@sha256:{self.digest}"


@dataclass(frozen=True, slots=True)
class OwnDistance:
    """A user's `(update (d,), references (C, d)) -> (C,)`; always called with one reference."""

    label: str
    function: Callable[..., Any]

    def __call__(self, update: NDArray[np.float32], reference: NDArray[np.float32]) -> float:
        """Return the distance of an update from a reference, which are handed over read-only."""
        return float(self.all(_handed(update), _handed(reference)[None])[0])

    def all(
        self, update: NDArray[np.float64], references: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the function's distances from all references."""
        result = self.function(update, references)
        if not isinstance(result, np.ndarray):
            returned = type(result).__name__
        elif result.dtype != np.float64 or result.shape != (len(references),):
            returned = f"{result.dtype} of shape {result.shape}"
        elif not ((result >= 0) & (result <= DISTANCE_LIMIT)).all():
            returned = f"{result.tolist()!s:.80}"
        else:
            return np.asarray(result + 0.0)  # no negative zero, which no vector may hold
        raise ConfigurationError(
            f"{self.label}: returns {returned}; must return float64 of shape "
            f"({len(references)},), at least 0 and finite (at most 1e300)"
        )


def own_distance(name: OwnRuleName, function: Callable[..., Any]) -> DistanceRule:
    """Return the distance rule of a user's function."""
    between = OwnDistance(f"protocol.distance = {name.label!r}", function)
    return DistanceRule(str(name), distance_sentence(str(name)), between, ABSOLUTE_TOLERANCE)


def distance_named(name: str) -> DistanceRule:
    """Return a distance of strategies I and II: the paper's, or an own one whose code is loaded."""
    own = OwnRuleName.of(name)
    if own is None:
        return SQUARED
    if name not in OWN_DISTANCES:
        raise ConfigurationError(
            f"the rule {own.label} (sha256 {own.digest}) is code of the run's owner; if you "
            "trust it, name your own copy of the file"
        )
    return OWN_DISTANCES[name]


def distance_sentence(name: str) -> str:
    """Return how a distance is called in a sentence, with or without its function."""
    own = OwnRuleName.of(name)
    return SQUARED.sentence if own is None else f"distances by {own.label}"


def _handed(values: NDArray[Any]) -> NDArray[np.float64]:
    """Return a read-only copy."""
    copy = np.array(values, dtype=np.float64)
    copy.flags.writeable = False
    return copy
