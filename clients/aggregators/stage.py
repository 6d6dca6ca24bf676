"""The base of pre-aggregators and aggregators: a name, options, and a least n."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from typing import Annotated, ClassVar, TypeVar

from pydantic import Field

from clients.datasets.settings_table import SettingsTable, parse_settings
from ledger.protocol.errors import ConfigurationError

Whole = Annotated[int, Field(ge=1, le=2**31 - 1)]
Faulty = Annotated[
    int, Field(ge=0, le=2**31 - 1, description="how many updates of a round may be anything")
]


class AggregationStage(SettingsTable, ABC):
    """One stage of an aggregation, with its options: a table of the TOML file.

    Attributes:
        name: as in TOML: ByzFL's.
        rule: what has to hold of n, the number of updates.
    """

    name: ClassVar[str]
    rule: ClassVar[str] = "1 <= n"

    @property
    def least(self) -> int:
        """Return the fewest updates that it takes."""
        return 1

    def require(self, updates: int) -> None:
        """Refuse a number of updates that it cannot take."""
        if updates < self.least:
            options = ", ".join(f"{key} = {value}" for key, value in self if value is not None)
            raise ConfigurationError(
                f"{self.name} with {options or 'no options'} of n = {updates} updates: "
                f"{self.rule} must hold, and so n be at least {self.least}"
            )


S = TypeVar("S", bound=AggregationStage)


def stage_named(
    kind: str, known: Mapping[str, type[S]], name: str, options: Mapping[str, object]
) -> S:
    """Return a stage."""
    if name not in known:
        raise ConfigurationError(f"unknown {kind} {name[:80]!r}; known are {', '.join(known)}")
    return parse_settings(known[name], options, f"{kind} {name}")
