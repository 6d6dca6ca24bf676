"""What becomes of errors of a model's code while it trains."""

from __future__ import annotations

import pytest

from clients.training.port import TrainingError
from clients.training.workload import as_training_error


def test_an_exiting_model_does_not_look_like_success() -> None:
    with pytest.raises(TrainingError, match="the model failed: SystemExit: 0"), as_training_error():
        raise SystemExit(0)


def test_ctrl_c_in_a_model_stays_ctrl_c() -> None:
    with pytest.raises(KeyboardInterrupt), as_training_error():
        raise KeyboardInterrupt
