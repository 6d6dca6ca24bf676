"""Aggregators, stages and a user's own: by pencil, against ByzFL's vectors, and refused."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from clients.aggregators import (
    AGGREGATORS,
    PRE_AGGREGATORS,
    Aggregation,
    AggregatorSelection,
    Mixture,
    aggregator_named,
    krum_scores,
    pre_aggregator_named,
)
from ledger.protocol.errors import ConfigurationError
from tests.clients.aggregators.numpy_forms import PAIRS

if TYPE_CHECKING:
    Rows = list[float] | list[list[float]]

Points = list[list[int]]

NEIGHBOURS = (0.25, 1, 2, 3.5, 3.75)
"""The densest place is another one for two neighbours (1) than for three (2)."""


def mixture_of(points: Sequence[Sequence[float]]) -> Mixture:
    updates = [np.array(point, dtype=np.float32) for point in points]
    return Mixture(updates, rng=np.random.default_rng(0))


def line(*values: float) -> Mixture:
    return mixture_of([[value] for value in values])


def found(
    name: str,
    mixture: Mixture,
    options: Mapping[str, object] | None = None,
    weights: Sequence[float] | None = None,
    last: float = 0.0,
) -> AggregatorSelection:
    heavy = np.ones(len(mixture)) if weights is None else np.array(weights, dtype=np.float64)
    start = np.full(mixture.dimension, last)
    return aggregator_named(name, options or {}).aggregate(mixture, heavy, start)


def mixed(name: str, mixture: Mixture, options: Mapping[str, object]) -> list[list[float]]:
    rule = pre_aggregator_named(name, options)
    after = mixture.mixed(rule.coefficients(mixture, np.random.default_rng(0)))
    rows: list[list[float]] = np.concatenate([rows for _, rows in after.blocks()], axis=1).tolist()
    return rows


@pytest.mark.parametrize(
    ("name", "options", "values", "expected", "used"),
    [
        ("FedAvg", {}, (1, 2, 6), 3, (0, 1, 2)),
        ("Median", {}, (1, 7, 2), 2, (0, 1, 2)),
        ("Median", {}, (1, 7, 2, 4), 3, (0, 1, 2, 3)),
        ("TrMean", {"f": 1}, (9, -90, 1, 2, 900), 4, (0, 1, 2, 3, 4)),
        ("Krum", {"f": 1}, NEIGHBOURS, 1, (1,)),
        ("MultiKrum", {"f": 1}, (0, 100, 1, 3, 4), 2, (0, 2, 3, 4)),
        ("MultiKrum", {"f": 1, "m": 2}, (0, 100, 1, 3, 4), 2, (2, 3)),
        # From 0: (1/2 + 1/2) / (1/6 + 1/8).
        ("GeometricMedian", {"T": 1}, (3, 4), 24 / 7, (0, 1)),
        # 1/2, 1 and -1 of the three, and then 1/3, 1 and -1.
        ("CenteredClipping", {"tau": 1.0}, (0.5, 4, -2), 1 / 6, (0, 1, 2)),
        ("CenteredClipping", {"tau": 1.0, "L": 2}, (0.5, 4, -2), 5 / 18, (0, 1, 2)),
    ],
)
def test_an_aggregate_by_pencil(
    name: str,
    options: dict[str, Any],
    values: tuple[float, ...],
    expected: float,
    used: tuple[int, ...],
) -> None:
    selected = found(name, line(*values), options)
    assert selected.vector.tolist() == pytest.approx([expected], abs=1e-12)
    assert selected.used == used


def test_fltrust_by_pencil() -> None:
    # Cosines with (2, 0): 0.6, 1, -1, 0. The first two, as long as 2: (1.2, 1.6) and (2, 0).
    many = mixture_of([[3, 4], [0.5, 0], [-7, 0], [0, 9]])
    rule, ones, own = aggregator_named("FLTrust", {}), np.ones(4), np.array([2.0, 0.0])
    selected = rule.aggregate(many, ones, own)
    assert selected.vector.tolist() == pytest.approx([(0.6 * 1.2 + 2) / 1.6, 0.6])
    assert selected.used == (0, 1)
    for nothing in (np.zeros(2), np.array([-1.0, -1.0])):
        selected = rule.aggregate(mixture_of([[1, 0]]), ones[:1], nothing)
        assert (selected.vector.tolist(), selected.used) == ([0, 0], ())


def test_dnc_by_pencil() -> None:
    # Around the mean (2, 0): squares 4, 1, 1, 36, 16 along the first axis.
    many = mixture_of([[0, 0], [1, 0], [3, 0], [8, 0], [-2, 0]])
    assert found("DnC", many, {"f": 1}).used == (0, 1, 2, 4)
    assert found("DnC", many, {"f": 1}).vector.tolist() == pytest.approx([0.5, 0])
    assert found("DnC", many, {"f": 1, "c": 1.5}).used == (0, 1, 2)
    # One coordinate an iteration: an outlier in each is dropped once both were drawn.
    apart = mixture_of([[0, 0], [1, 1], [-1, -1], [9, 0], [0, 9]])
    assert found("DnC", apart, {"f": 1, "b": 1}).used in {(0, 1, 2, 3), (0, 1, 2, 4)}
    assert found("DnC", apart, {"f": 1, "b": 1, "T": 20}).used == (0, 1, 2)
    # Of three, each is the outlier in one coordinate: all are dropped, and nothing moves.
    none = found("DnC", mixture_of(np.eye(3).tolist()), {"f": 1, "b": 1, "T": 50})
    assert (none.vector.tolist(), none.used) == ([0, 0, 0], ())


def fltrust_of_the_paper(updates: NDArray[Any], own: NDArray[Any]) -> NDArray[Any]:
    """Return Algorithm 2 of the paper, line by line, with a global rate of 1."""
    norm = np.linalg.norm
    scores = [max(0.0, g @ own / (norm(g) * norm(own))) for g in updates]
    scaled = [norm(own) / norm(g) * g for g in updates]
    return np.asarray(sum(s * g for s, g in zip(scores, scaled, strict=True)) / sum(scores))


def dnc_of_the_paper(updates: NDArray[Any], m: int, b: int, n: int, rng: Any) -> NDArray[Any]:
    """Return Algorithm 2 of the paper with n iterations and c = 1, by NumPy's decomposition."""
    good = set(range(len(updates)))
    for _ in range(n):
        sampled = updates[:, sorted(rng.choice(updates.shape[1], b, replace=False))]
        centred = sampled - sampled.mean(axis=0)
        scores = (centred @ np.linalg.svd(centred)[2][0]) ** 2
        good &= set(np.argsort(scores)[: len(updates) - m].tolist())
    return np.asarray(updates[sorted(good)].mean(axis=0))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(5, 30), st.integers(20, 300), st.integers(1, 4))
