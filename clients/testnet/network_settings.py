"""What a federation on one machine is made of, and the protocol's times that suit it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clients.configuration.loading import checked
from clients.onboarding.seed_policy import set_block_beacon
from clients.testnet.kinds import ChainKind, StoreKind

if TYPE_CHECKING:
    from pathlib import Path

    from clients.configuration.schema import Configuration


@dataclass(frozen=True, slots=True)
class ChainPace:
    """How fast a chain goes, and what follows from it.

    Attributes:
        block_seconds: after which a block comes though nobody has sent anything.
        blocks_of_a_client: how many blocks the window has for each active client, all of which may
            train on one machine.
        view_seconds: of view 0, in the chain's seconds.
        deadline_blocks: between the window's end and the deadline.
        confirmations: how deep a block has to be before anybody acts on it.
        poll_seconds: how often a worker looks.
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
    """What a federation is made of.

    Attributes:
        home: folder of everything: chain, blobs, mailbox, keys, workers, logs.
        configuration: of the run.
        workers: how many processes host its clients.
        chain: which node.
        store: where blobs and mail are.
        pace: how fast the chain goes; None for the node's usual one.
        anvil: path of the program, for a chain of its kind.
        serves: whether the audit service runs beside it.
        memory_bytes: how much private memory a worker may have; None for no limit.
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
        """How fast the chain goes."""
        return PACES[self.chain] if self.pace is None else self.pace


def fitted_to_pace(values: dict[str, Any], pace: ChainPace) -> Configuration:
    """Return a configuration whose window, deadline and views suit a chain, where none are given.

    Args:
        values: sections and their keys, as `plain_values` reads them; they are changed.
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
