"""Carries out actors' actions: statements are durable before any of them leaves the process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ledger.actors import steps
from ledger.actors.observer import PublishedBlobs
from ledger.actors.retention import RETAIN_ALL, RetentionPolicy, StoredBlobs
from ledger.actors.view import ChainView
from ledger.chain.contract.ledger import MAX_COMMITMENTS
from ledger.protocol.errors import ProtocolRefusal, RefusalCode
from ledger.protocol.inputs import window_end
from ledger.protocol.judgement import sets_of
from ledger.protocol.ledger_state import EquivocationReport
from ledger.protocol.payloads import Payload
from ledger.protocol.types import Digest, SignedCommitment

_NOTHING_IN_TIME = {
    RefusalCode.COMMITMENTS_CLOSED,
    RefusalCode.NO_ROUND_OPEN,
    RefusalCode.NOTHING_TAKEN,
    RefusalCode.WRONG_ROUND,
}
"""Refusals that concern every commitment of a batch: none of them is worth another try."""


class SentActions(NamedTuple):
    """The result of `publish`; all that the transactions still to be sent refer to is durable."""

    has_new_mail: bool
    transactions: tuple[steps.Transaction, ...]


class Driver:
    """Acts for any number of actors of one run in one process.

    If blocks come only with transactions (`mines`), it lets windows and deadlines pass. On a
    chain that is shared with others it cannot, and does not send what would be too early. It also
    asks the contract before it sends anything: what is refused costs gas too.
    """

    def __init__(
        self,
        context: steps.ActorContext,
        published: PublishedBlobs | None = None,
        keep: RetentionPolicy = RETAIN_ALL,
        *,
        mines: bool = True,
    ) -> None:
        if context.mailbox.is_shared and keep.stored is not StoredBlobs.ALL:
            raise ValueError(f"keep = {keep.stored}: other processes need every payload")
        self._context = context
        published = PublishedBlobs() if published is None else published
        self._writer = _BlobWriter(context, published, keep.stored)
        self._mines = mines

    def apply(self, actions: Iterable[steps.Action]) -> bool:
        """Return whether any action had an effect; the contract's refusals are not errors."""
        sent = self.publish(actions)
        return self.send(sent.transactions) or sent.has_new_mail

    def publish(self, actions: Iterable[steps.Action]) -> SentActions:
        """Carry out everything but transactions, and return these.

        Statements and blobs are durable before shared mail or a transaction leaves: a reader votes
        for what mail announces, and the vote may be in a decision before this process is up again.
        Statements are also durable before a blob is written. Documents wait for what leaves, so
        that a round makes them durable once. Other mail is lost with the process.
        """
        # Members of one process share what they store: the very same action is carried out once.
        actions = tuple({id(action): action for action in actions}.values())
        leaves = self._context.mailbox.is_shared or any(
            not isinstance(action, steps.PostEnvelope | steps.StoreBlobs) for action in actions
        )
        if leaves or any(map(self._writer.writes_payloads, actions)):
            self._context.journal.sync()
        for action in actions:
            if isinstance(action, steps.StoreBlobs):
                self._writer.take(action)
            elif isinstance(action, steps.SendDecision):
                self._writer.take_decision(action)
        if leaves:
            self._writer.write_documents()
            self._context.blobs.sync()
        has_new_mail = False
        transactions: list[steps.Transaction] = []
        for action in actions:
            if isinstance(action, steps.PostEnvelope):
                has_new_mail |= self._context.mailbox.put(action.envelope)
            elif not isinstance(action, steps.StoreBlobs):
                transactions.append(action)
        return SentActions(has_new_mail, tuple(transactions))

    def send(self, transactions: Iterable[steps.Transaction]) -> bool:
        """Send transactions, from any thread; return whether the contract took any of them."""
        commitments: list[SignedCommitment] = []
        has_effect = False
        for transaction in transactions:
            if isinstance(transaction, steps.SendCommitment):
                commitments.append(transaction.signed)
            elif isinstance(transaction, steps.SendReport):
                has_effect |= self._report(transaction.report)
            else:
                has_effect |= self._decide(transaction)
        if commitments and not self._mines:
            commitments = self._untaken(commitments)
        for start in range(0, len(commitments), MAX_COMMITMENTS):
            has_effect |= self._commit(commitments[start : start + MAX_COMMITMENTS])
        return has_effect

    def forget(self) -> None:
        self._writer.forget()

    def mine_to(self, block_number: int) -> None:
        ledger = self._context.ledger
        ledger.mine(max(0, block_number - ledger.newest_block().number))

    def abandon(self, chain: ChainView) -> bool:
        """End a round at its deadline, and return whether that was done."""
        # The transaction's own block is one more than the head.
        last = chain.opened_block + self._context.parameters.deadline_blocks - 1
        ledger = self._context.ledger
        if self._mines:
            self.mine_to(last)
        elif ledger.newest_block().number < last or not self._context.is_open(chain.round):
            return False
        if self._writer.waiting:
            self._context.journal.sync()
            self._writer.write_documents()
        try:
            ledger.abandon_round(chain.round)
        except ProtocolRefusal:
            if self._mines:
                raise
            return False  # another was quicker
        self._writer.forget()
        return True

    def _report(self, report: EquivocationReport) -> bool:
        ledger = self._context.ledger
        if not self._mines and any(ban.client == report.client for ban in ledger.bans()):
            return False
        try:
            ledger.report_equivocation(report)
        except ProtocolRefusal:
            return False
        return True

    def _decide(self, action: steps.SendDecision) -> bool:
        try:
            if not self._may_decide(action):
                return False
            self._context.ledger.decide(action.round, action.decision, action.certificates)
        except ProtocolRefusal:
            return False
        self._writer.forget()
        return True

    def _may_decide(self, action: steps.SendDecision) -> bool:
        """Return whether to send a decision: without all n trainers only after the window."""
        ledger, parameters = self._context.ledger, self._context.parameters
        if not self._mines and not self._context.is_open(action.round):
            return False
        if len(action.decision.ranking) >= parameters.trainers:
            return True
        state = ledger.state()
        end = window_end(parameters, state.opened_block)
        if not self._mines:
            return ledger.newest_block().number >= end
        # Once another has decided the round, the next one's window is not ours to let pass.
        if state.round == action.round:
            self.mine_to(end)
        return True

    def _commit(self, batch: Sequence[SignedCommitment]) -> bool:
        try:
            self._context.ledger.commit_updates(batch[0].commitment.round, batch)
        except ProtocolRefusal as refusal:
            if refusal.code in _NOTHING_IN_TIME:
                return False
            # One that is banned or not signed has the whole batch refused.
            sound = self._sound(batch)
            return 0 < len(sound) < len(batch) and self._commit(sound)
        return True

    def _untaken(self, signed: Sequence[SignedCommitment]) -> list[SignedCommitment]:
        """Return the commitments that the newest block lacks, and the contract would accept now."""
        accepted: list[SignedCommitment] = []
        for number in sorted({entry.commitment.round for entry in signed}):
            committed = {mined.client for mined in self._context.ledger.commitments(number)}
            batch = [
                each
                for each in signed
                if each.commitment.round == number and each.commitment.client not in committed
            ]
            accepted += self._sound(batch) if batch else []
        return accepted

    def _sound(self, batch: Sequence[SignedCommitment]) -> Sequence[SignedCommitment]:
        """Return the acceptable commitments: refused ones use up one of few blocks, too."""
        if self._context.ledger.would_accept(batch[0].commitment.round, batch):
            return batch
        half = len(batch) // 2
        return [*self._sound(batch[:half]), *self._sound(batch[half:])] if half else []


