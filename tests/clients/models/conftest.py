"""Models are computed here as they are in a run: by one thread."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from clients.devices import reproducible


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with reproducible(torch.device("cpu")):
        yield
