"""Fees of a new transaction (EIP-1559) and of its replacement."""

from __future__ import annotations

from dataclasses import dataclass

# Nodes accept a replacement that pays a tenth more; an eighth is more after any rounding.
_BUMP_PARTS = 8


@dataclass(frozen=True, slots=True)
class FeeCaps:
    """Upper limits of a sender's fees, in wei per gas."""

    fee: int
    tip: int


@dataclass(frozen=True, slots=True)
class Fees:
    """Fees of a transaction, in wei per gas."""

    fee: int
    tip: int


def new_fees(base_fee: int, tip: int, caps: FeeCaps) -> Fees | None:
    """Return the fees of a new transaction; None if gas costs more than the caps allow.

    A replacement has to raise both fees, the tip too where only the base fee has risen. A new
    transaction's tip therefore stays an eighth below its cap: at the cap it could never be
    replaced, and would block all later transactions of the account.
    """
    capped_tip = min(tip, caps.tip * _BUMP_PARTS // (_BUMP_PARTS + 1))
    if base_fee + capped_tip > caps.fee:
        return None
    # Twice the base fee stays valid for six consecutive full blocks.
    return Fees(min(2 * base_fee + capped_tip, caps.fee), capped_tip)


def replacement_fees(before: Fees, market: Fees | None, caps: FeeCaps) -> Fees | None:
    """Return the fees of a replacement; None if the caps leave no room for one.

    Args:
        market: fees of a new transaction now; None if they exceed the caps.
    """
    fee, tip = _bumped(before.fee), _bumped(before.tip)
    if market is not None:
        fee, tip = max(fee, market.fee), max(tip, market.tip)
    fee = max(fee, tip)
    return Fees(fee, tip) if fee <= caps.fee and tip <= caps.tip else None


def _bumped(value: int) -> int:
    return value + max(1, -(-value // _BUMP_PARTS))
