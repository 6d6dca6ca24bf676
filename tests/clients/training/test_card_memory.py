"""A card whose memory is exhausted: one sentence, and the next engine works."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from clients.training.engine_factory import LocalEngine
from clients.training.port import TrainingError
from ledger.protocol.rules.distance import plain_distances
from tests.clients.training.made import CONVOLUTIONAL, JOBS, start_of, workload
from tests.clients.training.on_devices import needs_card

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Literal


@pytest.fixture
def little_memory() -> Iterator[None]:
    """Let this process take no more of the card than it has."""
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