def test_new_rules_equal_their_papers(seed: int, n: int, d: int, iterations: int) -> None:
    rng = np.random.default_rng(seed)
    common, own = rng.standard_normal(d), rng.standard_normal(d)
    updates = (common + rng.standard_normal((n, d)) * rng.uniform(0.1, 9, (n, 1))).astype("f4")
    updates[: n // 5] = -np.outer(np.arange(8, 8 + n // 5), common)
    wide, own = updates.astype(np.float64), 5 * common + own
    trusted = aggregator_named("FLTrust", {}).aggregate(Mixture(list(updates)), np.ones(n), own)
    assert np.allclose(trusted.vector, fltrust_of_the_paper(wide, own), rtol=1e-9, atol=1e-12)
    first, second = (np.random.default_rng(seed) for _ in range(2))
    options = {"f": n // 5, "b": d // 2, "T": iterations}
    filtered = found("DnC", Mixture(list(updates), rng=first), options)
    expected = dnc_of_the_paper(wide, n // 5, d // 2, iterations, second)
    assert np.allclose(filtered.vector, expected, rtol=1e-9, atol=1e-9)


def test_dnc_behind_a_mixture_scores_the_means() -> None:
    many = mixture_of([[0, 0], [1, 0], [3, 0], [8, 0], [-2, 0]])
    means = many.mixed(np.array([[1, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 1.0]]) / 2)
    assert means.numbers_at(np.array([0])).tolist() == [[0.5], [1.5], [3]]
    # Around their mean 5/3: the last is the farthest.
    assert found("DnC", means, {"f": 1}).vector.tolist() == pytest.approx([1, 0])
    assert means.products_with(np.array([2.0, 5.0])).tolist() == [1, 3, 6]


@pytest.mark.parametrize(("as_byzfl", "densest"), [(False, 1), (True, 2)])
def test_the_densest_of_the_paper_is_not_that_of_byzfl(as_byzfl: bool, densest: int) -> None:
    # n = 5 and f = 1: the paper counts n - f - 2 = 2 others, ByzFL 0.0.11 counts n - f - 1 = 3.
    squared = line(*NEIGHBOURS).squared_distances()
    assert int(np.argmin(krum_scores(squared, 0 if as_byzfl else 1))) == densest


def test_a_clipped_mean_shortens_what_is_longer_than_the_median() -> None:
    # Lengths 1, 8, 3, 0: the median is 2, so that -8 counts as -2 and 3 as 2.
    clipped = found("FedAvg", line(1, -8, 3, 0), {"clipped": True}, [1, 1, 2, 1])
    assert clipped.vector.tolist() == pytest.approx([(1 - 2 + 2 * 2) / 5])
    assert clipped.used == (0, 1, 2, 3)
    zeros = found("FedAvg", line(0, 0, 5), {"clipped": True})
    assert zeros.vector.tolist() == [0]


def test_only_what_says_so_is_weighted() -> None:
    heavy = [1, 1, 1, 1, 6]
    values = line(0, 1, 2, 3, 4)
    assert found("FedAvg", values, weights=heavy).vector.tolist() == pytest.approx([3])
    for name, options in (
        ("Median", {}),
        ("TrMean", {"f": 1}),
        ("Krum", {"f": 1}),
        ("MultiKrum", {"f": 1}),
        ("GeometricMedian", {}),
        ("CenteredClipping", {"tau": 1.0}),
        ("DnC", {"f": 1}),
    ):
        plain = found(name, values, options).vector
        assert found(name, values, options, heavy).vector.tolist() == plain.tolist()
    one = {"f": 1, "m": 2, "weighted": True}
    assert found("MultiKrum", line(0, 100, 1, 3, 4), one, [1, 1, 1, 3, 1]).vector.tolist() == [2.5]
    # From 0, with α = 1/4 and 3/4: (1/4 + 3/4) / (1/12 + 3/16).
    two = {"T": 1, "weighted": True}
    assert found("GeometricMedian", line(3, 4), two, [1, 3]).vector.tolist() == pytest.approx(
        [48 / 13]
    )


def test_the_smallest_distance_that_weiszfeld_divides_by_is_nu() -> None:
    # From 0 the first lies at 0, so that it weighs 1 / nu = 10 and the other 1 / 2.
    values = found("GeometricMedian", line(0, 2), {"nu": 0.1, "T": 1}).vector
    assert values.tolist() == pytest.approx([1 / 10.5])


def test_clipping_begins_where_the_round_before_ended() -> None:
    # From 3: -1, 1 and nothing; none of them is farther than tau from 2.
    assert found("CenteredClipping", line(0, 9, 3), {"tau": 1.0}, last=3).vector.tolist() == [3]
    near = found("CenteredClipping", line(1, 2, 3), {"tau": 5.0}, last=2).vector
    assert near.tolist() == pytest.approx([2])


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("NNM", {"f": 1}, [[0.5], [0.5], [5.5]]),
        ("NNM", {"f": 0}, [[11 / 3]] * 3),
        ("Bucketing", {"s": 3}, [[11 / 3]]),
    ],
)
def test_a_mixture_by_pencil(name: str, options: dict[str, Any], expected: Points) -> None:
    assert np.allclose(mixed(name, line(0, 1, 10), options), expected)


def test_every_vector_is_in_one_bucket_and_last_is_smaller() -> None:
    values = [1, 2, 4, 8, 16]
    buckets = mixed("Bucketing", line(*values), {"s": 2})
    assert len(buckets) == 3
    assert sum(2 * bucket[0] for bucket in buckets[:2]) + buckets[2][0] == sum(values)
    assert buckets[2][0] in values
    assert mixed("Bucketing", line(*values), {"s": 1}) != [[value] for value in values]


def test_the_order_of_the_buckets_follows_from_the_stream() -> None:
    rule, many = pre_aggregator_named("Bucketing", {"s": 2}), line(*range(9))
    one, again, other = (
        rule.coefficients(many, np.random.default_rng(seed)).tolist() for seed in (0, 0, 1)
    )
    assert one == again != other


def squared(one: list[int], other: list[int]) -> int:
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))


