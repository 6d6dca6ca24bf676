"""What is compared: FedAvg, with as many clients as CMFL activates or trains, and CMFL itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from clients.configuration.loading import checked, load

if TYPE_CHECKING:
    from collections.abc import Callable

    from clients.configuration.schema import Configuration
    from ledger.protocol.parameters import Parameters

RULES = frozenset({"strategy", "scoring", "distance", "reference", "threshold"})
"""The settings of a run in which one way of deciding differs from another."""


@dataclass(frozen=True, slots=True)
class Averaging:
    """FedAvg: all updates are averaged; no committee, and nothing to record.

    Attributes:
        name: in the names of runs.
        participants: how many clients are sampled and trained in a round.
    """

    name: str
    participants: Callable[[Parameters], int]

    def title(self, parameters: Parameters) -> str:
        """Return what a table calls it."""
        return f"FedAvg, {self.participants(parameters)} clients"


@dataclass(frozen=True, slots=True)
class Committee:
    """CMFL over the ledger, by the rules of a preset.

    Attributes:
        name: in the names of runs: the paper's word for the strategy.
        preset: whose rules it takes.
        settings: on top of the preset, as on the command line.
    """

    name: str
    preset: str
    settings: tuple[str, ...] = ()

    def title(self, parameters: Parameters) -> str:  # noqa: ARG002 - as Averaging has it
        """Return what a table calls it."""
        return f"CMFL, strategy {self.name}"

    def configured(self, configuration: Configuration) -> Configuration:
        """Return a configuration with this method's rules, and all else as it is.

        Args:
            configuration: of the comparison.
        """
        rules = load(self.preset, settings=self.settings).protocol
        values = configuration.model_dump(exclude_none=True)
        values["protocol"] = {
            **{name: value for name, value in values["protocol"].items() if name not in RULES},
            **rules.model_dump(include=set(RULES), exclude_none=True),
        }
        return checked(values)


Method = Averaging | Committee

METHODS: tuple[Method, ...] = (
    Averaging("FedAvg-active", lambda sizes: sizes.active),
    Averaging("FedAvg-trainers", lambda sizes: sizes.trainers),
    Committee("I", "digits"),
    Committee("II", "digits", ("protocol.strategy=2",)),
    Committee("III", "robust"),
)