class _BlobWriter:
    """Writes the blobs of the open round that stay, each once."""

    def __init__(
        self, context: steps.ActorContext, published: PublishedBlobs, stored: StoredBlobs
    ) -> None:
        self._context = context
        self._published = published
        self._stays = stored
        # Of the open round only: what an old one had stored may have been removed.
        self._stored: set[Digest] = set()
        self.waiting: list[Payload] = []

    def take(self, action: steps.StoreBlobs) -> None:
        """Remember blobs for the observer; write payloads that stay, and let documents wait."""
        self._published.payloads |= action.payloads
        self._published.take((*action.payloads.values(), *action.documents))
        self._store(self._staying_payloads(action))
        if self._stays is not StoredBlobs.NOTHING:
            self.waiting += action.documents

    def writes_payloads(self, action: steps.Action) -> bool:
        return isinstance(action, steps.StoreBlobs) and any(
            blob.digest not in self._stored for blob in self._staying_payloads(action)
        )

    def write_documents(self) -> None:
        """Write the documents that wait; the statements must be durable."""
        self._store(self.waiting)
        self.waiting.clear()

    def take_decision(self, action: steps.SendDecision) -> None:
        """Write the payloads of S_a, as the contract derives it, where no others stay."""
        if self._stays is StoredBlobs.ACCEPTED:
            payloads = self._published.payloads
            accepted = sets_of(self._context.parameters, action.decision.ranking).accepted
            self._store(payloads[client] for client in accepted if client in payloads)

    def forget(self) -> None:
        self._stored.clear()

    def _staying_payloads(self, action: steps.StoreBlobs) -> Iterable[Payload]:
        return action.payloads.values() if self._stays is StoredBlobs.ALL else ()

    def _store(self, blobs: Iterable[Payload]) -> None:
        for blob in blobs:
            if blob.digest not in self._stored:
                self._context.blobs.put_payload(blob)
                self._stored.add(blob.digest)