def densest_first(points: Points, f: int) -> list[int]:
    scores = [
        sum(sorted(squared(one, other) for j, other in enumerate(points) if j != i)[: -f - 1])
        for i, one in enumerate(points)
    ]
    return sorted(range(len(points)), key=lambda i: (scores[i], i))


def mean_of(points: Points, places: Sequence[int]) -> list[float]:
    return [fmean(points[i][axis] for i in places) for axis in range(len(points[0]))]


CROWDED = st.lists(st.lists(st.integers(-2, 2), min_size=2, max_size=2), min_size=7, max_size=10)
"""Few places for many points, so that most distances are tied."""


@settings(max_examples=60, deadline=None)
@given(CROWDED, st.integers(0, 2))
def test_ties_are_broken_as_in_the_papers(points: Points, f: int) -> None:
    many, n = mixture_of(points), len(points)
    order = densest_first(points, f)
    assert found("Krum", many, {"f": f}).used == (order[0],)
    assert found("Krum", many, {"f": f}).vector.tolist() == points[order[0]]
    kept = found("MultiKrum", many, {"f": f})
    assert kept.used == tuple(sorted(order[: n - f]))
    assert kept.vector.tolist() == pytest.approx(mean_of(points, order[: n - f]))
    columns = list(zip(*points, strict=True))
    assert found("Median", many).vector.tolist() == [median(column) for column in columns]
    trimmed = [fmean(sorted(column)[f : n - f]) for column in columns]
    assert found("TrMean", many, {"f": f}).vector.tolist() == pytest.approx(trimmed)
    near = [
        sorted(range(n), key=lambda j, one=one: (squared(one, points[j]), j))[: n - f]  # type: ignore[misc]
        for one in points
    ]
    assert np.allclose(mixed("NNM", many, {"f": f}), [mean_of(points, places) for places in near])


