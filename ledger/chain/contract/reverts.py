"""Reverts of the contract as refusals of the executable specification."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.chain.contract.abi import revert_reason
from ledger.protocol.errors import REFUSALS, ChainError, CmflError

if TYPE_CHECKING:
    from ledger.chain.ports import TransactionRevertedError


def refusal(error: TransactionRevertedError) -> CmflError:
    """Return the refusal that a revert's reason names; a ChainError for any other reason."""
    reason = revert_reason(error.data)
    if reason in REFUSALS:
        return REFUSALS[reason]()
    return ChainError(f"the contract refuses: {reason}" if reason else str(error))
