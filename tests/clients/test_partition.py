"""The Dirichlet partition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.datasets.partition import dirichlet_partition
from ledger.protocol.errors import ConfigurationError


def labels(per_class: int, classes: int = 10) -> np.ndarray:
    return np.repeat(np.arange(classes), per_class)


@given(clients=st.integers(1, 40), alpha=st.floats(1e-3, 1e3), seed=st.integers(0, 2**32 - 1))
def test_every_sample_goes_to_exactly_one_client_and_nobody_is_left_out(
    clients: int, alpha: float, seed: int
) -> None:
    shares = dirichlet_partition(labels(4), clients, alpha, np.random.default_rng(seed))
    assert len(shares) == clients
    assert all(len(share) >= 1 for share in shares)
    assert np.array_equal(np.sort(np.concatenate(shares)), np.arange(40))


def test_a_small_alpha_gives_a_class_to_few_clients_and_a_large_one_deals_it_out() -> None:
    def largest_share(alpha: float) -> float:
        y = labels(100)
        shares = dirichlet_partition(y, 10, alpha, np.random.default_rng(0))
        counts = np.array([np.bincount(y[share], minlength=10) for share in shares])
        return float(np.mean(counts.max(axis=0) / 100))

    assert largest_share(0.01) > 0.8
    assert largest_share(1e6) == pytest.approx(0.1, abs=0.02)


def test_as_many_clients_as_samples_get_one_each_and_one_more_is_refused() -> None:
    shares = dirichlet_partition(labels(1), 10, 0.5, np.random.default_rng(0))
    assert [len(share) for share in shares] == [1] * 10
    with pytest.raises(ConfigurationError, match=r"more clients than data: 11 clients.* 10 tr"):
        dirichlet_partition(labels(1), 11, 0.5, np.random.default_rng(0))


def test_the_minimum_is_kept() -> None:
    shares = dirichlet_partition(labels(3), 10, 0.01, np.random.default_rng(0), minimum=3)
    assert [len(share) for share in shares] == [3] * 10


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan"), float("inf")])
def test_an_alpha_that_is_not_above_zero_is_refused(alpha: float) -> None:
    with pytest.raises(ConfigurationError, match="dirichlet_alpha"):
        dirichlet_partition(labels(1), 2, alpha, np.random.default_rng(0))


def test_no_clients_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="clients = 0"):
        dirichlet_partition(labels(1), 0, 0.5, np.random.default_rng(0))
