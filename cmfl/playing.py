"""A simulated run from its configuration to its last round; the command and `cmfl.run` share it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from clients.configuration.schema import Configuration
    from clients.runs.flower.nodes import Nodes
    from clients.runs.metrics import RoundMetrics
    from clients.runs.open_run import OpenedRun
    from cmfl.access.target import Target
    from ledger.chain.ports import ChainWriter
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
    """

    name: str
    address: str | None
    round: int
    rows: tuple[RoundMetrics, ...]
    head: Digest


def play_on_chain(
    target: Target,
    name: str,
    configuration: Configuration,
    writer: AbstractContextManager[ChainWriter],
    go_on: GoOn,
    *,
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
        accept_rollback: continue if the chain lacks rounds of the run's metrics.
        nodes: of Flower, where they train; None for what the configuration says.
    """
    from clients.runs.open_run import open_run

    with (
        writer as chain,
        open_run(
            target.home,
            name,
            configuration,
            chain,
            target.blobs(),
            accept_rollback=accept_rollback,
            nodes=nodes,
        ) as opened,
    ):
        return _played(name, opened, go_on)


def play_in_memory(
    target: Target, name: str, configuration: Configuration, go_on: GoOn
) -> PlayedRun:
    """Play a run on the memory ledger: it can be neither audited nor resumed."""
    from clients.runs.open_run import open_memory_run
    from ledger.chain.embedded.genesis import DEFAULT_CHAIN_ID

    chain_id = DEFAULT_CHAIN_ID if target.chain_id is None else target.chain_id
    with (
        target.own_folder(),
        open_memory_run(target.home, name, configuration, chain_id=chain_id) as opened,
    ):
        return _played(name, opened, go_on)


def _played(name: str, opened: OpenedRun, go_on: GoOn) -> PlayedRun:
    rows = tuple(go_on(opened))
    state = opened.ledger.state()
    address = None if opened.manifest is None else opened.manifest.address
    return PlayedRun(name, address, state.round, rows, state.head)
