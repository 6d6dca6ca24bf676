"""Amounts of ether as text, exact to the wei."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

from ledger.protocol.errors import ConfigurationError

ETHER_DECIMALS = 18
GWEI_DECIMALS = 9
_LONGEST = 40
_MOST_WEI = 10**36


def wei_of(text: str, option: str, decimals: int) -> int:
    """Return an amount in wei.

    Args:
        text: digits, with an optional point.
        option: its name, for the message.
        decimals: of the unit: 18 for ether, 9 for gwei.

    Raises:
        ConfigurationError: it is not a positive amount, or finer than a wei.
    """
    try:
        amount = Decimal(text) if len(text) <= _LONGEST else Decimal("NaN")
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite() or not 0 < amount.scaleb(decimals) <= _MOST_WEI:
        most = _MOST_WEI // 10**decimals
        raise ConfigurationError(
            f"{option} {text[:_LONGEST]}: an amount is a number over 0, and at most {most:.0e}"
        )
    wei = amount.scaleb(decimals)
    if wei != int(wei):
        raise ConfigurationError(f"{option} {text}: at most {decimals} decimals")
    return int(wei)
