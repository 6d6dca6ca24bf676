"""Comparison of updates across environment classes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.environments import compared_with_file, comparison

if TYPE_CHECKING:
    from pathlib import Path

OTHERS = np.array([[1, 0], [0, 2]], dtype=np.float32)


def test_equal_bits_are_the_same_and_signed_zeros_are_not() -> None:
    assert comparison(OTHERS.copy(), OTHERS) == "same"
    negative = np.array([[1, -0.0], [0, 2]], dtype=np.float32)
    assert comparison(negative, OTHERS).startswith("1 of 2: 0e+00")
    assert comparison(OTHERS[:1], OTHERS) == "of another shape"


def test_a_difference_is_a_share_of_length_and_spread() -> None:
    trained = np.array([[1, 0], [0, 1]], dtype=np.float32)
    # The others are sqrt(1.25) from their mean, and one of them is 1 off at a length of 2.
    expected = "1 of 2: 5e-01 to 5e-01 lengths, 9e-01 to 9e-01 spreads"
    assert comparison(trained, OTHERS) == expected


def test_updates_are_compared_with_those_of_a_file(tmp_path: Path) -> None:
    about = np.array(json.dumps({"torch": "0.0.1", "processor": "another"}))
    np.savez_compressed(tmp_path / "other.npz", about=about, one=OTHERS)
    table = compared_with_file({"one": OTHERS.copy(), "two": OTHERS}, tmp_path / "other.npz")
    assert table.columns[1].header == "against torch 0.0.1, another"
    assert list(table.columns[0].cells) == ["one"]
    assert list(table.columns[1].cells) == ["same"]
