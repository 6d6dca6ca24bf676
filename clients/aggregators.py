"""The aggregators and pre-aggregators of a server: a class each, and a name in a table.

A `Mixture` gives each of them the sums, distances and ranked coordinates of a round's updates, and
of combinations of them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field

from clients.datasets.federated_data import Positive, SettingsTable, named, parse_settings
from ledger.distances import PART, STRIP, fast_distances, is_vector, machine_code
from ledger.io.user_code import as_configuration_error, named_code
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.rules.distance import SQUARED
from ledger.protocol.types import ClientId

MOST_ROWS = 512  # of more vectors NumPy's sort is as fast: a network's comparators grow as n log² n
Vector = NDArray[np.float64]
Rows = Sequence[NDArray[np.floating]] | NDArray[np.float64]

BLOCK = 64 * PART  # numbers of each vector per block. Determines the order of a distance's sum
_squares = fast_distances()


@lru_cache(maxsize=8)
def network(rows: int, first: int, last: int) -> tuple[tuple[int, int], ...]:
    """Return comparators in order; they bring the numbers of the ranks into rows [first, last).

    The smaller number goes to the first row. It is Batcher's merge exchange (Knuth, The Art of
    Computer Programming 5.2.2, Algorithm M) without the comparators that no needed rank depends on.
    """
    comparators, needed = [], set(range(first, last))
    for low, high in reversed(list(_merge_exchange(rows))):
        if low in needed or high in needed:
            comparators.append((low, high))
            needed |= {low, high}
    return tuple(comparators[::-1])


def _merge_exchange(rows: int) -> Iterator[tuple[int, int]]:
    half = 1 << max(0, (rows - 1).bit_length() - 1)
    p = half
    while p > 0:
        q, r, d = half, 0, p
        while d > 0:
            yield from ((i, i + d) for i in range(rows - d) if i & p == r)
            d, q, r = q - p, q >> 1, p
        p >>= 1


@dataclass(frozen=True, slots=True, eq=False)
class Mixture:
    """Vectors that are combinations of updates."""

    updates: Sequence[NDArray[np.float32]]  # Δ by ascending client, of shape (d,), finite
    # Shape (vectors, updates); None where the vectors are the updates themselves.
    coefficients: NDArray[np.float64] | None = None
    rng: np.random.Generator | None = None  # the chance of a rule that draws coordinates

    def __post_init__(self) -> None:
        if not len(self.updates):
            raise ValueError("there is no update to aggregate")
        for place, update in enumerate(self.updates):
            if update.shape != (self.dimension,):
                raise ValueError(f"update {place} has shape {update.shape}")

    def __len__(self) -> int:
        return len(self.updates) if self.coefficients is None else len(self.coefficients)

    @property
    def dimension(self) -> int:
        return len(self.updates[0])

    def mixed(self, coefficients: NDArray[np.float64]) -> Mixture:
        before = self.coefficients
        both = coefficients if before is None else coefficients @ before
        return Mixture(self.updates, both, self.rng)

    def blocks(self, first: int = 0) -> Iterator[tuple[slice, Rows]]:
        """Yield each block's slice and the vectors' numbers in it, from a number on."""
        for start in range(first, self.dimension, BLOCK):
            part = slice(start, min(start + BLOCK, self.dimension))
            rows: Rows = [update[part] for update in self.updates]
            yield part, rows if self.coefficients is None else _combined(self.coefficients, rows)

    def mean_of_ranks(self, first: int, last: int) -> Vector:
        """Return the mean of each coordinate's numbers of the ranks [first, last), shape (d,)."""
        result, count, strips = np.zeros(self.dimension), len(self), self.dimension // STRIP
        code, addresses = machine_code(), self._addresses(range(count))
        if code is None or addresses is None or count > MOST_ROWS:
            strips = 0
        else:
            pairs = np.array(network(count, first, last), dtype=np.int64)
            given = addresses.ctypes.data, count, strips, pairs.ctypes.data, len(pairs), first, last
            buffer = np.empty((count, STRIP), dtype=np.float32)
            code.add_ranks(*given, buffer.ctypes.data, result.ctypes.data)
        for part, rows in self.blocks(strips * STRIP):
            for ranked in _ranked(rows, first, last):
                result[part] += ranked
        result /= last - first
        return result

    def combined(self, weights: Vector) -> Vector:
        """Return the sum of the vectors, each times its weight, shape (d,)."""
        used, result = np.flatnonzero(weights), np.zeros(self.dimension)
        factors, code, addresses = weights[used], machine_code(), self._addresses(used)
        if code is None or addresses is None:
            for part, rows in self.blocks():
                for place, factor in zip(used.tolist(), factors, strict=True):
                    result[part] += factor * rows[place].astype(np.float64)
            return result
        given = addresses.ctypes.data, factors.ctypes.data, len(used)
        for start in range(0, self.dimension, BLOCK):
            summed = result[start : start + BLOCK]
            code.add_products(*given, start, len(summed), summed.ctypes.data)
        return result

    def distances_from(self, point: Vector) -> Vector:
        """Return the Euclidean distance of each vector from a point of shape (d,)."""
        code, addresses = machine_code(), self._addresses(range(len(self)))
        whole = 0 if code is None or addresses is None else self.dimension // BLOCK
        sums = np.zeros((len(self), whole, BLOCK // PART))
        if code is not None and addresses is not None:
            there = np.ascontiguousarray(point, np.float64).ctypes.data
            code.squares_from(addresses.ctypes.data, len(self), whole, there, sums.ctypes.data)
        while sums.shape[2] > 1:  # as NumPy's pairwise summation goes on
            sums = sums[..., ::2] + sums[..., 1::2]
        squares = [np.zeros(len(self)), *sums[..., 0].T]
        for part, rows in self.blocks(whole * BLOCK):
            squares.append(np.array([np.square(row - point[part]).sum() for row in rows]))
        return np.asarray(np.sqrt(np.add.accumulate(squares)[-1]))

    def products_with(self, point: Vector) -> Vector:
        """Return the inner product of each vector and a point of shape (d,)."""
        products = np.zeros(len(self))
        for part, rows in self.blocks():
            products += [float(row @ point[part]) for row in rows]
        return products

    def numbers_at(self, places: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the vectors' numbers at some coordinates, shape (vectors, places)."""
        rows = np.stack([update[places] for update in self.updates], dtype=np.float64)
        return rows if self.coefficients is None else _combined(self.coefficients, rows)

    def squared_distances(self) -> NDArray[np.float64]:
        """Return the squared distance of every two vectors; a Gram matrix would round more."""
        if self.coefficients is None:
            clients = [ClientId(place) for place in range(len(self))]
            return _squares(SQUARED, None, dict(zip(clients, self.updates, strict=True)), clients)
        total = np.zeros((len(self), len(self)))
        for _, rows in self.blocks():
            for place, row in enumerate(matrix := np.asarray(rows)):
                total[place, place + 1 :] += np.square(matrix[place + 1 :] - row).sum(axis=1)
        return total + total.T

    def sources(self, places: Iterable[int]) -> tuple[int, ...]:
        """Return the places of the updates that some of the vectors are made of, ascending."""
        if self.coefficients is None:
            return tuple(sorted(set(places)))
        chosen = self.coefficients[sorted(set(places))]
        return tuple(np.flatnonzero((chosen != 0).any(axis=0)).tolist())

    def _addresses(self, places: Iterable[int]) -> NDArray[np.uintp] | None:
        """Return where some vectors are; None if compiled loops do not read all vectors."""
        is_read = all(is_vector(update) and update.flags.c_contiguous for update in self.updates)
        if self.coefficients is not None or not is_read:
            return None
        return np.array([self.updates[place].ctypes.data for place in places], dtype=np.uintp)


def _ranked(rows: Rows, first: int, last: int) -> Sequence[NDArray[np.floating]]:
    """Return the numbers of the ranks [first, last) at each coordinate."""
    if len(rows) > MOST_ROWS:
        return list(np.sort(np.array(rows), axis=0)[first:last])
    ordered, spare = [row.copy() for row in rows], np.empty_like(rows[0])
    for low, high in network(len(rows), first, last):
        smaller, larger = ordered[low], ordered[high]
        np.minimum(smaller, larger, out=spare)
        np.maximum(smaller, larger, out=larger)
        ordered[low], spare = spare, smaller
    return ordered[first:last]


def _combined(coefficients: NDArray[np.float64], rows: Rows) -> NDArray[np.float64]:
    result = np.zeros((len(coefficients), len(rows[0])))
    for column, row in zip(coefficients.T, rows, strict=True):
        used = np.flatnonzero(column)
        result[used] += column[used, None] * row.astype(np.float64)
    return result


Whole = Annotated[int, Field(ge=1, le=2**31 - 1)]
Faulty = Annotated[
    int, Field(ge=0, le=2**31 - 1, description="how many updates of a round may be anything")
]


class AggregationStage(SettingsTable, ABC):
    """One stage of an aggregation, with its options; its name in TOML is the class's, ByzFL's."""

    rule: ClassVar[str] = "1 <= n"
    """what has to hold of n, the number of updates"""

    @property
    def least(self) -> int:
        return 1

    def require(self, updates: int) -> None:
        if updates < self.least:
            options = ", ".join(f"{key} = {value}" for key, value in self if value is not None)
            raise ConfigurationError(
                f"{type(self).__name__} with {options or 'no options'} of n = {updates} updates: "
                f"{self.rule} must hold, and so n be at least {self.least}"
            )


Iterations = Annotated[int, Field(ge=1, le=1000)]


@dataclass(frozen=True, slots=True, eq=False)
class AggregatorSelection:
    """An aggregated update, shape (d,), and the places of the vectors it is made of, ascending."""

    vector: Vector
    used: tuple[int, ...]


class Aggregator(AggregationStage):
    """An aggregator with its options."""

    @abstractmethod
    def aggregate(self, mixture: Mixture, weights: Vector, last: Vector) -> AggregatorSelection:
        """Return one vector of many, at least `least`.

        `weights` are above 0: the samples behind an update, 1 behind a mean. `last` is the
        aggregate of the round before, zeros in the first, shape (d,); for FLTrust it is the
        server's own update of the round.
        """


def everybody(mixture: Mixture) -> tuple[int, ...]:
    """Return the places of all vectors."""
    return tuple(range(len(mixture)))


def shares(weights: Vector) -> Vector:
    """Return weights as parts of their sum."""
    return np.asarray(weights / weights.sum())


class FedAvg(Aggregator):
    """Σ_k p_k Δ_k with p_k = n_k / Σ n_k, which one attacker can move anywhere."""

    clipped: bool = False
    """whether updates longer than the median are shortened to it"""

    def aggregate(self, mixture: Mixture, weights: Vector, last: Vector) -> AggregatorSelection:
        """Return the mean; unclipped the same bits as the ledger's own of these updates."""
        parts = shares(weights)
        if self.clipped:
            lengths = mixture.distances_from(np.zeros_like(last))
            median = np.median(lengths)
            # A length of 0 is no longer than the median, and so never divides.
            factors = np.ones_like(lengths)
            parts = parts * np.divide(median, lengths, out=factors, where=lengths > median)
        return AggregatorSelection(mixture.combined(parts), everybody(mixture))


class Krum(Aggregator):
    """The update with the least sum of squares to its n - f - 2 nearest: ByzFL's Krum(f + 1)."""

    rule: ClassVar[str] = "2f + 2 < n"

    f: Faulty

    @property
    def least(self) -> int:
        return 2 * self.f + 3

    def aggregate(self, mixture: Mixture, weights: Vector, last: Vector) -> AggregatorSelection:
        """Return one update as it is; of several with one score the first."""
        return self.densest(mixture, np.ones(len(mixture)), 1)

    def densest(self, mixture: Mixture, weights: Vector, count: int) -> AggregatorSelection:
        """Return the mean of some updates with the smallest scores."""
        scores = krum_scores(mixture.squared_distances(), self.f)
        chosen = np.sort(np.argsort(scores, kind="stable")[:count])
        part = np.zeros(len(mixture))
        part[chosen] = shares(weights[chosen])
        return AggregatorSelection(mixture.combined(part), tuple(chosen.tolist()))


def krum_scores(squared: NDArray[np.float64], f: int) -> Vector:
    """Return the sum of |x_i - x_j|² over the n - f - 2 nearest others, at least 1, shape (n,)."""
    n = len(squared)
    # Not by dropping the smallest: a repeated vector is its own nearest neighbour.
    others = squared[~np.eye(n, dtype=bool)].reshape(n, n - 1)
    return np.asarray(np.sort(others, axis=1)[:, : n - f - 2].sum(axis=1))


class MultiKrum(Krum):
    """The mean of the updates with the smallest scores of Krum."""

    rule: ClassVar[str] = "2f + 2 < n and m <= n - f"

    m: Whole | None = None
    """how many are averaged; n - f if not given, and as many as CMFL aggregates by its authors"""
    weighted: bool = False
    """whether by samples, as the authors of CMFL have it; Krum's paper has no weights"""

    @property
    def least(self) -> int:
        return max(2 * self.f + 3, self.f + (self.m or 1))

    def aggregate(self, mixture: Mixture, weights: Vector, last: Vector) -> AggregatorSelection:
        """Return the mean of the chosen updates; equal scores are chosen in their order."""
        alike = weights if self.weighted else np.ones(len(mixture))
        return self.densest(mixture, alike, self.m or len(mixture) - self.f)


class Median(Aggregator):
    """In each coordinate the middle one, or half the sum of the two in the middle, unweighted."""

    def aggregate(self, mixture: Mixture, weights: Vector, last: Vector) -> AggregatorSelection:
        half = len(mixture) // 2
        vector = mixture.mean_of_ranks(half - 1 + len(mixture) % 2, half + 1)
        return AggregatorSelection(vector, everybody(mixture))


class TrMean(Aggregator):
    """In each coordinate the mean without the f smallest and f largest; f is the paper's beta n."""

    rule: ClassVar[str] = "2f < n"

    f: Faulty

    @property
    def least(self) -> int:
        return 2 * self.f + 1

    def aggregate(self, mixture: Mixture, weights: Vector, last: Vector) -> AggregatorSelection:
        vector = mixture.mean_of_ranks(self.f, len(mixture) - self.f)
        return AggregatorSelection(vector, everybody(mixture))


class GeometricMedian(Aggregator):
    """Nearly the point with the smallest sum of distances to the updates.

    Each step takes z = Σ β_k x_k / Σ β_k with β_k = α_k / max(ν, |z - x_k|), from z = 0.
    """

    nu: Positive = 0.1
    """the smallest distance that is divided by; ByzFL's default, the paper has 1e-6"""
    T: Iterations = 3
    weighted: bool = False
    """whether α_k are the shares of the samples, as in the paper, or equal, as in ByzFL"""

    def aggregate(self, mixture: Mixture, weights: Vector, last: Vector) -> AggregatorSelection:
        point = np.zeros(mixture.dimension)
        alphas = shares(weights if self.weighted else np.ones(len(mixture)))
        for _ in range(self.T):
            betas = alphas / np.maximum(self.nu, mixture.distances_from(point))
            point = mixture.combined(shares(betas))
        return AggregatorSelection(point, everybody(mixture))


class CenteredClipping(Aggregator):
    """The last aggregate, moved by what the updates differ from it, each difference clipped.

    Each step takes v = v + (1/n) Σ_k (x_k - v) min(1, τ / |x_k - v|), from the last aggregate.
    """

    tau: Positive
    """how far one update can pull"""
    L: Iterations = 1

    def aggregate(self, mixture: Mixture, weights: Vector, last: Vector) -> AggregatorSelection:
        n, point = len(mixture), last
        for _ in range(self.L):
            # A distance below tau, 0 among them, is not clipped.
            pulls = self.tau / np.maximum(self.tau, mixture.distances_from(point)) / n
            point = point * (1 - pulls.sum()) + mixture.combined(pulls)
        return AggregatorSelection(point, everybody(mixture))


class FLTrust(Aggregator):
    """The mean of the updates, as long as the server's own update Δ_0, by their trust scores.

    Σ_k TS_k |Δ_0| Δ_k / |Δ_k| over Σ_k TS_k, with TS_k = max(0, cos(Δ_k, Δ_0)). Cao, Fang, Liu,
    Gong 2021, "FLTrust".
    """

    root: Whole = 100
    """how many samples the server trains Δ_0 on; the paper's number"""

    def aggregate(self, mixture: Mixture, weights: Vector, last: Vector) -> AggregatorSelection:
        """Return zeros, made of no update, if none is trusted."""
        lengths, length = mixture.distances_from(np.zeros_like(last)), np.linalg.norm(last)
        norms, trust = lengths * length, np.zeros(len(mixture))
        np.divide(np.maximum(mixture.products_with(last), 0), norms, out=trust, where=norms > 0)
        used, parts = np.flatnonzero(trust), np.zeros(len(mixture))
        parts[used] = trust[used] / trust.sum() * length / lengths[used]
        return AggregatorSelection(mixture.combined(parts), tuple(used.tolist()))


class DnC(Aggregator):
    """The mean of the updates that no iteration drops: divide and conquer.

    Each iteration draws b coordinates, and drops the c f updates with the largest outlier scores.
    Shejwalkar, Houmansadr 2021, "Manipulating the Byzantine", Algorithm 2.
    """

    rule: ClassVar[str] = "c f < n"

    f: Faulty
    c: Annotated[float, Field(gt=0, le=10)] = 1.0
    """the filtering fraction: how many are dropped for each that may be anything"""
    b: Whole = 10_000
    """how many coordinates are drawn"""
    T: Iterations = 1

    @property
    def dropped(self) -> int:
        return math.floor(self.c * self.f + 0.5)

    @property
    def least(self) -> int:
        return self.dropped + 1

    def aggregate(self, mixture: Mixture, weights: Vector, last: Vector) -> AggregatorSelection:
        """Return zeros, made of no update, if each is dropped; of equal scores the first stay."""
        assert mixture.rng is not None, "an aggregation gives its chance"
        n, d, kept = len(mixture), mixture.dimension, np.ones(len(mixture), dtype=bool)
        for _ in range(self.T):
            drawn = np.sort(mixture.rng.choice(d, min(self.b, d), replace=False))
            numbers = mixture.numbers_at(drawn)
            centred = numbers - numbers.mean(axis=0)
            # The outlier score is the squared projection of a row on the top right singular vector.
            # A v = σ u: the left vectors follow from a table as small as the number of rows.
            squares, left = np.linalg.eigh(centred @ centred.T)
            order = np.argsort(squares[-1] * left[:, -1] ** 2, kind="stable")
            kept[order[n - self.dropped :]] = False
        vector = mixture.combined(kept / max(1, kept.sum()))
        return AggregatorSelection(vector, tuple(np.flatnonzero(kept).tolist()))


class OwnAggregator(Aggregator):
    """A user's function `(updates, **options)` from shape (n, d), float64, to shape (d,)."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    label: str
    function: Callable[..., Any]
    options: Mapping[str, Any]

    def aggregate(self, mixture: Mixture, weights: Vector, last: Vector) -> AggregatorSelection:
        updates = np.empty((len(mixture), mixture.dimension))
        for part, rows in mixture.blocks():
            updates[:, part] = rows
        updates.flags.writeable = False
        subject = f"aggregator = {self.label!r}"
        with as_configuration_error(f"{subject}: it fails, or changes its input"):
            vector = np.asarray(self.function(updates.view(), **self.options))
        if vector.shape != (mixture.dimension,) or vector.dtype.kind != "f":
            raise ConfigurationError(
                f"{subject}: returns {vector.dtype} {vector.shape}, not {mixture.dimension} floats"
            )
        if not np.isfinite(vector).all():
            raise ConfigurationError(f"{subject}: returns numbers that are not finite")
        return AggregatorSelection(vector.astype(np.float64), everybody(mixture))


class PreAggregator(AggregationStage):
    """A pre-aggregator with its options."""

    def count(self, vectors: int) -> int:
        return vectors

    @abstractmethod
    def coefficients(self, mixture: Mixture, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return what each new vector is made of, shape (new vectors, vectors)."""


class NNM(PreAggregator):
    """Every vector becomes the mean of the n - f vectors nearest to it, itself among them."""

    rule: ClassVar[str] = "2f < n"

    f: Faulty

    @property
    def least(self) -> int:
        return 2 * self.f + 1

    def coefficients(self, mixture: Mixture, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return 1 / (n - f) at the neighbours of each; of equal distances the first are taken."""
        n = len(mixture)
        near = np.argsort(mixture.squared_distances(), axis=1, kind="stable")[:, : n - self.f]
        result = np.zeros((n, n))
        np.put_along_axis(result, near, 1 / (n - self.f), axis=1)
        return result


class Bucketing(PreAggregator):
    """The vectors are shuffled and dealt into buckets, and each bucket becomes its mean."""

    s: Whole
    """how many vectors are in a bucket"""

    def count(self, vectors: int) -> int:
        return math.ceil(vectors / self.s)

    def coefficients(self, mixture: Mixture, rng: np.random.Generator) -> NDArray[np.float64]:
        order = rng.permutation(len(mixture))
        result = np.zeros((self.count(len(mixture)), len(mixture)))
        for bucket, row in enumerate(result):
            chosen = order[bucket * self.s : (bucket + 1) * self.s]
            row[chosen] = 1 / len(chosen)
        return result


PRE_AGGREGATORS: dict[str, type[PreAggregator]] = {rule.__name__: rule for rule in (NNM, Bucketing)}


def pre_aggregator_named(name: str, options: Mapping[str, object]) -> PreAggregator:
    """Return a pre-aggregator."""
    stage = named("unknown pre-aggregator", PRE_AGGREGATORS, name)
    return parse_settings(stage, options, f"pre-aggregator {name}")


GROUP = "cmfl.aggregators"  # entry points of packages that offer aggregators
AGGREGATORS: dict[str, type[Aggregator]] = {
    rule.__name__: rule
    for rule in (
        *(FedAvg, Median, TrMean, Krum, MultiKrum, GeometricMedian, CenteredClipping),
        *(FLTrust, DnC),
    )
}


def aggregator_named(name: str, options: Mapping[str, object]) -> Aggregator:
    """Return an aggregator, or one made of a user's function."""
    if name not in AGGREGATORS:
        code = named_code("aggregator", GROUP, name)
        if code is not None:
            function = code.load_function("aggregator")
            return OwnAggregator(label=code.label, function=function, options=dict(options))
    stage = named("unknown aggregator", AGGREGATORS, name)
    return parse_settings(stage, options, f"aggregator {name}")


@dataclass(frozen=True, slots=True)
class Aggregation:
    """Pre-aggregators in order, followed by an aggregator."""

    aggregator: Aggregator = field(default_factory=FedAvg)
    pre_aggregators: tuple[PreAggregator, ...] = ()

    def _stages(self, updates: int) -> Iterator[tuple[AggregationStage, int]]:
        for stage in self.pre_aggregators:
            yield stage, updates
            updates = stage.count(updates)
        yield self.aggregator, updates

    def require(self, updates: int) -> None:
        for stage, count in self._stages(updates):
            stage.require(count)

    def takes(self, updates: int) -> bool:
        return all(count >= stage.least for stage, count in self._stages(updates))

    def aggregate(
        self,
        updates: Sequence[NDArray[np.float32]],
        samples: Sequence[int],
        last: Vector,
        rng: np.random.Generator,
        *,
        are_finite: bool = False,
    ) -> AggregatorSelection | None:
        """Return the aggregated update and the rows of the updates that it uses.

        Updates, by ascending client, that are not finite are excluded, as by a committee, unless
        the caller has checked them. None is returned if too few remain for the options.
        """
        usable = [row for row, each in enumerate(updates) if are_finite or np.isfinite(each).all()]
        if not self.takes(len(usable)):
            return None
        mixture = Mixture([updates[row] for row in usable], rng=rng)
        weights = np.array([samples[row] for row in usable], dtype=np.float64)
        for stage in self.pre_aggregators:
            mixture = mixture.mixed(stage.coefficients(mixture, rng))
            # Means of updates weigh alike, as in the papers.
            weights = np.ones(len(mixture))
        selection = self.aggregator.aggregate(mixture, weights, last)
        used = tuple(usable[place] for place in mixture.sources(selection.used))
        return AggregatorSelection(selection.vector, used)
