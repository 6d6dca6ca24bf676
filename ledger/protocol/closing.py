"""The closing block of a round: commitments up to it count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ledger.protocol.encoding import commitments_chain

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from ledger.protocol.types import ClientId, Digest


@dataclass(frozen=True, slots=True)
class MinedCommitment:
    """A commitment as the chain holds it.

    Attributes:
        block: number of its block.
        client: who committed.
        commitment: `encoding.commitment_of` its payload.
    """

    block: int
    client: ClientId
    commitment: Digest


@dataclass(frozen=True, slots=True)
class RoundClosing:
    """The closing block of a round and its consequences.

    Attributes:
        block: number of the closing block.
        base: the commitments digest after it.
        commitments: those that count, by client.
    """

    block: int
    base: Digest
    commitments: dict[ClientId, Digest]


class WindowLength(Protocol):
    """Length of a round's window; a run's parameters and its deployment have it."""

    @property
    def commit_blocks(self) -> int:
        """Blocks after the opening one that accept commitments."""


def window_end(sizes: WindowLength, opened_block: int) -> int:
    """Return the last block in which a round takes commitments."""
    return opened_block + sizes.commit_blocks


def round_closing(
    end: int,
    expected: Collection[ClientId],
    final_block: int,
    commitments: Sequence[MinedCommitment],
) -> RoundClosing | None:
    """Return the closing of a round, None while its closing block is not final.

    It follows from the chain alone: the block with the commitment of the last expected client, or
    the `end` of the window, whichever is first. A stray's commitment moves neither.
    """
    last = closing_block(end, expected, commitments)
    if last > final_block:
        return None
    counted = [(mined.client, mined.commitment) for mined in commitments if mined.block <= last]
    return RoundClosing(last, commitments_chain(counted), dict(counted))


def closing_block(
    last: int, expected: Collection[ClientId], commitments: Iterable[MinedCommitment]
) -> int:
    """Return the block with the last expected client's commitment, or the window's last block."""
    missing = set(expected)
    for mined in commitments:
        missing.discard(mined.client)
        if not missing:
            return min(last, mined.block)
    return last
