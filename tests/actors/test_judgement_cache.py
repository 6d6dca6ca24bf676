"""What follows from a record is computed once, and again where more is held or all has changed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ledger.actors.judgement_cache import JudgementCache, is_certain
from ledger.protocol.rules.distance import plain_distances
from ledger.protocol.types import Phase
from ledger.protocol.validation import Violation, ViolationCode
from tests.actors.support import Network, requested

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ledger.actors.view import RoundView
    from ledger.protocol.rules.distance import DistanceRule, Travel
    from ledger.protocol.types import ClientId


@pytest.fixture
def network() -> Network:
    network = Network()
    requested(network)
    return network


@pytest.fixture
def view(network: Network) -> RoundView:
    view = network.union()
    assert view is not None
    return view


def record_in(view: RoundView) -> bytes:
    (proposal,) = view.proposals[Phase.AGGREGATION, 0]
    assert proposal.record is not None
    return proposal.record


class CountedDistances:
    """Plain distances, and how often they were computed."""

    count = 0

    def __call__(
        self,
        rule: DistanceRule,
        travel: Travel,
        updates: Mapping[ClientId, NDArray[np.float32]],
        members: Sequence[ClientId],
    ) -> NDArray[np.float64]:
        self.count += 1
        return plain_distances(rule, travel, updates, members)


def test_computes_the_distances_of_one_set_once(network: Network, view: RoundView) -> None:
    distances = CountedDistances()
    judge = JudgementCache(distances)
    judge.judge(view, record_in(view))
    for member in view.inputs.participants.members:
        assert judge.score(view, view.usable, member) is not None
    assert distances.count == 1
    judge.score(view, view.usable[:-1], view.usable[0])
    assert distances.count == 1 + (view.usable[0] in view.inputs.participants.members)


def test_bytes_that_are_no_record_are_one_doubt(view: RoundView) -> None:
    judge = JudgementCache()
    assert judge.judge(view, b"no record") == (
        None,
        (Violation(ViolationCode.OTHER_ROUND_OR_BASE),),
    )
    assert judge.read(view, b"no record") is None
    assert judge.read(view, record_in(view)) is not None


def test_record_with_missing_payload_is_judged_again_when_it_arrives(
    network: Network, view: RoundView
) -> None:
    judge, opened = JudgementCache(), network.opened()
    assert opened is not None
    partial = opened.with_envelopes(network.board)
    judgement, violations = judge.judge(partial, record_in(view))
    assert judgement is None
    assert {doubt.code for doubt in violations} == {ViolationCode.UPDATE_MISSING}
    assert not is_certain(violations)
    assert judge.judge(view, record_in(view))[0] is not None


def test_a_violation_is_certain_if_no_arrival_can_clear_it() -> None:
    missing = Violation(ViolationCode.VECTOR_MISSING)
    assert is_certain([missing, Violation(ViolationCode.CLAIM_NOT_SIGNED)])
    assert not is_certain([missing, Violation(ViolationCode.MODEL_UNKNOWN)])
    assert not is_certain([])


def test_nothing_is_cached_of_a_reorganised_round(view: RoundView) -> None:
    # A reorganisation can leave the base as it was and change who takes part, or the model.
    judge, inputs = JudgementCache(), view.inputs
    assert judge.judge(view, record_in(view))[0] is not None
    seats = inputs.participants
    fewer = replace(seats, trainers=seats.trainers[1:])
    elsewhere = replace(view, inputs=replace(inputs, participants=fewer))
    judgement, violations = judge.judge(elsewhere, record_in(view))
    assert judgement is None
    assert violations[0].code is ViolationCode.NOT_THE_ACTIVE_CLIENTS

    model = view.evidence.model
    assert model is not None
    moved = replace(view, evidence=replace(view.evidence, model=model + 1))
    here, there = judge.judge(view, record_in(view))[0], judge.judge(moved, record_in(view))[0]
    assert here is not None
    assert there is not None
    assert here.result != there.result
