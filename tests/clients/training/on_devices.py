"""Tests on the processor and, where there is one, on a card: `make gpu` runs those of the card."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest
import torch

NEEDS_CARD = (
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA"),
)
ON_EACH_DEVICE = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=NEEDS_CARD)])


Test = TypeVar("Test", bound=Callable[..., None])


def needs_card(test: Test) -> Test:
    for mark in NEEDS_CARD:
        test = mark(test)
    return test