HOSTILE = st.sampled_from([0.0, -0.0, 1e-45, 1.0, -2.5, 2.0**120, -(2.0**120)])
NUMBERS = st.one_of(HOSTILE, st.floats(width=32, allow_nan=False, allow_infinity=False))
SHAPES = st.tuples(st.integers(1, 7), st.integers(1, 70))


@settings(max_examples=60, deadline=None)
@given(arrays(np.float32, SHAPES, elements=NUMBERS), st.data())
def test_median_and_trimmed_mean_are_numpys_in_float64(updates: Any, data: st.DataObject) -> None:
    many, wide, n = Mixture(list(updates)), updates.astype(np.float64), len(updates)
    f = data.draw(st.integers(0, (n - 1) // 2))
    assert (found("Median", many).vector == np.median(wide, axis=0)).all()
    trimmed = np.sort(wide, axis=0)[f : n - f].sum(axis=0) / (n - 2 * f)
    assert (found("TrMean", many, {"f": f}).vector == trimmed).all()


@settings(max_examples=30, deadline=None)
@given(arrays(np.float32, SHAPES, elements=NUMBERS))
def test_squared_distances_are_those_of_the_definition(updates: NDArray[np.float32]) -> None:
    wide = updates.astype(np.float64)
    expected = np.square(wide[:, None] - wide[None]).sum(axis=2)
    squared = Mixture(list(updates)).squared_distances()
    assert np.allclose(squared, expected, rtol=1e-13, atol=0)
    assert (squared == squared.T).all()
    assert (squared[expected == 0] == 0).all()  # of equal updates, whose scores are then tied


ROBUST: dict[str, dict[str, Any]] = {
    "Median": {},
    "TrMean": {"f": 3},
    "Krum": {"f": 3},
    "MultiKrum": {"f": 3},
    "GeometricMedian": {"T": 50, "nu": 1e-6},
    "CenteredClipping": {"tau": 1.0},
    "DnC": {"f": 3},
}


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([-1e30, -1e4, 1e4, 1e30]))
def test_three_of_ten_move_only_the_mean_far(seed: int, value: float) -> None:
    honest = np.random.default_rng(seed).standard_normal((7, 5))
    many = mixture_of([*honest.tolist(), *[[value] * 5] * 3])
    for name, options in ROBUST.items():
        assert np.linalg.norm(found(name, many, options).vector) < 6, name
    assert np.linalg.norm(found("FedAvg", many).vector) > 1000


@pytest.mark.parametrize("name", AGGREGATORS)
def test_equal_updates_come_to_themselves(name: str) -> None:
    options = ROBUST.get(name, {}) | ({"tau": 10.0} if name == "CenteredClipping" else {})
    many = mixture_of([[1.5, -2.25]] * 9)
    if name == "FLTrust":  # the server's own update gives the length, and they the direction
        many = mixture_of([[2.0, 2.0]] * 9)
        assert found(name, many, last=1.5).vector.tolist() == pytest.approx([1.5, 1.5])
        return
    assert found(name, many, options).vector.tolist() == pytest.approx([1.5, -2.25])


@pytest.mark.parametrize(
    ("name", "options", "enough", "sentence"),
    [
        ("TrMean", {"f": 3}, 7, r"TrMean with f = 3 of n = 6 updates: 2f < n must hold"),
        ("Krum", {"f": 2}, 7, r"Krum with f = 2 of n = 6 updates: 2f \+ 2 < n must hold"),
        ("Krum", {"f": 0}, 3, "n be at least 3"),
        ("MultiKrum", {"f": 2}, 7, r"2f \+ 2 < n and m <= n - f must hold"),
        ("MultiKrum", {"f": 2, "m": 9}, 11, "n be at least 11"),
        ("DnC", {"f": 3, "c": 1.5}, 6, "DnC with f = 3, c = 1.5, .*: c f < n must hold"),
        ("FedAvg", {}, 1, "FedAvg with clipped = False of n = 0 updates: 1 <= n must hold"),
    ],
)
def test_too_few_updates_are_refused_and_just_enough_are_taken(
    name: str, options: dict[str, Any], enough: int, sentence: str
) -> None:
    aggregator = aggregator_named(name, options)
    aggregator.require(enough)
    with pytest.raises(ConfigurationError, match=sentence):
        aggregator.require(enough - 1)


def test_a_pre_aggregator_refuses_too_few_vectors() -> None:
    mixing, dealing = (
        pre_aggregator_named("NNM", {"f": 2}),
        pre_aggregator_named("Bucketing", {"s": 2}),
    )
    mixing.require(5)
    with pytest.raises(ConfigurationError, match="NNM with f = 2 of n = 4 updates: 2f < n must"):
        mixing.require(4)
    assert mixing.count(5) == 5
    assert [dealing.count(n) for n in (1, 2, 5)] == [1, 1, 3]


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("Krum", {}, r"aggregator Krum\.f is required \(how many updates of a round may be"),
        ("TrMean", {"f": -1}, r"TrMean\.f: .*greater than or equal to 0 \(given: -1\)"),
        ("TrMean", {"f": 1, "beta": 0.1}, r"TrMean\.beta: there is no such setting"),
        ("CenteredClipping", {}, r"CenteredClipping\.tau is required \(how far one update"),
        ("CenteredClipping", {"tau": float("inf")}, r"CenteredClipping\.tau: .*finite"),
        ("NNM", {}, "unknown aggregator 'NNM'; known are FedAvg, Median, TrMean, Krum"),
    ],
)
def test_missing_unknown_or_excessive_options_are_refused_by_name(
    name: str, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        aggregator_named(name, options)


NNM = pre_aggregator_named("NNM", {"f": 1})
BUCKETS = pre_aggregator_named("Bucketing", {"s": 2})
KRUM = aggregator_named("Krum", {"f": 1})


def aggregation_found(
    aggregation: Aggregation, values: list[float], samples: list[int] | None = None, seed: int = 0
) -> AggregatorSelection | None:
    updates = [np.array([value], dtype=np.float32) for value in values]
    counts = [1] * len(values) if samples is None else samples
    return aggregation.aggregate(updates, counts, np.zeros(1), np.random.default_rng(seed))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_an_update_that_is_not_finite_is_left_out(bad: float) -> None:
    selected = aggregation_found(Aggregation(), [1, bad, 4], [1, 100, 2])
    assert selected is not None
    assert selected.vector.tolist() == [3]
    assert selected.used == (0, 2)


def test_too_few_finite_updates_are_aggregated_to_nothing() -> None:
    nan = float("nan")
    assert aggregation_found(Aggregation(), [nan, nan]) is None
    enough = aggregation_found(Aggregation(KRUM), [1, 2, nan, 3, 4, 100])
    assert enough is not None
    assert enough.used == (1,)
    assert aggregation_found(Aggregation(KRUM), [1, 2, nan, nan, 4, 100]) is None
    assert aggregation_found(Aggregation(pre_aggregators=(NNM,)), [1, nan, 3]) is None


def test_means_of_updates_have_equal_weights_and_named_sources() -> None:
    # Each of 0, 1, 9 with its nearest: 0.5, 0.5, 5; their mean, whatever the samples.
    mixed = aggregation_found(Aggregation(pre_aggregators=(NNM,)), [0, 1, 9], [1, 1, 500])
    assert mixed is not None
    assert mixed.vector.tolist() == pytest.approx([2])
    assert mixed.used == (0, 1, 2)
    # One bucket of two was chosen: two updates are used.
    chosen = aggregation_found(Aggregation(KRUM, (BUCKETS,)), list(range(10)))
    assert chosen is not None
    assert len(chosen.used) == 2
    assert chosen.vector.tolist() == [sum(chosen.used) / 2]


def test_the_stages_are_taken_in_their_order() -> None:
    values: list[float] = [0, 1, 2, 3, 50]
    buckets_first, mixing_first = (
        aggregation_found(Aggregation(aggregator_named("Median", {}), stages), values)
        for stages in ((BUCKETS, NNM), (NNM, BUCKETS))
    )
    assert buckets_first is not None
    assert mixing_first is not None
    assert buckets_first.vector.tolist() != mixing_first.vector.tolist()


def test_the_output_count_of_a_stage_feeds_the_next() -> None:
    aggregation = Aggregation(KRUM, (BUCKETS,))
    aggregation.require(9)
    assert aggregation.takes(9)
    assert not aggregation.takes(8)
    with pytest.raises(ConfigurationError, match="Krum with f = 1 of n = 4 updates: 2f"):
        aggregation.require(8)
    with pytest.raises(ConfigurationError, match="NNM with f = 1 of n = 2 updates: 2f < n"):
        Aggregation(KRUM, (BUCKETS, NNM)).require(4)


UPDATES = [np.array([1, 2], np.float32), np.array([3, 6], np.float32)]


def written(folder: Path, body: str) -> str:
    path = folder / "mine.py"
    text = f"import numpy as np\ndef mine(updates, scale=1.0):\n    {body}\n"
    path.write_text(text, "utf-8")
    return f"{path}:mine"


def test_a_function_aggregates_with_its_options(tmp_path: Path) -> None:
    reference = written(tmp_path, "return scale * updates.max(axis=0)")
    aggregator = aggregator_named(reference, {"scale": 2.0})
    selection = aggregator.aggregate(Mixture(UPDATES), np.ones(2), np.zeros(2))
    assert selection.vector.tolist() == [6, 12]
    assert selection.used == (0, 1)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return updates", r"returns float64 \(2, 2\), not 2 floats"),
        ("return updates.sum(axis=0) * np.nan", "returns numbers that are not finite"),
        ("updates[0] = 0; return updates[0]", "changes its input: ValueError"),
        ("return updates.lots", r"it fails.*AttributeError.*\(mine.py, line 3\)"),
    ],
)
def test_a_function_that_breaks_a_rule_is_refused(tmp_path: Path, body: str, message: str) -> None:
    aggregator = aggregator_named(written(tmp_path, body), {})
    with pytest.raises(ConfigurationError, match=f"mine.py:mine.*{message}"):
        aggregator.aggregate(Mixture(UPDATES), np.ones(2), np.zeros(2))


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match="unknown aggregator 'mine'; known are FedAvg"):
        aggregator_named("mine", {})


