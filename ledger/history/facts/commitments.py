"""Every commitment that a round took, so that its base and its head can be computed again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.history.facts.words import hexed

if TYPE_CHECKING:
    from ledger.history.facts.words import Facts
    from ledger.history.round import Round


def commitments_facts(one: Round) -> list[Facts]:
    """Return the commitments of a round in the chain's order, which is that of their digest.

    Clients that are not active are among them, and words that came after the closing block: the
    base takes those up to that block, the head takes all.

    Args:
        one: the round, with what came in.
    """
    return [
        {"client": mined.client, "commitment": hexed(mined.commitment), "block": mined.block}
        for mined in one.mined
    ]
