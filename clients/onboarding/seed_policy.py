"""Seeds that nobody can choose, which a run of several owners has to have.

With `beacon = none` a seed follows from the updates that are revealed alone. k trainers that come
late and the primary that names the usable updates choose among 2^k seeds, and so the next
committee and its primary. That is for simulation; a block's hash is known to none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clients.configuration import checked, plain_values
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import Beacon

if TYPE_CHECKING:
    from pathlib import Path

    from clients.configuration import Configuration

ALLOW_PREDICTABLE = "--allow-predictable-seeds"


def shared_configuration(
    preset: str | None = None,
    path: Path | None = None,
    settings: tuple[str, ...] = (),
    *,
    allow_predictable: bool = False,
) -> Configuration:
    """Return the configuration of a run that several owners share.

    Args:
        preset: as `clients.configuration.load` takes it.
        path: the same.
        settings: the same.
        allow_predictable: accept seeds that can be predicted.

    Returns:
        The checked configuration; its beacon is a block's hash where none is given.

    Raises:
        ConfigurationError: `load` refuses it, or its seeds can be predicted.
    """
    values = plain_values(preset, path, settings)
    set_block_beacon(values)
    configuration = checked(values)
    require_unpredictable(configuration.protocol.beacon, is_allowed=allow_predictable)
    return configuration


def set_block_beacon(values: dict[str, Any]) -> None:
    """Let a block's hash flow into each seed, where plain values name no beacon.

    Args:
        values: sections and their keys, as `plain_values` reads them; changed.
    """
    protocol = values.get("protocol")
    if isinstance(protocol, dict):  # what else it is, `checked` refuses
        protocol.setdefault("beacon", Beacon.BLOCK.value)


def require_unpredictable(beacon: Beacon, *, is_allowed: bool = False) -> None:
    """Refuse a run of several owners whose seeds can be predicted.

    Args:
        beacon: of the run.
        is_allowed: whether it was asked for.

    Raises:
        ConfigurationError: the beacon is "none", and that was not asked for.
    """
    if beacon is Beacon.NONE and not is_allowed:
        raise ConfigurationError(
            'protocol.beacon = "none": late trainers and a primary that work together can choose '
            'the next seed, so a run of several owners has "block"; '
            f"{ALLOW_PREDICTABLE} accepts it"
        )
