"""What the report says of rows that nobody ran, and what a few repetitions say, by pencil."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.experiments.catalogue import definition_named
from clients.experiments.report import captured_share, report, sections, tables
from clients.experiments.rows import ChoiceRow, ExperimentRows, sorted_rows
from clients.experiments.statistics import Estimate, average_ranks, mean_and_error, paired, spearman
from tests.clients.experiments.made_up import EVIDENCE, cell, constant, rows


def test_a_table_cell_is_mean_and_error_over_seeds() -> None:
    # .8, .9, 1.0: mean .9, deviation .1, over the root of 3.
    lines = tables([*constant("CMFL-I", (0.8, 0.9, 1.0)), *constant("Krum", (0.5, 0.5))])
    assert lines[2:5] == [
        "|  | CMFL-I | Krum |",
        "| --- | --- | --- |",
        "| clean | 0.900 ± 0.058 | 0.500 ± 0.000 (2 of 3 seeds) |",
    ]


def test_a_captured_committee_is_told_by_its_worst_round() -> None:
    # Of 4 members 1 and 3 are malicious: three quarters; a server has no committee.
    held = cell("robust", 1, (0.8, 0.8), malicious_members=(1, 3), extra={"committee": 4})
    assert captured_share(held) == 0.75
    assert captured_share(cell("FedAvg", 1, (0.8,))) is None
    calm = cell("robust", 2, (0.8, 0.8), malicious_members=(0, 0), extra={"committee": 4})
    assert "| clean | 0.375 ± 0.375 |" in tables([held, calm])


def test_a_report_tells_all_and_is_the_same_each_time() -> None:
    cells = [*constant("CMFL-I", (0.8, 0.9, 1.0), ledger=EVIDENCE)]
    choice = ChoiceRow(
        experiment="normal-sent140",
        method="CMFL-I",
        factor=0.5,
        finals={"0.5": 0.8, "1": 0.7},
        seeds=(100, 101),
        digest="0x00",
    )
    found = {
        "normal-sent140": ExperimentRows(
            tuple(cells), (), (choice,), definition_named("normal-sent140")
        ),
        "empty": ExperimentRows(),
    }
    text = report(found)
    assert text == report(found)
    assert "## 1. Normal training, Sentiment140: `normal-sent140`" in text
    assert "| clean | 0.900 ± 0.058 |" in text
    assert (
        "| normal-sent140 | CMFL-I | 0.5 (smallest tried) | 0.1 | 2 | 0.5: 0.800, 1: 0.700 |"
        in text
    )
    assert EVIDENCE.head in text
    assert "| 1 | normal-sent140 | 3 | 0 | 3 of 3 | 1.5 |" in text
    assert "empty" not in text


def test_a_section_shows_the_figures_of_its_experiment() -> None:
    found = {name: rows(constant("CMFL-I", (0.8,))) for name in ("normal", "normal-sent140")}
    lines = sections(found, ["f/normal-sent140-curves.svg", "f/normal-curves.svg"])
    shown = [line for line in lines if line.startswith("!")]
    assert shown == [f"![{name}-curves](f/{name}-curves.svg)" for name in found]


def test_rows_are_told_in_the_order_of_their_definition() -> None:
    # As they ended: the second method first, the later seed first.
    ended = [
        cell("CMFL-I", 201, (0.8,)),
        cell("FedAvg-trainers", 201, (0.7,)),
        cell("unheard-of", 200, (0.6,)),
        cell("CMFL-I", 200, (0.8,)),
    ]
    known = replace(rows(ended), definition=definition_named("normal"))
    ordered = sorted_rows({"normal": known, "none": ExperimentRows()})
    assert [(one.method, one.seed) for one in ordered["normal"].cells] == [
        ("FedAvg-trainers", 201),
        ("CMFL-I", 200),
        ("CMFL-I", 201),
        ("unheard-of", 200),
    ]
    assert report({"normal": rows(ended)}) == report({"normal": rows(reversed(ended))})


NUMBERS = st.lists(st.integers(-5, 5).map(float), min_size=2, max_size=12)


def test_a_mean_has_the_error_of_the_sample_deviation() -> None:
    # Mean 4, squares 4 + 0 + 4 = 8, s² = 8 / 2 = 4, error 2 / sqrt(3).
    found = mean_and_error([2.0, 4.0, 6.0])
    assert (found.mean, found.count) == (4.0, 3)
    assert found.error == pytest.approx(2 / sqrt(3))


def test_a_mean_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no values"):
        mean_and_error([])


@pytest.mark.parametrize("value", [nan, inf])
def test_what_is_not_finite_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="not finite"):
        mean_and_error([1.0, value])
    with pytest.raises(ValueError, match="not finite"):
        spearman([1.0, value], [1.0, 2.0])


def test_a_difference_is_taken_pair_by_pair() -> None:
    # Differences 1, 1, 1 have no spread, though both sides have.
    assert paired([2.0, 11.0, 101.0], [1.0, 10.0, 100.0]) == Estimate(1.0, 0.0, 3)


def test_what_has_no_partner_is_refused() -> None:
    with pytest.raises(ValueError, match="2 values beside 1"):
        paired([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="2 values beside 1"):
        spearman([1.0, 2.0], [1.0])


def test_the_rank_correlation_of_five_clients() -> None:
    # Rank differences 0, 1, 1, 1, 1: 1 - 6 * 4 / (5 * 24) = 0.8.
    assert spearman([1, 2, 3, 4, 5], [10, 30, 20, 50, 40]) == pytest.approx(0.8)


def test_without_an_order_there_is_no_correlation() -> None:
    assert spearman([1, 2, 3], [4, 4, 4]) is None
    assert spearman([1], [1]) is None
    assert spearman([], []) is None


@given(NUMBERS)
def test_only_the_order_counts(values: list[float]) -> None:
    others = values[::-1]
    found = spearman(values, others)
    assert found == spearman([value**3 for value in values], others)
    assert found is None or -1 <= found <= 1
    assert spearman(others, values) == found
    if found is not None:
        assert spearman(values, [-other for other in others]) == pytest.approx(-found)
        assert spearman(values, values) == pytest.approx(1.0)


@given(NUMBERS)
def test_ranks_are_those_of_counting(values: list[float]) -> None:
    array = np.array(values)
    below = (array[None, :] < array[:, None]).sum(axis=1)
    equal = (array[None, :] == array[:, None]).sum(axis=1)
    assert average_ranks(values) == (below + (equal + 1) / 2).tolist()
