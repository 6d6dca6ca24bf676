"""The contract's events held against its storage: where both agree, no event is missing.

Everything that the contract records moves its state: a batch of clients what is left to register, a
commitment the running digest of the round's commitments, a ban the head, the end of a round head
and number. Heads and digests are recomputed by the fold, so events that lead to the storage are all
there, and none was altered in anything that a head commits to.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from ledger.chain.contract.committee_ledger import LedgerSnapshot
from ledger.chain.ports import IncompleteLogsError
from ledger.protocol import encoding
from ledger.protocol.ledger_state import LedgerStage
from ledger.protocol.types import NO_DIGEST

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ledger.chain.contract.event_logs import RecordedEvent
    from ledger.protocol.fold import LedgerView


def view_after(view: LedgerView, events: Iterable[RecordedEvent]) -> LedgerView:
    """Return the state after further events, oldest first."""
    for recorded in events:
        view = view.after(recorded.event, recorded.block_number)
    return view


def storage_difference(view: LedgerView, storage: LedgerSnapshot) -> str | None:
    """Return how the contract's storage differs from what its events lead to, None if it does not.

    Args:
        view: the state that all events so far lead to.
        storage: as the contract answers after the block of the last of them.
    """
    if view.deployments != 1:
        return f"the logs deploy the contract {view.deployments} times"
    fixed, registered = view.deployment, len(view.registry)
    if view.registry_digest(storage.registry_rest) != fixed.registry:
        return (
            f"the logs register {registered} clients, and the contract was deployed for "
            f"{fixed.clients}, of whom it has {storage.registered}"
        )
    is_open = view.stage is not LedgerStage.REGISTERING
    expected = LedgerSnapshot(
        stage=view.stage,
        round=view.round,
        opened_block=view.opened_block,
        seed=view.seed,
        committee=encoding.set_digest(view.committee) if is_open else NO_DIGEST,
        model=view.model,
        head=view.head,
        registered=registered,
        registry_rest=storage.registry_rest,
        commitments=view.commitments,
    )
    for each in fields(LedgerSnapshot):
        from_logs, stored = getattr(expected, each.name), getattr(storage, each.name)
        if from_logs != stored:
            return (
                f"the logs lead to {each.name} {_shown(from_logs)}, and the contract has "
                f"{_shown(stored)}"
            )
    return None


def require_complete(
    view: LedgerView, storage: LedgerSnapshot, block_number: int, node: str | None
) -> None:
    """Raise an IncompleteLogsError unless the events so far lead to the storage after a block."""
    difference = storage_difference(view, storage)
    if difference is not None:
        raise IncompleteLogsError(node, f"up to block {block_number} {difference}")


def _shown(value: object) -> str:
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    return value.name.lower() if isinstance(value, LedgerStage) else str(value)
