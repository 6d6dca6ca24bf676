"""What a transaction offers for its gas (EIP-1559), and what its replacement offers."""

from __future__ import annotations

from dataclasses import dataclass

# A node takes a replacement that pays a tenth more; an eighth is more, whatever it rounds.
_BUMP_PARTS = 8


@dataclass(frozen=True, slots=True)
class FeeCaps:
    """What a sender will not go over, in wei for each gas.

    Attributes:
        fee: base fee and tip together.
        tip: the tip alone.
    """

    fee: int
    tip: int


@dataclass(frozen=True, slots=True)
class Fees:
    """What a transaction offers, in wei for each gas.

    Attributes:
        fee: at most so much, base fee and tip together.
        tip: at most so much of it to the block's maker.
    """

    fee: int
    tip: int


def new_fees(base_fee: int, tip: int, caps: FeeCaps) -> Fees | None:
    """Return what a new transaction offers; None where gas costs more than the caps allow.

    A replacement has to offer more of both, the tip too where only the base fee has risen. So a new
    transaction's tip stays an eighth below the cap: one that began at it could never be replaced,
    and would stop all that the account sends after it.

    Args:
        base_fee: of the newest block.
        tip: that the node suggests.
        caps: not to be gone over.
    """
    wanted = min(tip, caps.tip * _BUMP_PARTS // (_BUMP_PARTS + 1))
    if base_fee + wanted > caps.fee:
        return None
    # Twice the base fee stays valid for six full blocks in a row.
    return Fees(min(2 * base_fee + wanted, caps.fee), wanted)


def replacement_fees(before: Fees, market: Fees | None, caps: FeeCaps) -> Fees | None:
    """Return what a replacement offers; None where the caps leave no room for one.

    Args:
        before: what the transaction offers that waits.
        market: what a new transaction would offer now; None where that is over the caps.
        caps: not to be gone over.
    """
    fee, tip = _bumped(before.fee), _bumped(before.tip)
    if market is not None:
        fee, tip = max(fee, market.fee), max(tip, market.tip)
    fee = max(fee, tip)
    return Fees(fee, tip) if fee <= caps.fee and tip <= caps.tip else None


def _bumped(value: int) -> int:
    return value + max(1, -(-value // _BUMP_PARTS))
