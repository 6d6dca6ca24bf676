"""The election strategy: those around the middle of the ranking (section "Election Strategy")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.protocol.encoding import word_client

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.protocol.types import ClientId


def elect(ranking: Sequence[int], members: int) -> tuple[ClientId, ...]:
    """Return S_c of the next round in ranking order: C clients from floor((n − C) / 2) on.

    Neither the nearest (the first committee would steer the model for ever) nor the farthest
    (where attackers gather) are elected.

    Raises:
        ValueError: fewer clients are ranked than a committee needs.
    """
    if len(ranking) < members:
        raise ValueError(f"{len(ranking)} ranked clients cannot fill {members} places")
    first = (len(ranking) - members) // 2
    return tuple(word_client(word) for word in ranking[first : first + members])