PATH = Path(__file__).parents[2] / "vectors" / "byzfl-0.0.11.json"
VECTORS: dict[str, Any] = json.loads(PATH.read_text("utf-8"))
INPUTS = {name: np.array(rows, dtype=np.float32) for name, rows in VECTORS["inputs"].items()}
RNG = np.random.default_rng(0)


def are_equal(found: NDArray[np.float64], expected: Rows) -> bool:
    return np.allclose(found, np.array(expected), rtol=1e-6, atol=1e-6)


def ours(name: str, options: dict[str, Any], n: int) -> tuple[str, dict[str, Any]]:
    """Return what ByzFL's name and options are called here.

    Krum's neighbours are n - f - 2 here and n - f - 1 there: Krum(f) here is its Krum(f + 1).
    """
    if name == "Krum":
        return name, {"f": options["f"] - 1}
    if name == "MultiKrum":
        return name, {"f": options["f"] - 1, "m": n - options["f"]}
    return ("FedAvg" if name == "Average" else name), options


@pytest.mark.parametrize("name", INPUTS)
def test_every_aggregation_is_that_of_byzfl(name: str) -> None:
    updates = INPUTS[name]
    cases = [case for case in VECTORS["aggregations"] if case["inputs"] == name]
    assert len(cases) > 20
    for case in cases:
        stages = [ours(rule, options, len(updates)) for rule, options in case["stages"]]
        pre = tuple(pre_aggregator_named(*stage) for stage in stages if stage[0] in PRE_AGGREGATORS)
        if len(pre) == len(stages):
            rows = Mixture(updates)  # type: ignore[arg-type]
            rows = rows.mixed(pre[0].coefficients(rows, RNG))
            found = np.concatenate([block for _, block in rows.blocks()], axis=1)
        else:
            aggregation = Aggregation(aggregator_named(*stages[-1]), pre)
            last = np.zeros(updates.shape[1])
            selected = aggregation.aggregate(list(updates), [1] * len(updates), last, RNG)
            assert selected is not None, case
            found = selected.vector
        assert are_equal(found, case["expected"]), (case, found)


