"""The attack `many-samples` aims at weights: strategy 3 has none to aim at."""

from __future__ import annotations

import numpy as np
import pytest

from clients.configuration.loading import load
from ledger.protocol.inputs import Inputs, Participants, RoundClosing
from ledger.protocol.judgement import next_model
from ledger.protocol.types import NO_DIGEST, Address, ClientId, Domain, RegisteredClient

ADDRESS = Address(bytes(20))
ACCEPTED = tuple(map(ClientId, range(4)))
UPDATES = {client: np.eye(4, dtype=np.float32)[client] for client in ACCEPTED}


def model_after(strategy: int, samples: tuple[int, ...]) -> list[float]:
    """Return the model of a round whose four trainers declare these samples."""
    settings = (f"protocol.strategy={strategy}",)
    inputs = Inputs(
        parameters=load("digits", settings=settings).parameters(4),
        layout=(),
        domain=Domain(0, ADDRESS, NO_DIGEST),
        registry=tuple(RegisteredClient(ADDRESS, count) for count in samples),
        round=1,
        seed=NO_DIGEST,
        participants=Participants((), ACCEPTED, frozenset()),
        closing=RoundClosing(0, NO_DIGEST, {}),
    )
    found: list[float] = next_model(inputs, np.zeros(4, np.float32), ACCEPTED, UPDATES).tolist()
    return found


@pytest.mark.parametrize("strategy", [1, 2])
def test_declared_samples_weigh_in_the_papers_strategies(strategy: int) -> None:
    assert model_after(strategy, (1, 1, 1, 1)) == [-0.25] * 4
    assert model_after(strategy, (1, 1, 1, 5)) == [-0.125, -0.125, -0.125, -0.625]


def test_declared_samples_have_no_effect_in_strategy_three() -> None:
    assert model_after(3, (1, 2, 3, 4000)) == model_after(3, (1, 1, 1, 1)) == [-0.25] * 4
