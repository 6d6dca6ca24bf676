"""Carries out actors' actions: statements are durable before any of them leaves the process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ledger.actors.observer import PublishedBlobs
from ledger.actors.retention import RETAIN_ALL, RetentionPolicy, StoredBlobs
from ledger.actors.steps import (
    Action,
    ActorContext,
    PostEnvelope,
    SendCommitment,
    SendDecision,
    SendReport,
    StoreBlobs,
    Transaction,
)
from ledger.actors.view import ChainView
from ledger.chain.contract.ledger import MAX_COMMITMENTS
from ledger.chain.round_ledger import RoundLedger
from ledger.protocol.errors import ProtocolRefusal, RefusalCode
from ledger.protocol.inputs import window_end
from ledger.protocol.judgement import sets_of
from ledger.protocol.payloads import Payload
from ledger.protocol.types import Digest, SignedCommitment

_NOTHING_IN_TIME = {
    RefusalCode.COMMITMENTS_CLOSED,
    RefusalCode.NO_ROUND_OPEN,
    RefusalCode.NOTHING_TAKEN,
    RefusalCode.WRONG_ROUND,
}
"""Refusals that concern every commitment of a batch: none of them is worth another try."""


@dataclass(frozen=True, slots=True)
class SentActions:
    """The result of publishing actions.

    Attributes:
        has_new_mail: whether the mailbox had not held one of their envelopes before.
        transactions: still to be sent to the contract, in order; all that they refer to is
            durable.
    """

    has_new_mail: bool
    transactions: tuple[Transaction, ...]


class Driver:
    """Acts for any number of actors of one run in one process.

    Where blocks come only with transactions, it lets windows and deadlines pass; on a chain that
    is shared with others it cannot, and does not send what would be too early.
    """

    def __init__(
        self,
        context: ActorContext,
        published: PublishedBlobs | None = None,
        keep: RetentionPolicy = RETAIN_ALL,
        *,
        mines: bool = True,
    ) -> None:
        """Drive the actors of a run.

        Args:
            mines: whether blocks come only with transactions. Where they come by themselves, the
                contract is asked before anything is sent, since others act at the same time and
                what is refused costs gas too.
        """
        if context.mailbox.is_shared and keep.stored is not StoredBlobs.ALL:
            raise ValueError(f"keep = {keep.stored}: other processes need every payload")
        self._context = context
        published = PublishedBlobs() if published is None else published
        self._writer = _BlobWriter(context, published, keep.stored)
        self._commitments = _CommitmentSender(context.ledger, mines=mines)
        self._mines = mines

    def apply(self, actions: Iterable[Action]) -> bool:
        """Carry out actions in order, and say whether any of them had an effect.

        What was said, and every blob that was stored, is durable before anything leaves the
        process: mail that others read, or a transaction. What was said is also durable before a
        blob is written, which others may read; documents wait for what leaves, so that a round
        makes it durable once. The contract's refusals are no errors: it takes what is true and
        new, and the actors see what it took.
        """
        sent = self.publish(actions)
        return self.send(sent.transactions) or sent.has_new_mail

    def publish(self, actions: Iterable[Action]) -> SentActions:
        """Carry out all that is no transaction, and return what is left."""
        actions = tuple(actions)
        leaves = self._context.mailbox.is_shared or any(map(_is_transaction, actions))
        if leaves or any(map(self._writer.writes_payloads, actions)):
            self._context.journal.sync()
        has_new_mail = False
        transactions: list[Transaction] = []
        for action in self._stored_first(actions, leaves=leaves):
            if isinstance(action, PostEnvelope):
                has_new_mail |= self._context.mailbox.put(action.envelope)
            else:
                transactions.append(action)
        return SentActions(has_new_mail, tuple(transactions))

    def send(self, transactions: Iterable[Transaction]) -> bool:
        """Bring to the contract what it takes, and say whether that is anything.

        It touches the contract alone, so another thread may do it than the one that says things.
        """
        commitments: list[SignedCommitment] = []
        has_effect = False
        for transaction in transactions:
            if isinstance(transaction, SendCommitment):
                commitments.append(transaction.signed)
            else:
                has_effect |= self._send(transaction)
        return self._commitments.send(commitments) or has_effect

    def forget(self) -> None:
        """Forget a round that is over: others may remove what it had stored."""
        self._writer.forget()

    def mine_to(self, block_number: int) -> None:
        """Make empty blocks up to this one, where blocks come only with transactions."""
        ledger = self._context.ledger
        ledger.mine(max(0, block_number - ledger.newest_block().number))

    def abandon(self, chain: ChainView) -> bool:
        """End a round at its deadline, and say whether that was done.

        Args:
            chain: the round. Where blocks come by themselves, nothing is done before its deadline,
                nor once somebody else has ended it.
        """
        # The transaction's own block is one more than the head.
        last = chain.opened_block + self._context.parameters.deadline_blocks - 1
        ledger = self._context.ledger
        if self._mines:
            self.mine_to(last)
        elif ledger.newest_block().number < last or not self._context.is_open(chain.round):
            return False
        if self._writer.has_waiting:
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

    def _stored_first(
        self, actions: Iterable[Action], *, leaves: bool
    ) -> list[PostEnvelope | Transaction]:
        """Store all blobs, and return what remains to be done once they are durable.

        Shared mail waits for that as transactions do: a reader votes for what it
        announces, and the vote may be in a decision before this process is up again. Other mail
        is lost with the process, and so are the statements in it: they need not be durable.
        """
        leaving: list[PostEnvelope | Transaction] = []
        for action in actions:
            if isinstance(action, StoreBlobs):
                self._writer.take(action)
                continue
            if isinstance(action, SendDecision):
                self._writer.take_decision(action)
            leaving.append(action)
        if leaves:
            self._writer.write_documents()
            self._context.blobs.sync()
        return leaving

    def _send(self, action: SendReport | SendDecision) -> bool:
        ledger = self._context.ledger
        if not self._mines and self._is_idle(action):
            return False
        try:
            if isinstance(action, SendReport):
                ledger.report_equivocation(action.report)
            else:
                self._wait_for(action)
                ledger.decide(action.round, action.decision, action.certificates)
                self._writer.forget()
        except ProtocolRefusal:
            return False
        return True

    def _is_idle(self, action: SendReport | SendDecision) -> bool:
        """Say whether others have done it already, or it is too early."""
        ledger = self._context.ledger
        if isinstance(action, SendReport):
            return any(ban.client == action.report.client for ban in ledger.bans())
        if not self._context.is_open(action.round):
            return True
        return ledger.newest_block().number < self._window_for(action)

    def _wait_for(self, action: SendDecision) -> None:
        """Let the window pass before a decision without all n trainers: until then none is late."""
        if not self._mines or self._ranks_all(action):
            return
        # Once another has decided the round, the next one's window is not ours to let pass.
        if self._context.ledger.state().round == action.round:
            self.mine_to(self._window_for(action))

    def _window_for(self, action: SendDecision) -> int:
        """Return the block that a decision has to wait for, 0 if none."""
        if self._ranks_all(action):
            return 0
        parameters, ledger = self._context.parameters, self._context.ledger
        return window_end(parameters, ledger.state().opened_block)

    def _ranks_all(self, action: SendDecision) -> bool:
        return len(action.decision.ranking) >= self._context.parameters.trainers


class _BlobWriter:
    """Writes the blobs of the open round that stay, each once."""

    def __init__(
        self, context: ActorContext, published: PublishedBlobs, stored: StoredBlobs
    ) -> None:
        self._context = context
        self._published = published
        self._stays = stored
        # Of the open round only: what an old one had stored may have been removed.
        self._stored: set[Digest] = set()
        self._waiting: list[Payload] = []

    def take(self, action: StoreBlobs) -> None:
        """Remember blobs for the observer; write payloads that stay, and let documents wait."""
        self._published.payloads |= action.payloads
        self._published.take((*action.payloads.values(), *action.documents))
        self._store(self._staying_payloads(action))
        if self._stays is not StoredBlobs.NOTHING:
            self._waiting += action.documents

    def writes_payloads(self, action: Action) -> bool:
        """Return whether an action stores a payload that stays and is not written yet."""
        return isinstance(action, StoreBlobs) and any(
            blob.digest not in self._stored for blob in self._staying_payloads(action)
        )

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    def write_documents(self) -> None:
        """Write the documents that wait; what was said must be durable."""
        self._store(self._waiting)
        self._waiting.clear()

    def take_decision(self, action: SendDecision) -> None:
        """Write the payloads of S_a, as the contract derives it, where no others stay."""
        if self._stays is not StoredBlobs.ACCEPTED:
            return
        decision, payloads = action.decision, self._published.payloads
        sizes = self._context.parameters
        accepted = sets_of(sizes, decision.ranking).accepted
        self._store(payloads[client] for client in accepted if client in payloads)

    def forget(self) -> None:
        self._stored.clear()

    def _staying_payloads(self, action: StoreBlobs) -> Iterable[Payload]:
        return action.payloads.values() if self._stays is StoredBlobs.ALL else ()

    def _store(self, blobs: Iterable[Payload]) -> None:
        for blob in blobs:
            if blob.digest not in self._stored:
                self._context.blobs.put_payload(blob)
                self._stored.add(blob.digest)


class _CommitmentSender:
    """Brings commitments to the contract, as many in one transaction as it takes."""

    def __init__(self, ledger: RoundLedger, *, mines: bool) -> None:
        self._ledger = ledger
        self._mines = mines

    def send(self, signed: Sequence[SignedCommitment]) -> bool:
        """Return whether the contract took any of them."""
        done = False
        if signed and not self._mines:
            signed = self._untaken(signed)
        for start in range(0, len(signed), MAX_COMMITMENTS):
            done |= self._commit_batch(signed[start : start + MAX_COMMITMENTS])
        return done

    def _commit_batch(self, batch: Sequence[SignedCommitment]) -> bool:
        try:
            self._ledger.commit_updates(batch[0].commitment.round, batch)
        except ProtocolRefusal as refusal:
            if refusal.code in _NOTHING_IN_TIME:
                return False
            # One that is banned or not signed has the whole batch refused.
            sound = self._sound(batch)
            return 0 < len(sound) < len(batch) and self._commit_batch(sound)
        return True

    def _untaken(self, signed: Sequence[SignedCommitment]) -> list[SignedCommitment]:
        """Return those that the newest block lacks, and the contract would take now."""
        accepted: list[SignedCommitment] = []
        for number in sorted({entry.commitment.round for entry in signed}):
            committed = {mined.client for mined in self._ledger.commitments(number)}
            batch = [
                each
                for each in signed
                if each.commitment.round == number and each.commitment.client not in committed
            ]
            accepted += self._sound(batch) if batch else []
        return accepted

    def _sound(self, batch: Sequence[SignedCommitment]) -> Sequence[SignedCommitment]:
        """Return those that the contract would take, which is asked and not tried.

        A transaction that is refused takes one of the window's few blocks too.
        """
        if self._ledger.would_accept(batch[0].commitment.round, batch):
            return batch
        half = len(batch) // 2
        return [*self._sound(batch[:half]), *self._sound(batch[half:])] if half else []


def _is_transaction(action: Action) -> bool:
    return not isinstance(action, PostEnvelope | StoreBlobs)
