"""Carries out what actors ask for: what was said is durable before any of it leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.actors.actions import (
    PostEnvelope,
    SendCommitment,
    SendDecision,
    SendReport,
    StoreBlobs,
)
from ledger.chain.contract.calls import CommitCall, encode_call
from ledger.chain.contract.committee_ledger import MAX_COMMITMENTS
from ledger.chain.ports import TransactionRevertedError
from ledger.protocol.errors import (
    CommitmentsClosedError,
    NoRoundOpenError,
    NothingTakenError,
    Refusal,
    WrongRoundError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ledger.actors.actions import Action, Transaction
    from ledger.actors.surroundings import Surroundings
    from ledger.actors.view import ChainView
    from ledger.protocol.types import Digest, SignedCommitment

_NOTHING_IN_TIME = (
    CommitmentsClosedError,
    NoRoundOpenError,
    NothingTakenError,
    WrongRoundError,
)
"""Refusals that concern every commitment of a batch: none of them is worth another try."""


class Driver:
    """Acts for any number of actors of one run in one process."""

    def __init__(self, around: Surroundings) -> None:
        """Take up what actors act on.

        Args:
            around: chain, blobs, mailbox and journal of the run.
        """
        self._around = around
        self._stored: set[Digest] = set()

    def apply(self, actions: Iterable[Action]) -> bool:
        """Carry out actions in order, and say whether any of them had an effect.

        What was said, and every blob that was stored, is durable before anything leaves the
        process; the contract's refusals are no errors: it takes what is true and new, and the
        actors see what it took.

        Raises:
            JournalError: what was said cannot be made durable; nothing has left.
            ChainError: the chain is unreachable.
            BlobError: a blob cannot be stored or made durable; nothing has left.
        """
        self._around.journal.sync()
        leaving = self._stored_first(actions)
        commitments: list[SignedCommitment] = []
        has_effect = False
        for action in leaving:
            match action:
                case PostEnvelope(envelope):
                    has_effect |= self._around.mailbox.put(envelope)
                case SendCommitment(signed):
                    commitments.append(signed)
                case SendReport() | SendDecision():
                    has_effect |= self._send(action)
        return self._commit(commitments) or has_effect

    def mine_to(self, block_number: int) -> None:
        """Make empty blocks up to this one, where blocks come only with transactions.

        Args:
            block_number: the head that is wanted; nothing is done if it is not ahead.
        """
        ledger = self._around.ledger
        ledger.writer.mine(max(0, block_number - ledger.chain.head().number))

    def abandon(self, chain: ChainView) -> None:
        """End a round at its deadline.

        Args:
            chain: the round.
        """
        # The transaction's own block is one more than the head.
        self.mine_to(chain.opened_block + self._around.parameters.deadline_blocks - 1)
        self._around.ledger.abandon_round(chain.round)

    def _stored_first(self, actions: Iterable[Action]) -> list[PostEnvelope | Transaction]:
        """Store all blobs, and return what remains to be done once they are durable.

        Shared mail waits for that as transactions do: whoever reads it votes for what it
        announces, and the vote may be in a decision before this process is up again.
        """
        leaving: list[PostEnvelope | Transaction] = []
        for action in actions:
            if isinstance(action, StoreBlobs):
                self._store(action.blobs)
            else:
                leaving.append(action)
        is_shared = self._around.mailbox.is_shared
        if any(is_shared or not isinstance(action, PostEnvelope) for action in leaving):
            self._around.blobs.sync()
        return leaving

    def _store(self, blobs: Mapping[Digest, bytes]) -> None:
        for digest, data in blobs.items():
            if digest not in self._stored:
                self._around.blobs.put(data)
                self._stored.add(digest)

    def _commit(self, signed: Sequence[SignedCommitment]) -> bool:
        done = False
        for start in range(0, len(signed), MAX_COMMITMENTS):
            done |= self._commit_batch(signed[start : start + MAX_COMMITMENTS])
        return done

    def _commit_batch(self, batch: Sequence[SignedCommitment]) -> bool:
        try:
            self._around.ledger.commit_updates(batch[0].commitment.round, batch)
        except _NOTHING_IN_TIME:
            return False
        except Refusal:
            # One that is banned or not signed has the whole batch refused.
            sound = self._sound(batch)
            return 0 < len(sound) < len(batch) and self._commit_batch(sound)
        return True

    def _sound(self, batch: Sequence[SignedCommitment]) -> Sequence[SignedCommitment]:
        """Return those that the contract would take, which is asked and not tried.

        A transaction that is refused takes one of the window's few blocks too.
        """
        ledger, call = self._around.ledger, CommitCall(batch[0].commitment.round, tuple(batch))
        try:
            ledger.chain.call(ledger.address, encode_call(call))
        except TransactionRevertedError:
            half = len(batch) // 2
            return [*self._sound(batch[:half]), *self._sound(batch[half:])] if half else []
        return batch

    def _send(self, action: SendReport | SendDecision) -> bool:
        ledger = self._around.ledger
        try:
            if isinstance(action, SendReport):
                ledger.report_equivocation(action.report)
            else:
                self._wait_for(action)
                ledger.decide(action.round, action.decision, action.certificates)
                self._stored.clear()
        except Refusal:
            return False
        return True

    def _wait_for(self, action: SendDecision) -> None:
        """Let the window pass before a decision without all n trainers: nobody is late before."""
        parameters, state = self._around.parameters, self._around.ledger.state()
        # Once another has decided the round, the next one's window is not ours to let pass.
        if len(action.decision.ranking) < parameters.trainers and state.round == action.round:
            self.mine_to(state.opened_block + parameters.commit_blocks)
