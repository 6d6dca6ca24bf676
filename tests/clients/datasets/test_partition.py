"""The partitioners: who holds which samples of a pooled data set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.datasets.federated_data import DataForm
from clients.datasets.partition.dirichlet import dirichlet_shares
from clients.datasets.partition.registry import PARTITIONS, partition_of
from clients.datasets.records import PooledData
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from clients.datasets.partition.division import Division


def labels(per_class: int, classes: int = 10) -> np.ndarray:
    return np.repeat(np.arange(classes), per_class)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def pool_of(y: np.ndarray, owner: np.ndarray | None = None, test: int = 2) -> PooledData:
    """The last `test` samples are for the test."""
    rows = np.arange(len(y))
    return PooledData(
        form=DataForm((1,), int(y.max()) + 1),
        x=rows[:, None],
        y=y,
        train=rows[: len(y) - test],
        test=rows[len(y) - test :],
        owner=owner,
        owners=() if owner is None else tuple("abcdefgh"[: int(owner.max()) + 1]),
        owned_by="writers",
    )


def divided(name: str, pool: PooledData, clients: int, seed: int = 0, **keys: Any) -> Division:
    partition = partition_of({"name": name, **keys}, has_owners=pool.owner is not None)
    return partition.divide(pool, clients, rng(seed))


@given(
    name=st.sampled_from(["iid", "dirichlet", "shards", "quantity"]),
    clients=st.integers(1, 19),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_training_sample_goes_to_exactly_one_client(
    name: str, clients: int, seed: int
) -> None:
    pool = pool_of(labels(4))
    shares = divided(name, pool, clients, seed).train
    assert len(shares) == clients
    assert all(len(share) >= 1 for share in shares)
    assert np.array_equal(np.sort(np.concatenate(shares)), pool.train)
    again = divided(name, pool, clients, seed).train
    assert all(np.array_equal(a, b) for a, b in zip(shares, again, strict=True))


@given(clients=st.integers(1, 40), alpha=st.floats(1e-3, 1e3), seed=st.integers(0, 2**32 - 1))
def test_dirichlet_divides_for_any_concentration(clients: int, alpha: float, seed: int) -> None:
    shares = dirichlet_shares(labels(4), clients, alpha, rng(seed))
    assert all(len(share) >= 1 for share in shares)
    assert np.array_equal(np.sort(np.concatenate(shares)), np.arange(40))


def test_a_small_alpha_concentrates_classes_and_a_large_one_spreads() -> None:
    def largest_share(alpha: float) -> float:
        y = labels(100)
        shares = dirichlet_shares(y, 10, alpha, rng())
        counts = np.array([np.bincount(y[share], minlength=10) for share in shares])
        return float(np.mean(counts.max(axis=0) / 100))

    assert largest_share(0.01) > 0.8
    assert largest_share(1e6) == pytest.approx(0.1, abs=0.02)


def test_iid_gives_everybody_as_many_samples_but_for_one() -> None:
    shares = divided("iid", pool_of(labels(4)), 7).train
    assert sorted(map(len, shares)) == [5, 5, 5, 5, 6, 6, 6]


def test_shards_give_a_client_no_more_classes_than_shards() -> None:
    # 40 samples of 10 classes in 10 shards: each shard is one class.
    y = labels(4)
    shares = divided("shards", pool_of(y, test=0), 5, shards=2).train
    assert [len(share) for share in shares] == [8] * 5
    assert all(len(set(y[share])) <= 2 for share in shares)


def test_quantity_makes_sizes_unequal_and_keeps_the_mixture() -> None:
    y = labels(100)
    shares = divided("quantity", pool_of(y, test=0), 5, alpha=0.5).train
    sizes = sorted(map(len, shares))
    assert sizes[0] < 100 < 300 < sizes[-1]
    largest = max(shares, key=len)
    mixture = np.bincount(y[largest], minlength=10) / len(largest)
    assert mixture.min() > 0.05


def test_given_shares_are_the_first_clients() -> None:
    # Of 1,000 samples .6 and .006; the others share 394.
    shares = divided("quantity", pool_of(labels(100), test=0), 5, shares=[0.6, 0.006]).train
    assert [len(share) for share in shares[:2]] == [600, 6]
    assert sum(map(len, shares)) == 1000


@pytest.mark.parametrize(
    ("shares", "clients", "rule"),
    [
        ([0.6, 0.4], 5, "must be below 1, for the other clients"),
        ([0.1, 0.1], 2, "2 of them; must be fewer than the 2 clients"),
        ([0.0], 5, "greater than 0"),
        ([], 5, "at least 1 item"),
    ],
)
def test_impossible_shares_are_refused(shares: list[float], clients: int, rule: str) -> None:
    with pytest.raises(ConfigurationError, match=rule):
        divided("quantity", pool_of(labels(10), test=0), clients, shares=shares)


@pytest.mark.parametrize("name", ["dirichlet", "quantity"])
def test_the_minimum_is_kept(name: str) -> None:
    shares = divided(name, pool_of(labels(3), test=0), 10, alpha=0.01, minimum=3).train
    assert [len(share) for share in shares] == [3] * 10


def test_natural_draws_owners_and_keeps_their_order_and_their_split() -> None:
    owner = np.array([0, 2, 1, 0, 2, 1, 0, 2, 2, 1])
    pool = pool_of(np.zeros(10, dtype=np.int64), owner, test=4)
    whole = divided("natural", pool, 3)
    assert whole.tests is not None
    assert [rows.tolist() for rows in whole.train] == [[0, 3], [2, 5], [1, 4]]
    assert [rows.tolist() for rows in whole.tests] == [[6], [9], [7, 8]]
    drawn = {
        tuple(int(owner[rows[0]]) for rows in divided("natural", pool, 2, seed).train)
        for seed in range(20)
    }
    assert drawn == {(0, 1), (0, 2), (1, 2)}


def test_natural_refuses_owners_without_training_and_a_test_without_samples() -> None:
    y = np.zeros(4, dtype=np.int64)
    with pytest.raises(ConfigurationError, match="'b' of the writers has no training sample"):
        divided("natural", pool_of(y, np.array([0, 0, 1, 1])), 1)
    # All of the test is b's: one seed draws b, another a.
    pool = pool_of(y, np.array([0, 1, 1, 1]))
    assert divided("natural", pool, 1, seed=0).train[0].tolist() == [1]
    with pytest.raises(ConfigurationError, match="the data: no test samples of the 1 writers"):
        divided("natural", pool, 1, seed=1)


def test_natural_needs_owners_and_no_more_clients_than_owners() -> None:
    y = np.zeros(4, dtype=np.int64)
    with pytest.raises(ConfigurationError, match="'natural': the data has no natural clients"):
        divided("natural", pool_of(y), 1)
    owned = pool_of(y, np.array([0, 1, 0, 1]))
    with pytest.raises(ConfigurationError, match="3 clients, but the data has 2 writers"):
        divided("natural", owned, 3)
    with pytest.raises(ConfigurationError, match="clients = 0"):
        divided("natural", owned, 0)


@pytest.mark.parametrize("name", ["iid", "dirichlet", "shards", "quantity"])
def test_as_many_clients_as_samples_is_the_limit(name: str) -> None:
    keys = {"shards": 1} if name == "shards" else {}
    pool = pool_of(labels(1), test=0)
    assert [len(share) for share in divided(name, pool, 10, **keys).train] == [1] * 10
    with pytest.raises(ConfigurationError, match=r"more clients than data: 11 clients.* 10 tr"):
        divided(name, pool, 11, **keys)
    with pytest.raises(ConfigurationError, match="clients = 0"):
        divided(name, pool, 0, **keys)


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan"), float("inf")])
def test_a_nonpositive_alpha_is_refused_in_file_and_code(alpha: float) -> None:
    with pytest.raises(ConfigurationError, match=r"data\.partition\.alpha: .*\(given: "):
        partition_of({"name": "dirichlet", "alpha": alpha}, has_owners=False)
    with pytest.raises(ConfigurationError, match=r"alpha = .*: must be finite and above 0"):
        dirichlet_shares(labels(1), 2, alpha, rng())


def test_the_default_partition_is_natural_with_owners_else_dirichlet() -> None:
    assert isinstance(partition_of({}, has_owners=True), PARTITIONS["natural"])
    usual = partition_of({"alpha": 2}, has_owners=False)
    assert usual.model_dump() == {"name": "dirichlet", "alpha": 2.0, "minimum": 1}


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"name": "dirichlets"}, "unknown partition 'dirichlets'; known are natural, iid, "),
        ({"name": "iid", "alpha": 1.0}, r"data\.partition\.alpha: there is no such setting"),
        ({"name": "shards", "shards": 0}, r"data\.partition\.shards: .* \(given: 0\)"),
    ],
)
def test_an_invalid_partition_is_refused_with_the_rule(
    table: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        partition_of(table, has_owners=False)
