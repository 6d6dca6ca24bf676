"""Policy on seeds: a run of several owners needs seeds that no participant can choose.

With `beacon = none` a seed follows from the revealed updates alone. k trainers that come late and
the primary that names the usable updates choose among 2^k seeds, and so the next committee and its
primary. That is for simulation; none of them knows a block's hash.
"""

from __future__ import annotations

from typing import Any

from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import Beacon

ALLOW_PREDICTABLE = "--allow-predictable-seeds"


def set_block_beacon(values: dict[str, Any]) -> None:
    """Let a block's hash flow into each seed, unless the plain values name a beacon."""
    protocol = values.get("protocol")
    if isinstance(protocol, dict):  # what else it is, `checked` refuses
        protocol.setdefault("beacon", Beacon.BLOCK.value)


def require_unpredictable(beacon: Beacon, *, is_allowed: bool = False) -> None:
    """Refuse a run of several owners whose seeds can be predicted, unless that is allowed.

    Raises:
        ConfigurationError: the beacon is "none".
    """
    if beacon is Beacon.NONE and not is_allowed:
        raise ConfigurationError(
            'protocol.beacon = "none": late trainers and a primary that work together can choose '
            'the next seed, so a run of several owners has "block"; '
            f"{ALLOW_PREDICTABLE} accepts it"
        )
