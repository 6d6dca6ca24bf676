"""Objectives whose minima a pencil finds."""

from __future__ import annotations

from math import log

import numpy as np

from benchmarks.paper.theorem.objective import Objective
from clients.datasets.federated_data import DataForm, FederatedData, Samples

MU = 1 / log(3)
"""For one sample at x = 1 the minimum has scores ln(3)/2 and -ln(3)/2 then: odds of 3 to 1."""

ONE_SAMPLE = log(4 / 3) + log(3) / 8
"""F_k* there: -ln(3/4), and mu/2 times the four squares of ln(3)/4."""


def one_sample(label: int, mu: float = MU) -> Objective:
    """Return the objective of a client with a single sample, x = 1, and two classes."""
    return Objective(np.ones((1, 2)), np.array([label]), 2, mu)


def divided(*clients: tuple[tuple[float, ...], tuple[int, ...]]) -> FederatedData:
    """Return data of one feature: of each client its x and its labels."""
    parts = tuple(
        Samples(np.array(x, dtype=np.float32)[:, None], np.array(y, dtype=np.int64))
        for x, y in clients
    )
    x, y = (np.concatenate([part[place] for part in parts]) for place in (0, 1))
    return FederatedData("pencil", DataForm((1,), 2), parts, Samples(x, y))


OPPOSED = divided(((1.0,), (0,)), ((1.0,), (1,)))
"""Two clients that see the same x and call it by the two labels: together they know nothing."""
