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
from ledger.actors.keeping import KEEP_ALL, Stored
from ledger.actors.published import Published
from ledger.chain.contract.committee_ledger import MAX_COMMITMENTS
from ledger.protocol.errors import (
    CommitmentsClosedError,
    NoRoundOpenError,
    NothingTakenError,
    Refusal,
    WrongRoundError,
)
from ledger.protocol.judgement import sets_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ledger.actors.actions import Action, Transaction
    from ledger.actors.keeping import Keep
    from ledger.actors.surroundings import Surroundings
    from ledger.actors.view import ChainView
    from ledger.protocol.payload import Payload
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

    def __init__(
        self, around: Surroundings, published: Published | None = None, keep: Keep = KEEP_ALL
    ) -> None:
        """Take up what actors act on.

        Args:
            around: chain, blobs, mailbox and journal of the run.
            published: takes what is stored, for an observer of the same process.
            keep: which blobs are written.

        Raises:
            ValueError: not all blobs are written, though others read the mail that announces them.
        """
        if around.mailbox.is_shared and keep.stored is not Stored.ALL:
            raise ValueError(f"keep = {keep.stored}: other processes need every payload")
        self._around = around
        self._published = Published() if published is None else published
        self._keep = keep
        # Of the open round only: what an old one had stored may have been removed.
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
        ledger.mine(max(0, block_number - ledger.newest_block().number))

    def abandon(self, chain: ChainView) -> None:
        """End a round at its deadline.

        Args:
            chain: the round.
        """
        # The transaction's own block is one more than the head.
        self.mine_to(chain.opened_block + self._around.parameters.deadline_blocks - 1)
        self._around.ledger.abandon_round(chain.round)
        self._stored.clear()

    def _stored_first(self, actions: Iterable[Action]) -> list[PostEnvelope | Transaction]:
        """Store all blobs, and return what remains to be done once they are durable.

        Shared mail waits for that as transactions do: whoever reads it votes for what it
        announces, and the vote may be in a decision before this process is up again.
        """
        leaving: list[PostEnvelope | Transaction] = []
        for action in actions:
            if isinstance(action, StoreBlobs):
                self._take(action)
                continue
            if isinstance(action, SendDecision) and self._keep.stored is Stored.ACCEPTED:
                self._store_accepted(action)
            leaving.append(action)
        is_shared = self._around.mailbox.is_shared
        if any(is_shared or not isinstance(action, PostEnvelope) for action in leaving):
            self._around.blobs.sync()
        return leaving

    def _take(self, action: StoreBlobs) -> None:
        """Remember blobs for the observer, and write those that stay."""
        self._published.payloads |= action.payloads
        self._published.take((*action.payloads.values(), *action.documents))
        if self._keep.stored is Stored.ALL:
            self._store(action.payloads.values())
        if self._keep.stored is not Stored.NOTHING:
            self._store(action.documents)

    def _store_accepted(self, action: SendDecision) -> None:
        """Write the payloads of S_a, as the contract derives it from the decision."""
        decision, payloads = action.decision, self._published.payloads
        sizes = self._around.parameters
        accepted, _ = sets_of(sizes, decision.ranking, decision.threshold_bits)
        self._store(payloads[client] for client in accepted if client in payloads)

    def _store(self, blobs: Iterable[Payload]) -> None:
        for blob in blobs:
            if blob.digest not in self._stored:
                self._around.blobs.put_payload(blob)
                self._stored.add(blob.digest)

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
        if self._around.ledger.would_take(batch[0].commitment.round, batch):
            return batch
        half = len(batch) // 2
        return [*self._sound(batch[:half]), *self._sound(batch[half:])] if half else []

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
