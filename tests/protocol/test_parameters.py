"""The invariants of a deployment, each at its bound and just past it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.protocol import parameters
from ledger.protocol.errors import ParametersError
from ledger.protocol.parameters import Parameters, parts_per_million

PENCIL: dict[str, Any] = {
    "clients": 20,
    "active_rate": 0.5,
    "committee_rate": 0.3,
    "aggregation_rate": 0.4,
    "rounds": 1,
    "dimension": 1,
}


def made(**changes: object) -> Parameters:
    return Parameters(**PENCIL | changes)


def refused(fact: str, **changes: object) -> None:
    with pytest.raises(ParametersError, match=fact):
        made(**changes)


def test_sizes_of_a_round() -> None:
    # 20 clients, half active: 10; 0.3 of them, 3, are members; 7 train; 0.4 * 7 = 2.8 rounds to 3.
    found = made()
    assert (found.active, found.members, found.trainers, found.accepted) == (10, 3, 7, 3)
    assert found.aggregation_ppm == 400_000


def test_a_committee_has_at_least_three_members() -> None:
    assert made(committee_rate=0.25).members == 3  # 2.5
    refused("C = 2 members, and needs at least 3", committee_rate=0.249999)


def test_trainers_are_at_least_as_many_as_members() -> None:
    assert made(committee_rate=0.5).trainers == made(committee_rate=0.5).members == 5
    refused("n = 4 trainers are fewer than C = 6", committee_rate=0.55)


def test_all_trainers_can_be_accepted_but_no_more() -> None:
    assert made(aggregation_rate=1.0).accepted == 7
    refused(r"aggregation_rate = 1.000001 is not in \[0, 1\]", aggregation_rate=1.000001)


def test_at_least_one_update_is_accepted() -> None:
    assert made(aggregation_rate=0.0).accepted == 1
    refused(r"aggregation_rate = -1e-06 is not in \[0, 1\]", aggregation_rate=-1e-6)


def test_all_clients_can_be_active_but_no_more() -> None:
    assert made(active_rate=1.0).active == 20
    refused("active_rate = 1.1 is not in", active_rate=1.1)


def test_the_contract_bounds_members_and_trainers() -> None:
    everyone: dict[str, Any] = {"active_rate": 1.0, "committee_rate": 0.4}
    assert made(**everyone, clients=400).members == parameters.MAX_MEMBERS == 160
    refused("members = 161 is over", **everyone, clients=402)
    few: dict[str, Any] = {"active_rate": 1.0, "committee_rate": 0.2}
    assert made(**few, clients=320).trainers == parameters.MAX_TRAINERS == 256
    refused("trainers = 257 is over", **few, clients=321)


def test_at_most_12288_clients_are_registered() -> None:
    few = {"active_rate": 0.001}
    assert made(clients=parameters.MAX_CLIENTS, **few, committee_rate=0.25).active == 12
    refused("clients = 12289 is not in", clients=parameters.MAX_CLIENTS + 1, **few)


@pytest.mark.parametrize(
    ("name", "bound"),
    [
        ("rounds", parameters.MAX_ROUNDS),
        ("dimension", parameters.MAX_DIMENSION),
        ("deadline_blocks", parameters.MAX_DEADLINE_BLOCKS),
    ],
)
def test_whole_numbers_are_from_one_to_their_bound(name: str, bound: int) -> None:
    for value in (1, bound):
        assert getattr(made(**{name: value}), name) == value
    for value in (0, -1, bound + 1):
        refused(f"{name} = {value} is not in", **{name: value})


def test_without_a_client_there_is_nothing() -> None:
    refused("clients = 0 is not in", clients=0)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("inf"), float("nan")])
def test_the_server_rate_is_a_positive_number(rate: float) -> None:
    assert made(server_rate=5e-324).server_rate > 0
    refused("is not a positive number", server_rate=rate)


@pytest.mark.parametrize("name", ["active_rate", "committee_rate", "aggregation_rate"])
@pytest.mark.parametrize("rate", [float("nan"), float("inf"), -0.1, 1.5])
def test_no_share_is_outside_zero_and_one(name: str, rate: float) -> None:
    refused(f"{name} = .* is not in", **{name: rate})


@pytest.mark.parametrize("name", ["active_rate", "committee_rate", "aggregation_rate"])
def test_a_share_has_at_most_six_decimals(name: str) -> None:
    made(**{name: 0.450001})
    refused(f"{name} = 0.4500001 has more than six decimals", **{name: 0.4500001})
    refused("more than six decimals", **{name: 0.1 + 0.2})


def test_a_share_is_read_as_it_is_written() -> None:
    assert parts_per_million("rate", 0.000001) == 1
    assert int(0.000249 * 10**6) == 248  # what float64 makes of it
    assert parts_per_million("rate", 0.000249) == 249
    assert parts_per_million("rate", 1) == 1_000_000
    assert parts_per_million("rate", np.float64(0.25)) == 250_000


@given(millionths=st.integers(0, 1_000_000))
def test_every_millionth_is_read_exactly(millionths: int) -> None:
    assert parts_per_million("rate", millionths / 1_000_000) == millionths


@given(rate=st.floats())
def test_any_number_is_a_share_or_refused(rate: float) -> None:
    try:
        assert parts_per_million("rate", rate) / 1_000_000 == rate
    except ParametersError:
        assert not 0 <= rate <= 1 or round(rate, 6) != rate


@given(
    clients=st.integers(-1, 700),
    rates=st.tuples(*[st.integers(0, 1000).map(lambda x: x / 1000)] * 3),
)
def test_what_is_not_refused_keeps_every_invariant(
    clients: int, rates: tuple[float, float, float]
) -> None:
    try:
        found = Parameters(clients, *rates, 1, 1)
    except ParametersError:
        return
    assert parameters.MIN_MEMBERS <= found.members <= found.trainers
    assert found.members <= parameters.MAX_MEMBERS
    assert 1 <= found.accepted <= found.trainers <= parameters.MAX_TRAINERS
    assert found.members + found.trainers == found.active <= found.clients
