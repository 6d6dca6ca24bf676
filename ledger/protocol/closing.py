"""Which commitments of a round count: those up to its closing block, which the chain fixes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

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
    """Where a round's inputs end.

    Attributes:
        block: number of the closing block.
        base: the commitments digest after it.
        commitments: what counts, by client.
    """

    block: int
    base: Digest
    commitments: dict[ClientId, Digest]


def round_closing(
    opened_block: int,
    commit_blocks: int,
    expected: Collection[ClientId],
    final_block: int,
    commitments: Sequence[MinedCommitment],
) -> RoundClosing | None:
    """Return where a round's inputs end, None while that is open.

    It follows from the chain alone: the block with the commitment of the last active client, or
    the end of the window, whichever is first. A stray's commitment moves neither.

    Args:
        opened_block: block in which the round opened.
        commit_blocks: the window's length.
        expected: the active clients that were not banned when the round opened.
        final_block: the last block that cannot be taken back.
        commitments: all of the round, in chain order.

    Returns:
        Closing block, base and the commitments that count.
    """
    last = closing_block(opened_block + commit_blocks, expected, commitments)
    if last > final_block:
        return None
    counted = [(mined.client, mined.commitment) for mined in commitments if mined.block <= last]
    return RoundClosing(last, commitments_chain(counted), dict(counted))


def closing_block(
    last: int, expected: Collection[ClientId], commitments: Iterable[MinedCommitment]
) -> int:
    """Return the block in which a round's inputs end, as far as these commitments tell.

    Args:
        last: the window's last block.
        expected: the active clients that were not banned when the round opened.
        commitments: of the round, in chain order.

    Returns:
        The block with the commitment of the last active client, or the window's last.
    """
    missing = set(expected)
    for mined in commitments:
        missing.discard(mined.client)
        if not missing:
            return min(last, mined.block)
    return last
