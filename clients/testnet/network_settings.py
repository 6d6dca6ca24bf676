"""Settings of a test network, and protocol times that suit its chain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clients.configuration.loading import checked
from clients.configuration.parsing import set_block_beacon
from clients.testnet.kinds import ChainKind, StoreKind

if TYPE_CHECKING:
    from pathlib import Path

    from clients.configuration.schema import Configuration


@dataclass(frozen=True, slots=True)
class ChainPace:
    """Pace of a chain, and times that follow from it.

    Attributes:
        block_seconds: between blocks without transactions.
        blocks_of_a_client: length of the window for each active client, all of which may train on
            one machine.
        view_seconds: of view 0, in the chain's seconds.
        deadline_blocks: between the window's end and the deadline.
        confirmations: of a block before workers act on it.
        poll_seconds: between a worker's polls.
    """

    block_seconds: float
    blocks_of_a_client: float
    view_seconds: int
    deadline_blocks: int
    confirmations: int
    poll_seconds: float


PACES = {
    # On both, all that is sent meanwhile is in one block.
    ChainKind.EMBEDDED: ChainPace(0.5, 1.0, 8, 160, 2, 0.25),
    ChainKind.ANVIL: ChainPace(1.0, 0.0, 6, 60, 1, 0.25),
}
LEAST_WINDOW = 8
"""Blocks in which commitments are taken at least."""


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """Settings of a test network.

    Attributes:
        home: folder of chain, blobs, mailbox, keys, workers and logs.
        configuration: of the run.
        workers: number of processes that host its clients.
        chain: kind of the node.
        store: kind of the store.
        pace: of the chain; None for the node's usual one.
        anvil: path of the program, for such a chain.
        serves: whether the audit service runs, too.
        memory_bytes: limit of a worker's private memory; None for no limit.
        allow_predictable_seeds: whether workers accept a run whose seeds can be predicted.
    """

    home: Path
    configuration: Configuration
    workers: int
    chain: ChainKind = ChainKind.EMBEDDED
    store: StoreKind = StoreKind.SERVED
    pace: ChainPace | None = None
    anvil: str | None = None
    serves: bool = False
    memory_bytes: int | None = None
    allow_predictable_seeds: bool = False

    @property
    def clocks(self) -> ChainPace:
        """Pace of the chain."""
        return PACES[self.chain] if self.pace is None else self.pace


def fitted_to_pace(values: dict[str, Any], pace: ChainPace) -> Configuration:
    """Return a configuration with a window, deadline and views that suit a chain, unless given.

    Args:
        values: sections and their keys, as `plain_values` reads them; changed.
        pace: of the chain.

    Raises:
        ConfigurationError: names the first setting that is wrong, and the rule.
    """
    set_block_beacon(values)
    protocol = values.get("protocol")
    if not isinstance(protocol, dict):
        return checked(values)  # which refuses it
    # Given alone, a window may be too long for the usual deadline, and not for the one set here.
    times = ("commit_blocks", "deadline_blocks")
    timeless = {name: value for name, value in protocol.items() if name not in times}
    active = checked(values | {"protocol": timeless}).parameters(dimension=1).active
    window = max(LEAST_WINDOW, int(pace.blocks_of_a_client * active))
    protocol.setdefault("commit_blocks", window)
    protocol.setdefault("deadline_blocks", protocol["commit_blocks"] + pace.deadline_blocks)
    protocol.setdefault("view_seconds", pace.view_seconds)
    return checked(values)
