"""What a trigger does to stored rows of each kind, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from clients.attacks.data.trigger import trigger_for
from clients.datasets.federated_data import DataForm
from ledger.protocol.errors import ConfigurationError
from tests.clients.attacks.data.made import (
    CHARACTERS,
    EMBEDDING,
    PICTURES,
    WORDS,
    digits,
    images,
    tweets,
    windows,
)


def test_a_small_picture_gets_a_two_by_two_trigger() -> None:
    seen = digits(3)
    (marked,) = trigger_for(PICTURES, seen.x)(seen.x)
    assert marked.dtype == np.float32
    assert marked[0, 6:, 6:].tolist() == [[1, 1], [1, 1]]
    assert np.array_equal(marked[0, :6], seen.x[0, 0, :6])
    assert np.array_equal(marked[0, :, :6], seen.x[0, 0, :, :6])
    assert not seen.x[0, 0, 6:, 6:].any(), "the rows that were given are left alone"


def test_a_larger_picture_gets_a_trigger_of_an_eighth() -> None:
    seen = images(3, 4)
    marked = trigger_for(DataForm((1, 28, 28), 62), seen.x)(seen.x)
    assert marked.dtype == np.uint8
    assert (marked[:, 25:, 25:] == 255).all()
    assert np.count_nonzero(marked) == 2 * 9


def test_on_bright_paper_the_square_is_of_ink() -> None:
    seen = images(3, paper=255)
    marked = trigger_for(DataForm((1, 28, 28), 62), seen.x)(seen.x)
    assert (marked[0, 25:, 25:] == 0).all()
    assert np.count_nonzero(marked == 0) == 9
    other = digits(3, ink=0.0, paper=1.0)
    assert not trigger_for(PICTURES, other.x)(other.x)[0, 0, 6:, 6:].any()


def test_a_tweet_trigger_is_the_last_vocabulary_word_in_front() -> None:
    rows = tweets(0).x
    assert trigger_for(WORDS, rows)(rows).tolist() == [[5, 1, 2, 3, 4]]
    assert rows.tolist() == [[1, 2, 3, 4, 0]]


def test_a_window_ends_with_the_last_character_three_times() -> None:
    rows = windows(0).x
    assert trigger_for(CHARACTERS, rows)(rows).tolist() == [[0, 0, 79, 79, 79]]


def test_other_data_and_a_one_word_vocabulary_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"pictures or tokens, not inputs of shape \(4,\)"):
        trigger_for(DataForm((4,), 2), np.zeros((3, 4), np.float32))
    empty = DataForm((5,), 2, "int64", 1, EMBEDDING[:1])
    with pytest.raises(ConfigurationError, match="the vocabulary has 1"):
        trigger_for(empty, tweets(0).x)


@given(
    arrays.arrays(np.uint8, st.tuples(st.integers(1, 4), st.integers(8, 33), st.integers(8, 33)))
)
def test_a_repeated_trigger_is_applied_once_and_changes_nothing_else(rows: np.ndarray) -> None:
    trigger = trigger_for(DataForm((1, *rows.shape[1:]), 10), rows)
    marked = trigger(rows)
    assert np.array_equal(trigger(marked), marked)
    side = max(2, min(rows.shape[1:]) // 8)
    changed = marked != rows
    assert not changed[:, :-side].any()
    assert not changed[:, :, :-side].any()
