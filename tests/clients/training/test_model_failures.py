"""What becomes of errors of a model's code while it trains."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from clients.training.device_distances import torch_distances
from clients.training.port import TrainingError
from clients.training.workload import as_training_error
from ledger.protocol.rules.distance import SQUARED
from ledger.protocol.types import ClientId


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
        (
            RuntimeError("CUDA error: unspecified launch failure\nCompile with"),
            "the card failed, or is gone: CUDA error: unspecified launch failure: see nvidia-smi",
        ),
    ],
)
def test_a_card_that_fails_is_named_in_one_sentence(error: RuntimeError, message: str) -> None:
    with pytest.raises(TrainingError, match=message) as caught, as_training_error():
        raise error
    assert "\n" not in str(caught.value)
    assert "the model failed" not in str(caught.value)


def test_distances_name_a_card_that_fails_too(monkeypatch: pytest.MonkeyPatch) -> None:
    distances = torch_distances(torch.device("cpu"))
    asked = SQUARED, None, {ClientId(0): np.ones(3, np.float32)}, [ClientId(0)]
    for error, expected in (
        (torch.OutOfMemoryError("CUDA out of memory"), TrainingError),
        (RuntimeError("a fault of ours"), RuntimeError),
    ):

        def failing(*_: object, error: Exception = error, **_more: object) -> object:
            raise error

        monkeypatch.setattr(torch, "zeros", failing)
        with pytest.raises(expected):
            distances(*asked)
