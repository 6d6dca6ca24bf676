"""Who takes which jobs: each exactly once, the longest first, in pieces that get smaller."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from clients.training.workload import JobQueue


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
