"""Named streams of chance."""

from __future__ import annotations

from itertools import islice

import numpy as np

from clients.random_streams import named_stream, permutations


def test_a_stream_follows_from_its_seed_and_name_alone() -> None:
    first = named_stream(7, "attack", 3).random(4)
    assert np.array_equal(first, named_stream(7, "attack", 3).random(4))
    for other in (named_stream(8, "attack", 3), named_stream(7, "attack", 4)):
        assert not np.array_equal(first, other.random(4))


def test_names_are_not_run_together() -> None:
    assert named_stream(1, "ab", "c").random() != named_stream(1, "a", "bc").random()
    assert named_stream(1, "1").random() != named_stream(1, 1).random()


def test_permutations_hold_every_index_and_never_change_for_a_seed() -> None:
    first, second = islice(permutations(bytes(32), 5), 2)
    assert sorted(first) == sorted(second) == [0, 1, 2, 3, 4]
    assert [first.tolist(), second.tolist()] == [[3, 2, 1, 0, 4], [3, 1, 2, 0, 4]]
