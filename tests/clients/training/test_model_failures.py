"""What becomes of errors of a model's code and of a card while it trains."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch

from clients.training.engine_factory import LocalEngine
from clients.training.jobs import as_training_error
from clients.training.port import TrainingError
from ledger.protocol.rules.distance import plain_distances
from tests.clients.training.made import CONVOLUTIONAL, JOBS, start_of, workload
from tests.clients.training.on_devices import needs_card


def test_an_exiting_model_does_not_look_like_success() -> None:
    with pytest.raises(TrainingError, match="the model failed: SystemExit: 0"), as_training_error():
        raise SystemExit(0)


def test_ctrl_c_in_a_model_stays_ctrl_c() -> None:
    with pytest.raises(KeyboardInterrupt), as_training_error():
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried"), "fewer machine.workers"),
        (RuntimeError("CUDA error: unspecified launch failure\nCompile with"), "the card failed,"),
    ],
)
def test_a_card_that_fails_is_named_in_one_sentence(error: RuntimeError, message: str) -> None:
    with pytest.raises(TrainingError, match=message) as caught, as_training_error():
        raise error
    assert "\n" not in str(caught.value)
    assert "the model failed" not in str(caught.value)


@pytest.fixture
def little_memory() -> Iterator[None]:
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(torch.cuda.memory_reserved() / total)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


@needs_card
@pytest.mark.parametrize("path", ["plain", "lockstep"])
def test_exhausted_memory_is_said_in_one_sentence(
    path: Literal["plain", "lockstep"], request: pytest.FixtureRequest
) -> None:
    work = replace(workload(CONVOLUTIONAL), device="cuda", path=path)
    start = start_of(CONVOLUTIONAL)
    request.getfixturevalue("little_memory")
    with (
        pytest.raises(TrainingError, match="the card's memory is not enough"),
        LocalEngine(work, len(JOBS), plain_distances) as engine,
    ):
        engine.train(start, JOBS)
    torch.cuda.set_per_process_memory_fraction(1.0)
    with LocalEngine(work, len(JOBS), plain_distances) as engine:
        assert all(np.isfinite(update.vector).all() for update in engine.train(start, JOBS))
