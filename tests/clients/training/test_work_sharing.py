"""Who takes which jobs and which blocks of an evaluation: each exactly once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.training.jobs import (
    BLOCK,
    EvaluationBlock,
    Evaluator,
    JobQueue,
    blocks_of,
    evaluate,
    shares,
    totals_by_set,
)
from tests.clients.training.made import CONVOLUTIONAL, DATA, SETS, start_of, workload


def pieces(costs: list[int], workers: int, chunk: int) -> list[list[int]]:
    left, found = JobQueue(costs, workers, chunk), []
    while taken := left.take():
        found.append(taken)
    return found


@given(
    costs=st.lists(st.integers(0, 50), max_size=40),
    workers=st.integers(1, 5),
    chunk=st.integers(1, 12),
)
def test_every_job_is_taken_once_longest_first(costs: list[int], workers: int, chunk: int) -> None:
    order = [job for piece in pieces(costs, workers, chunk) for job in piece]
    assert sorted(order) == list(range(len(costs)))
    assert [costs[job] for job in order] == sorted(costs, reverse=True)


def test_pieces_get_smaller_by_pencil() -> None:
    # 16 equal jobs, 2 workers: half of a worker's share of the rest is 4, then 3, 2, 1 ...
    assert [len(piece) for piece in pieces([5] * 16, 2, 1)] == [4, 3, 2, 1, 1, 1, 1, 1, 1, 1]


def test_a_job_as_long_as_all_others_is_taken_alone() -> None:
    assert pieces([1, 1, 9, 1, 1, 1], 2, 1)[0] == [2]


def test_whole_chunks_are_taken_while_there_is_enough_for_everybody() -> None:
    assert [len(piece) for piece in pieces([5] * 40, 2, 4)] == [8, 8, 4, 4, 4, 4, 4, 4]
    # Ten at once would leave the other worker with two.
    assert [len(piece) for piece in pieces([5] * 12, 2, 10)] == [6, 6]
    assert [len(piece) for piece in pieces([5] * 70, 2, 10)] == [9, 9, 9, 9, 9, 9, 9, 7]


NAMES = tuple(SETS)


def test_blocks_go_through_the_sets_one_after_another_by_pencil() -> None:
    assert blocks_of([BLOCK + 1, 0, 3]) == [
        EvaluationBlock(0, slice(0, BLOCK)),
        EvaluationBlock(0, slice(BLOCK, BLOCK + 1)),
        EvaluationBlock(2, slice(0, 3)),
    ]


def test_every_set_comes_to_what_it_comes_to_alone() -> None:
    start = start_of(CONVOLUTIONAL)
    evaluator = Evaluator(workload(CONVOLUTIONAL))
    cut = blocks_of([len(one.y) for one in SETS.values()])
    parts = evaluator.parts(start, NAMES, slice(None))
    alone = tuple(evaluate(CONVOLUTIONAL, start, one, DATA.collate) for one in SETS.values())
    assert totals_by_set(len(NAMES), cut, parts) == alone
    assert [one.samples for one in alone] == [700, 3, 9]
    in_pieces = [
        part for i in range(len(cut)) for part in evaluator.parts(start, NAMES, slice(i, i + 1))
    ]
    assert in_pieces == parts


@pytest.mark.parametrize(
    ("sizes", "workers", "expected"),
    [
        ([BLOCK] * 4, 2, [2, 2]),
        ([BLOCK] * 5, 2, [3, 2]),
        ([BLOCK, 1, 1, 1], 2, [1, 3]),
        ([5], 3, [0, 1, 0]),
        ([], 2, [0, 0]),
    ],
)
def test_workers_get_about_as_many_samples_each(sizes: Any, workers: int, expected: Any) -> None:
    cut = blocks_of(sizes)
    found = shares(cut, workers)
    assert [block for chosen in found for block in cut[chosen]] == cut
    assert [len(cut[chosen]) for chosen in found] == expected
