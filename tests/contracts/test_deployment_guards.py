"""The constructor refuses what the parameters' invariants forbid, and takes their bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ledger.chain import abi
from ledger.chain.deployment import creation_data
from ledger.chain.ports import TransactionRevertedError
from ledger.protocol.parameters import MAX_CLIENTS, MAX_MEMBERS, MAX_ROUNDS, MAX_TRAINERS
from ledger.protocol.types import ClientId
from tests.contracts.twins import DEPLOYMENT_GAS, Shape, Twins, digest_of

if TYPE_CHECKING:
    from ledger.chain.embedded import EmbeddedChain

LARGEST = Shape(clients=MAX_CLIENTS, trainers=MAX_TRAINERS, members=MAX_MEMBERS)


@pytest.mark.parametrize(
    "shape",
    [
        LARGEST,
        Shape(clients=6, trainers=3, members=3),
        Shape(aggregation_ppm=0),
        Shape(aggregation_ppm=1_000_000),
        Shape(rounds=1, deadline_blocks=1),
        Shape(rounds=MAX_ROUNDS, deadline_blocks=2**64 - 1),
    ],
)
def test_takes_the_bounds_and_says_what_it_took(chain: EmbeddedChain, shape: Shape) -> None:
    deployment = shape.deployment(digest_of("registry"))
    twins = Twins(chain, deployment, ())
    # Until round 1 is open the first committee is in no event.
    assert twins.ledger.deployment() == replace(deployment, committee=())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"members": 2}, "a committee needs three members"),
        ({"trainers": MAX_TRAINERS, "members": MAX_MEMBERS + 1}, "too many members"),
        ({"trainers": 4}, "too few trainers"),
        ({"trainers": MAX_TRAINERS + 1}, "too many trainers"),
        ({"clients": 10}, "too few clients"),
        ({"clients": MAX_CLIENTS + 1}, "too many clients"),
        ({"aggregation_ppm": 1_000_001}, "more are accepted than train"),
        ({"strategy": 0}, "strategy is unknown"),
        ({"strategy": 4}, "strategy is unknown"),
        ({"rounds": 0}, "there is no round"),
        ({"rounds": MAX_ROUNDS + 1}, "too many rounds"),
        ({"deadline_blocks": 0}, "there is no deadline"),
        ({"committee": (0, 1, 2, 3)}, "first committee has another size"),
        ({"committee": (0, 1, 2, 3, 4, 5)}, "first committee has another size"),
        ({"committee": (0, 1, 2, 3, 3)}, "first committee repeats a client"),
        ({"committee": (0, 1, 2, 3, 13)}, "client is unknown"),
    ],
)
def test_refuses_what_no_run_can_be(
    chain: EmbeddedChain, change: dict[str, Any], reason: str
) -> None:
    clients = LARGEST.clients if "trainers" in change else Shape().clients
    deployment = replace(Shape(clients=clients).deployment(digest_of("registry")), **change)
    if deployment.members > MAX_MEMBERS:
        # The bound of the list itself: any longer one does not even decode.
        deployment = replace(deployment, committee=tuple(map(ClientId, range(MAX_MEMBERS))))
    with pytest.raises(TransactionRevertedError) as caught:
        chain.send(None, creation_data(deployment), DEPLOYMENT_GAS)
    assert abi.revert_reason(caught.value.data) == f"committee_ledger: {reason}"
