"""The numbers behind the figures, by pencil."""

from __future__ import annotations

import pytest

from clients.experiments.series import (
    over_rounds,
    positions_of,
    share_at_most,
    times_by_accuracy,
    times_by_samples,
)
from tests.clients.experiments.made_up import cell


def test_rounds_that_no_seed_measured_are_no_points() -> None:
    cells = [cell("A", 1, (0.2, None, 0.6)), cell("A", 2, (0.4, None, 0.6))]
    line = over_rounds("A", cells, lambda one: one.accuracy)
    assert line.x == (1.0, 3.0)
    assert line.mean == pytest.approx((0.3, 0.6))
    # .2 and .4: deviation .1414, over the root of 2.
    assert line.error == pytest.approx((0.1, 0.0))


def test_a_line_ends_where_a_seeds_model_is_non_finite() -> None:
    cells = [cell("A", 1, (0.2, 0.5)), cell("A", 2, (0.4, None))]
    line = over_rounds("A", cells, lambda one: one.accuracy)
    assert line.x == (1.0,)
    assert line.mean == pytest.approx((0.3,))
    (alone,) = over_rounds("A", cells[:1], lambda one: one.accuracy).error[:1]
    assert alone is None  # a single seed says nothing of its spread


def test_a_truncated_run_counts_as_far_as_it_went() -> None:
    cells = [cell("A", 1, (0.2, 0.4)), cell("A", 2, (0.4,))]
    assert over_rounds("A", cells, lambda one: one.accuracy).mean == pytest.approx((0.3, 0.4))


def test_nothing_measured_is_a_line_without_points() -> None:
    assert over_rounds("A", [cell("A", 1, (None,))], lambda one: one.accuracy).x == ()


def test_the_share_of_clients_at_most_x() -> None:
    cells = [cell("A", 1, (0.5,), times_aggregated=(0, 0, 2, 5))]
    line = share_at_most("A", cells, lambda one: one.times_aggregated)
    assert (line.x, line.mean) == ((0, 2, 5), (0.5, 0.75, 1.0))


def test_clients_fall_into_classes_of_accuracy() -> None:
    one = cell(
        "A", 1, (0.5,), times_aggregated=(4, 2, 9, 1), client_accuracy=(0.1, 0.19, None, 0.95)
    )
    line = times_by_accuracy("A", [one])
    assert line.x == pytest.approx((0.1, 0.9))
    assert line.mean == (3.0, 1.0)


def test_clients_are_parted_by_their_samples() -> None:
    one = cell("A", 1, (0.5,), times_aggregated=(7, 1, 3, 5), samples=(40, 10, 20, 30))
    assert times_by_samples("A", [one], classes=2).mean == (2.0, 6.0)


@pytest.mark.parametrize(
    ("labels", "positions"),
    [(("10", "5"), (10.0, 5.0)), (("10", "base"), (0.0, 1.0)), (("1", "1.0"), (0.0, 1.0))],
)
def test_an_axis_of_numbers_has_them_as_positions(
    labels: tuple[str, ...], positions: tuple[float, ...]
) -> None:
    cells = [cell("A", 1, (0.5,), axes={"size": label}) for label in labels]
    assert positions_of(cells, "size") == dict(zip(labels, positions, strict=True))
