"""Step 2: heads and seeds follow from one another, up to where the contract says it stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ledger.audit.codes import Fact, Step
from ledger.audit.report import Contradiction
from ledger.audit.sentences import hexed, text_of
from ledger.chain.ports import ChainUnreachableError
from ledger.protocol.encoding import set_digest
from ledger.protocol.errors import ChainError, Refusal
from ledger.protocol.ledger_state import Stage
from ledger.protocol.types import NO_DIGEST

if TYPE_CHECKING:
    from ledger.audit.findings import AuditLog
    from ledger.audit.replay import Replay
    from ledger.chain.contract.committee_ledger import CommitteeLedger, Snapshot
    from ledger.chain.ports import Block


@runtime_checkable
class SelfChecking(Protocol):
    """A chain that can say whether its own file still is what the EVM made."""

    def verify(self) -> None:
        """Accept the whole chain, or name its first contradiction.

        Raises:
            ChainError: names the block, and what is wrong with it.
        """


def verify_file(ledger: CommitteeLedger, log: AuditLog) -> None:
    """Let a chain that is a file check itself: a forger of one table has to forge them all.

    Args:
        ledger: the contract.
        log: where a contradiction is written down.
    """
    if not isinstance(ledger.chain, SelfChecking):
        return
    try:
        ledger.chain.verify()
    except ChainError as error:
        log.contradict(Step.HEAD, Contradiction(Fact.CHAIN_FILE, true=str(error)))


def read_snapshot(ledger: CommitteeLedger, block_number: int, log: AuditLog) -> Snapshot | None:
    """Return where the contract says that it stands, None if it does not.

    Args:
        ledger: the contract.
        block_number: the block whose state it is.
        log: where a contradiction is written down.

    Raises:
        ChainUnreachableError: the node went away.
    """
    try:
        return ledger.state(block_number)
    except ChainUnreachableError:
        raise
    except (ChainError, Refusal, ValueError) as error:
        log.contradict(Step.HEAD, Contradiction(Fact.STATE_UNREADABLE, true=str(error)))
        return None


def check_state(snapshot: Snapshot, replay: Replay, log: AuditLog) -> None:
    """Compare the contract's own state with the one that its transactions lead to.

    Args:
        snapshot: what the contract says.
        replay: at its end.
        log: where contradictions are written down.
    """
    state = replay.state
    opened = state.stage is not Stage.REGISTERING
    expected = {
        "head": state.head,
        "seed": state.seed,
        "model": state.model,
        "round": state.round,
        "stage": state.stage,
        "committee": set_digest(state.committee) if opened else NO_DIGEST,
        "commitments": state.commitments,
        "opened_block": state.opened_block,
        "registered": len(state.registry),
    }
    if opened or not replay.believes_registry:
        expected["registry_rest"] = state.registry_rest
    for name, true in expected.items():
        recorded = getattr(snapshot, name)
        if recorded != true:
            step = Step.DEPLOYMENT if name.startswith("regist") else Step.HEAD
            values = text_of(recorded), text_of(true)
            log.contradict(step, Contradiction(Fact.STATE, None, (), name, *values))


def check_head_block(ledger: CommitteeLedger, head: Block, log: AuditLog) -> None:
    """Check that the chain still has the head that the audit began with.

    Args:
        ledger: the contract.
        head: the newest block when the audit began.
        log: where a contradiction is written down.
    """
    again = ledger.chain.block(head.number)
    if again.hash != head.hash:
        values = str(head.number), hexed(head.hash), hexed(again.hash)
        log.contradict(Step.HEAD, Contradiction(Fact.HEAD_BLOCK, None, (), *values))
