"""The contract's transactions as steps of the executable specification."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.chain.contract.calls import AbandonCall, Call, CommitCall, DecideCall, RegisterCall
from ledger.protocol import rounds

if TYPE_CHECKING:
    from ledger.protocol.ledger_state import BlockContext, LedgerState, Step


def apply(state: LedgerState, call: Call, block: BlockContext) -> Step:
    """Return the state after a call, and the events that it makes.

    Args:
        state: before it.
        call: the call.
        block: the block that it is in.

    Returns:
        The next state and its events.

    Raises:
        Refusal: the contract would have reverted.
    """
    match call:
        case RegisterCall(words, rest):
            return rounds.register_clients(state, words, rest, block)
        case CommitCall(number, signed):
            return rounds.commit_updates(state, number, signed, block)
        case DecideCall(number, decision, certificates):
            return rounds.decide(state, number, decision, certificates, block)
        case AbandonCall(number):
            return rounds.abandon_round(state, number, block)
        case _:
            return rounds.report_equivocation(state, call.report, block)
