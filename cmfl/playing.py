"""A simulated run from its configuration to its last round; the command and `cmfl.run` share it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from cmfl.where import Target
from ledger.early_stop import EarlyStop
from ledger.protocol.types import Digest

if TYPE_CHECKING:
    from clients.configuration.schema import Configuration
    from clients.runs.flower.nodes import Nodes
    from clients.runs.metrics import RoundMetrics
    from clients.runs.open_run import OpenedRun
    from cmfl.commands.sender import Sender


@dataclass(frozen=True, slots=True)
class PlayedRun:
    """A run after its last round.

    Attributes:
        address: of its contract; None on the memory ledger.
        stop: the early stop that ended it; None if it has played all its rounds.
    """

    name: str
    address: str | None
    round: int
    rows: tuple[RoundMetrics, ...]
    head: Digest
    stop: EarlyStop | None
    tracked: Mapping[str, str]


def play(
    target: Target,
    name: str,
    configuration: Configuration,
    go_on: Callable[[OpenedRun], list[RoundMetrics]],
    warn: Callable[[str], None],
    *,
    create: bool = True,
    sender: Sender | None = None,
    accept_rollback: bool = False,
    nodes: Nodes | None = None,
) -> PlayedRun:
    """Begin a run or take it up, play its rounds, and hand them to its trackers.

    Args:
        target: the home, and the node if there is one.
        configuration: which also says whether a chain records the run.
        create: whether to make home and chain if they are missing.
        accept_rollback: whether to go on from a chain that lacks rounds which it had before.
    """
    from clients.runs.open_run import open_memory_run, open_run
    from cmfl.tracking import TrackingSession, audited_in_place, logged, require_apart

    require_apart(configuration.track, target.home)
    trackers, new_chain_id = TrackingSession(configuration.track, warn), configuration.chain_id()
    with ExitStack() as stack:
        if configuration.machine.ledger == "memory" and nodes is None:
            chain_id = new_chain_id if target.chain_id is None else target.chain_id
            stack.enter_context(target.own_folder())
            opened = stack.enter_context(
                open_memory_run(target.home, name, configuration, chain_id=chain_id)
            )
            tracked = stack.enter_context(logged(opened, target.home, trackers))
        else:
            blobs = target.blobs()
            chain = stack.enter_context(
                target.writer(
                    sender,
                    create=create,
                    new_chain_id=new_chain_id,
                    accept_rollback=accept_rollback,
                )
            )
            run = open_run(
                *(target.home, name, configuration, chain, blobs),
                accept_rollback=accept_rollback,
                nodes=nodes,
            )
            opened = stack.enter_context(run)
            verdict = partial(audited_in_place, opened, chain, blobs)
            tracked = stack.enter_context(logged(opened, target.home, trackers, verdict))
        rows, state = tuple(go_on(tracked)), opened.ledger.state()
        address = None if opened.manifest is None else opened.manifest.address
        stop, places = tracked.stop_watch().stop, trackers.places
        return PlayedRun(name, address, state.round, rows, state.head, stop, places)
