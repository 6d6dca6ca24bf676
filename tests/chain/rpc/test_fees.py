"""What transactions offer for gas, and what their replacements do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.chain.rpc.fees import FeeCaps, Fees, new_fees, replacement_fees

WIDE = FeeCaps(fee=10**18, tip=10**18)
amounts = st.integers(0, 10**12)


@pytest.mark.parametrize(
    ("base", "tip", "caps", "offer"),
    [
        (100, 10, WIDE, Fees(210, 10)),
        (100, 10, FeeCaps(150, 12), Fees(150, 10)),
        (100, 10, FeeCaps(150, 9), Fees(150, 8)),
        (100, 10, FeeCaps(150, 3), Fees(150, 2)),
        (100, 10, FeeCaps(110, 12), Fees(110, 10)),
        (100, 10, FeeCaps(109, 12), None),
        (0, 0, FeeCaps(0, 0), Fees(0, 0)),
    ],
)
def test_twice_the_base_fee_and_the_tip_within_the_caps(
    base: int, tip: int, caps: FeeCaps, offer: Fees | None
) -> None:
    assert new_fees(base, tip, caps) == offer


@pytest.mark.parametrize(
    ("before", "market", "caps", "after"),
    [
        (Fees(80, 8), None, WIDE, Fees(90, 9)),
        (Fees(81, 0), None, WIDE, Fees(92, 1)),
        (Fees(80, 8), Fees(200, 3), WIDE, Fees(200, 9)),
        (Fees(80, 8), None, FeeCaps(89, 9), None),
        (Fees(80, 8), None, FeeCaps(90, 8), None),
        (Fees(0, 0), None, WIDE, Fees(1, 1)),
    ],
)
def test_an_eighth_more_or_what_the_market_asks(
    before: Fees, market: Fees | None, caps: FeeCaps, after: Fees | None
) -> None:
    assert replacement_fees(before, market, caps) == after


@given(amounts, amounts, amounts, amounts)
def test_a_replacement_pays_a_tenth_more_within_the_caps(
    base: int, tip: int, fee_cap: int, tip_cap: int
) -> None:
    caps = FeeCaps(fee_cap, tip_cap)
    before = new_fees(base, tip, caps)
    if before is None:
        assert base + min(tip, tip_cap) > fee_cap
        return
    assert before.tip <= before.fee <= fee_cap
    after = replacement_fees(before, None, caps)
    if after is not None:
        assert 10 * after.fee >= 11 * before.fee
        assert 10 * after.tip >= 11 * before.tip
        assert after.fee > before.fee
        assert after.tip > before.tip
        assert after.tip <= after.fee <= fee_cap
        assert after.tip <= tip_cap
