"""How many of the ranked are accepted: their share, rounded half up, to the last millionth."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ledger.protocol.ledger_state import RoundDecided
from tests.contracts import support
from tests.contracts.twins import Shape, Twins

if TYPE_CHECKING:
    from ledger.chain.ports import ChainWriter


@pytest.mark.parametrize(("ppm", "accepted"), [(785_714, 5), (785_715, 6)])
def test_a_millionth_decides_whether_a_half_is_rounded_up(
    chain: ChainWriter, ppm: int, accepted: int
) -> None:
    # 7 * 785,714 / 1,000,000 is 5.499998, and 7 * 785,715 / 1,000,000 is 5.500005.
    twins = Twins.opened(chain, Shape(trainers=7, aggregation_ppm=ppm))
    support.commit_all(twins, support.active_of(twins.state))
    events = twins.decide(
        support.proposal(twins, support.ranking_of(support.trainers_of(twins.state)))
    )
    assert isinstance(events, tuple)
    (decided,) = (event for event in events if isinstance(event, RoundDecided))
    assert len(decided.accepted) == accepted
