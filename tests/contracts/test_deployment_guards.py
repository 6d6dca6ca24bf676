"""The constructor refuses what the parameters' invariants forbid, and takes their bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ledger.chain.contract import abi
from ledger.chain.contract.deploy import creation_data
from ledger.chain.ports import ChainWriter, TransactionRevertedError
from ledger.protocol.parameters import (
    MAX_BLOCKS,
    MAX_CLIENTS,
    MAX_MEMBERS,
    MAX_ROUNDS,
    MAX_TRAINERS,
)
from tests.contracts.twins import DEPLOYMENT_GAS, Shape, Twins, digest_of

LARGEST = Shape(clients=MAX_CLIENTS, trainers=MAX_TRAINERS, members=MAX_MEMBERS)


REFUSED: tuple[tuple[dict[str, Any], str], ...] = (
    ({"members": 2}, "a committee needs three members"),
    ({"trainers": MAX_TRAINERS, "members": MAX_MEMBERS + 1}, "too many members"),
    ({"trainers": 4}, "too few trainers"),
    ({"trainers": MAX_TRAINERS + 1}, "too many trainers"),
    ({"clients": 10}, "too few clients"),
    ({"clients": MAX_CLIENTS + 1}, "too many clients"),
    ({"aggregation_ppm": 1_000_001}, "more are accepted than train"),
    ({"form": 0}, "strategy is unknown"),
    ({"form": 4}, "strategy is unknown"),
    ({"rounds": 0}, "there is no round"),
    ({"rounds": MAX_ROUNDS + 1}, "too many rounds"),
    ({"commit_blocks": 0}, "there is no block to commit in"),
    ({"deadline_blocks": 4}, "there is no block to decide in"),
    ({"deadline_blocks": 5}, "there is no block to decide in"),
    ({"commit_blocks": 2**64 - 1}, "there is no block to decide in"),
    ({"deadline_blocks": MAX_BLOCKS + 1}, "deadline is too late"),
    ({"replies": 1}, "too few replies decide"),
    ({"replies": 5}, "more replies decide than members can give"),
)


@pytest.mark.parametrize(
    "shape",
    [
        LARGEST,
        Shape(clients=6, trainers=3, members=3),
        Shape(clients=6, trainers=3, members=3, replies=1),
        Shape(replies=4),
        Shape(aggregation_ppm=0),
        Shape(aggregation_ppm=1_000_000),
        Shape(rounds=1, commit_blocks=1, deadline_blocks=3),
        Shape(rounds=MAX_ROUNDS, commit_blocks=MAX_BLOCKS - 2, deadline_blocks=MAX_BLOCKS),
    ],
)
def test_takes_the_bounds_and_says_what_it_took(chain: ChainWriter, shape: Shape) -> None:
    deployment = shape.deployment(digest_of("registry"))
    assert Twins(chain, deployment, ()).ledger.deployment() == deployment


@pytest.mark.parametrize(("change", "reason"), REFUSED)
def test_refuses_what_no_run_can_be(
    chain: ChainWriter, change: dict[str, Any], reason: str
) -> None:
    clients = LARGEST.clients if "trainers" in change else Shape().clients
    deployment = replace(Shape(clients=clients).deployment(digest_of("registry")), **change)
    with pytest.raises(TransactionRevertedError) as caught:
        chain.send(None, creation_data(deployment), DEPLOYMENT_GAS)
    assert abi.revert_reason(caught.value.data) == f"committee_ledger: {reason}"
