"""A simulated run from its configuration to its last round; the command and `cmfl.run` share it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from clients.configuration.schema import Configuration
    from clients.runs.flower.nodes import Nodes
    from clients.runs.metrics import RoundMetrics
    from clients.runs.open_run import OpenedRun
    from cmfl.access.target import Target
    from ledger.chain.ports import ChainWriter
    from ledger.early_stop import EarlyStop
    from ledger.protocol.types import Digest

    GoOn = Callable[[OpenedRun], list[RoundMetrics]]


@dataclass(frozen=True, slots=True)
class PlayedRun:
    """A run after its last round.

    Attributes:
        name: of the run.
        address: of its contract; None on the memory ledger.
        round: the last.
        rows: of the rounds that were played now.
        head: of the ledger.
        stop: the early stop that ended it; None if it has played all its rounds.
        tracked: where each tracker has it, by name.
    """

    name: str
    address: str | None
    round: int
    rows: tuple[RoundMetrics, ...]
    head: Digest
    stop: EarlyStop | None
    tracked: Mapping[str, str]


def play_on_chain(
    target: Target,
    name: str,
    configuration: Configuration,
    writer: AbstractContextManager[ChainWriter],
    go_on: GoOn,
    *,
    warn: Callable[[str], None],
    accept_rollback: bool = False,
    nodes: Nodes | None = None,
) -> PlayedRun:
    """Start a run on a chain, or resume it, and play its remaining rounds.

    Args:
        target: the home of its files and blobs.
        name: of the run.
        configuration: of the run, as recorded if it is resumed.
        writer: opens the chain.
        go_on: plays the rounds of the opened run, and returns their rows.
        warn: called with one sentence for each tracker that fails.
        accept_rollback: continue if the chain lacks rounds of the run's metrics.
        nodes: of Flower, where they train; None for what the configuration says.
    """
    from clients.runs.open_run import open_run
    from cmfl.tracking import TrackingSession, audited_in_place, logged, require_apart

    require_apart(configuration.track, target.home)
    blobs, trackers = target.blobs(), TrackingSession(configuration.track, warn)
    with (
        writer as chain,
        open_run(
            target.home,
            name,
            configuration,
            chain,
            blobs,
            accept_rollback=accept_rollback,
            nodes=nodes,
        ) as opened,
        logged(
            opened, target.home, trackers, lambda: audited_in_place(opened, chain, blobs)
        ) as tracked,
    ):
        played = _played(name, tracked, go_on)
    return replace(played, tracked=trackers.places)


def play_in_memory(
    target: Target,
    name: str,
    configuration: Configuration,
    go_on: GoOn,
    warn: Callable[[str], None],
) -> PlayedRun:
    """Play a run on the memory ledger: it can be neither audited nor resumed."""
    from clients.runs.open_run import open_memory_run
    from cmfl.tracking import TrackingSession, logged, require_apart

    require_apart(configuration.track, target.home)
    chain_id = configuration.chain_id() if target.chain_id is None else target.chain_id
    trackers = TrackingSession(configuration.track, warn)
    with (
        target.own_folder(),
        open_memory_run(target.home, name, configuration, chain_id=chain_id) as opened,
        logged(opened, target.home, trackers) as tracked,
    ):
        played = _played(name, tracked, go_on)
    return replace(played, tracked=trackers.places)


def _played(name: str, opened: OpenedRun, go_on: GoOn) -> PlayedRun:
    rows = tuple(go_on(opened))
    state = opened.ledger.state()
    address = None if opened.manifest is None else opened.manifest.address
    stop = opened.stop_watch().stop
    return PlayedRun(name, address, state.round, rows, state.head, stop, {})
