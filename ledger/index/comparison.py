"""Whether the index is whole: compared with the contract's own storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.chain.ports import NotServedError
from ledger.index.codes import StorageComparison

if TYPE_CHECKING:
    from ledger.chain.contract.committee_ledger import CommitteeLedger
    from ledger.index.standing import Standing

LARGEST = 2**63 - 1
"""What a column of integers holds."""


def compared(ledger: CommitteeLedger, standing: Standing, block_number: int) -> StorageComparison:
    """Return whether the contract's storage is what the events up to a block make.

    The head commits to all rounds that have ended, and the digest of commitments to what the open
    one took: no event can be missing where both agree.

    Args:
        ledger: the contract.
        standing: after the events.
        block_number: the last block that they are of.
    """
    try:
        state = ledger.state(block_number)
    except NotServedError:
        return StorageComparison.NOT_YET  # a node need not keep the state of older blocks
    true = [state.head, state.round, state.registered]
    found = [standing.head, standing.number, len(standing.registry)]
    if standing.is_open:
        true.append(state.commitments)
        found.append(standing.commitments)
    return StorageComparison.EQUAL if found == true else StorageComparison.DIFFERENT
