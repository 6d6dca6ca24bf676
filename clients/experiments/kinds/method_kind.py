"""The interface of a kind of method, its task and its result."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from clients.configuration.schema import Configuration
    from clients.experiments.definition import Method, MethodKindName
    from clients.experiments.execution.stopwatch import Stopwatch
    from clients.runs.metrics import Quality
    from ledger.protocol.types import ClientId


KINDS: dict[MethodKindName, str] = {
    "cmfl": "clients.experiments.kinds.cmfl",
    "federated": "clients.experiments.kinds.federated",
    "brain-torrent": "clients.experiments.kinds.brain_torrent",
    "gossip": "clients.experiments.kinds.gossip",
    # The paper's theorem is part of the repository, not of the installed package.
    "theorem": "benchmarks.paper.theorem.method_kind",
}
"""The module of each kind, with the functions of `MethodKind`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodRound:
    """One round of a run.

    Attributes:
        quality: of the model after it.
        trained: clients that trained and are no members.
        served: clients on the committee; None where there is none.
        aggregated: clients whose updates entered the model, or another's model.
    """

    quality: Quality
    trained: tuple[ClientId, ...]
    served: tuple[ClientId, ...] | None
    aggregated: tuple[ClientId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodRun:
    """One whole run.

    Attributes:
        rounds: in order; empty for a kind that has none.
        floor: accuracy of always answering the commonest class; None where nothing is classified.
        samples: n_k of each client.
        malicious: clients that attack.
        times_aggregated: rounds in which each client's update entered the model; None where the
            rounds say it.
        head: of the ledger after the last round, 0x-hex; None without a ledger.
        bytes: what was sent, where it was counted.
        extra: what only this kind has.
    """

    rounds: tuple[MethodRound, ...]
    floor: float | None
    samples: tuple[int, ...]
    malicious: frozenset[ClientId] = frozenset()
    times_aggregated: tuple[int, ...] | None = None
    head: str | None = None
    bytes: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MethodTask:
    """One run of a method.

    Attributes:
        configuration: of the run, its learning rate chosen.
        method: its options.
        counts_bytes: whether what is sent is counted.
        stopwatch: takes the times of its parts.
        on_round: called after each round.
    """

    configuration: Configuration
    method: Method
    counts_bytes: bool
    stopwatch: Stopwatch
    on_round: Callable[[], None]


class MethodKind(Protocol):
    """A kind of method."""

    def require(self, configuration: Configuration, method: Method) -> None:
        """Refuse what could not be played, before any data are loaded."""

    def play(self, task: MethodTask) -> MethodRun:
        """Play a run to its end."""


def kind_named(name: MethodKindName) -> MethodKind:
    """Return a kind of method; refuse one whose module is not installed."""
    try:
        return cast("MethodKind", import_module(KINDS[name]))
    except ModuleNotFoundError as error:
        if error.name is None or not KINDS[name].startswith(error.name):
            raise
        raise ConfigurationError(
            f"kind {name!r} needs {KINDS[name]}, which is not installed: run it in a checkout of "
            f"the repository"
        ) from error
