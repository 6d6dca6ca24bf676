"""Cells that cannot exist, refused with the share of active clients at which they could.

The sizes of a round follow from rates: C = floor(ω a + 1/2) of a active clients, and the other n
have to fill the next committee. At ω = .5 that needs an even a: 59 of 297 clients give C = 30 and
n = 29, and 60 would do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.configuration.loading import load
from clients.configuration.parsing import plain_values
from clients.configuration.schema import ProtocolSection
from ledger.protocol.errors import ConfigurationError, ParametersError
from ledger.protocol.parameters import (
    MAX_MEMBERS,
    MAX_TRAINERS,
    parts_per_million,
    rounded_share,
)

if TYPE_CHECKING:
    from clients.configuration.schema import Configuration

MOST_DIGITS = 6
"""A rate is kept in millionths."""


def load_that_fits(preset: str, settings: tuple[str, ...]) -> Configuration:
    """Return the configuration of a preset with settings on top."""
    try:
        return load(preset, settings=settings)
    except ParametersError as error:
        rate = _rate_that_fits(preset, settings)
        if rate is None:
            raise ConfigurationError(str(error)) from error
        raise ConfigurationError(f"{error}; protocol.active_rate = {rate} fits") from error


def _rate_that_fits(preset: str, settings: tuple[str, ...]) -> str | None:
    """Return the rate of the nearest number of active clients that the protocol takes."""
    values = plain_values(preset, settings=settings)["protocol"]
    clients = values["clients"]
    rate = values.get("active_rate", ProtocolSection.model_fields["active_rate"].default)
    requested = rounded_share(parts_per_million("active_rate", rate), clients)
    most = min(clients, MAX_MEMBERS + MAX_TRAINERS)
    # Of two as near, the larger: fewer than are asked for make a smaller committee.
    nearest = sorted(range(1, most + 1), key=lambda active: (abs(active - requested), -active))
    for active in nearest:
        fitting_rate = rate_of(active, clients)
        try:
            load(preset, settings=(*settings, f"protocol.active_rate={fitting_rate}"))
        except ParametersError:
            continue
        return fitting_rate
    return None


def rate_of(active: int, clients: int) -> str:
    """Return the shortest decimal whose share of all clients is `active`."""
    for digits in range(1, MOST_DIGITS):
        rate = round(active / clients, digits)
        if rounded_share(parts_per_million("active_rate", rate), clients) == active:
            return str(rate)
    return str(round(active / clients, MOST_DIGITS))