def test_the_vectors_are_of_every_rule() -> None:
    names = {stage[0] for case in VECTORS["aggregations"] for stage in case["stages"]}
    # ByzFL has neither FLTrust nor DnC: `test_new_rules_equal_their_papers` has them.
    others = {"Bucketing", "FLTrust", "DnC"}
    assert {ours(name, {"f": 1}, 9)[0] for name in names} | others == {
        *AGGREGATORS,
        *PRE_AGGREGATORS,
    }


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("count", [5, 12])
def test_the_measured_numpy_forms_come_to_the_same(name: str, count: int) -> None:
    updates = np.random.default_rng(count).standard_normal((count, 9_000), dtype=np.float32)
    by_numpy, ours = (way(20 * updates) for way in PAIRS[name])
    assert np.allclose(by_numpy, ours, rtol=1e-4, atol=1e-4)


def test_iterated_centered_clipping_equals_byzfl() -> None:
    for case in VECTORS["clipping"]:
        aggregator = aggregator_named("CenteredClipping", case["options"])
        last = np.zeros(6)
        for one in case["rounds"]:
            mixture = Mixture(list(INPUTS[one["inputs"]]))
            last = aggregator.aggregate(mixture, np.ones(len(mixture)), last).vector
            assert are_equal(last, one["expected"])


def test_buckets_are_those_of_byzfl_in_the_same_order() -> None:
    for case in VECTORS["bucketing"]:
        updates = INPUTS[case["inputs"]]
        dealt = np.empty_like(updates)
        # What our stream deals next shall be what ByzFL's dealt next.
        dealt[np.random.default_rng(4).permutation(len(updates))] = updates[case["order"]]
        mixture = Mixture(list(dealt))
        rule = pre_aggregator_named("Bucketing", {"s": case["s"]})
        mixture = mixture.mixed(rule.coefficients(mixture, np.random.default_rng(4)))
        found = np.concatenate([rows for _, rows in mixture.blocks()], axis=1)
        assert are_equal(found, case["expected"])
