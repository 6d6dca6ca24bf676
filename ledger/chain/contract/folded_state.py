"""The contract's state, recomputed from its events alone.

Everything that the contract records moves its state: a batch of clients what is left to register, a
commitment the running digest of the round's commitments, a ban the head, the end of a round head
and number. Heads and digests are chains of hashes and are recomputed here, never taken from an
event. So events that lead to the contract's own state are all there, and none of them was altered
in anything that a head commits to; where they lead elsewhere, nothing follows from what is missing
among them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Self

from ledger.chain.contract.committee_ledger import LedgerSnapshot, RoundStart
from ledger.chain.ports import IncompleteLogsError
from ledger.protocol import encoding
from ledger.protocol.ledger_state import (
    ClientBanned,
    ClientsRegistered,
    LedgerDeployed,
    LedgerOpened,
    LedgerStage,
    RoundAbandoned,
    RoundDecided,
    UpdatesCommitted,
)
from ledger.protocol.types import NO_DIGEST

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ledger.chain.contract.event_logs import RecordedEvent
    from ledger.protocol.ledger_state import Deployment
    from ledger.protocol.types import Digest, RegisteredClient


@dataclass(frozen=True, slots=True)
class FoldedState:
    """What the events so far make of a contract.

    Attributes:
        fixed: what was fixed at deployment.
        snapshot: the contract's storage; of `registry_rest` the events do not tell.
        batches: words of the clients registered so far, by the transactions that did it.
        deployments: how often the constructor has logged itself.
    """

    fixed: Deployment
    snapshot: LedgerSnapshot
    batches: tuple[tuple[int, ...], ...] = ()
    deployments: int = 0

    @classmethod
    def at_deployment(cls, fixed: Deployment) -> Self:
        """Return the state that the constructor leaves, before its own event.

        Args:
            fixed: its argument.
        """
        none = NO_DIGEST
        places = LedgerStage.REGISTERING, 0, 0, none, none
        rest = 0, fixed.registry, none
        return cls(fixed, LedgerSnapshot(*places, fixed.model, fixed.config, *rest))

    @property
    def registry(self) -> tuple[RegisteredClient, ...]:
        """The clients registered so far, without bans."""
        return tuple(encoding.registered_client(word) for batch in self.batches for word in batch)

    def after(self, events: Iterable[RecordedEvent]) -> FoldedState:
        """Return the state after further events.

        Args:
            events: all that were recorded since, oldest first; possible ones.
        """
        folded = self
        for recorded in events:
            folded = folded._after(recorded)
        return folded

    def difference(self, state: LedgerSnapshot) -> str | None:
        """Return how a contract's own state differs from this one, None where it does not.

        Args:
            state: as the contract answers.
        """
        if self.deployments != 1:
            return f"the logs deploy the contract {self.deployments} times"
        rest = state.registry_rest
        for batch in reversed(self.batches):
            rest = encoding.registry_digest(batch, rest)
        if rest != self.fixed.registry:
            return (
                f"the logs register {self.snapshot.registered} clients, and the contract was "
                f"deployed for {self.fixed.clients}, of whom it has {state.registered}"
            )
        expected = replace(self.snapshot, registry_rest=state.registry_rest)
        for field in fields(LedgerSnapshot):
            told, true = getattr(expected, field.name), getattr(state, field.name)
            if told != true:
                return (
                    f"the logs lead to {field.name} {_shown(told)}, and the contract has "
                    f"{_shown(true)}"
                )
        return None

    def require(self, state: LedgerSnapshot, block_number: int, node: str | None) -> None:
        """Accept the events so far as all that there are.

        Args:
            state: as the contract answers after the last block that the events are of.
            block_number: that block.
            node: where both were asked for; None for a file.

        Raises:
            IncompleteLogsError: they do not lead to that state.
        """
        difference = self.difference(state)
        if difference is not None:
            raise IncompleteLogsError(node, f"up to block {block_number} {difference}")

    def _after(self, recorded: RecordedEvent) -> FoldedState:
        before, event = self.snapshot, recorded.event
        match event:
            case LedgerDeployed():
                return replace(self, deployments=self.deployments + 1)
            case ClientsRegistered(_, words):
                after = replace(before, registered=before.registered + len(words))
                return replace(self, snapshot=after, batches=(*self.batches, words))
            case LedgerOpened(_, seed, committee, model):
                opened = replace(before, round=before.round + 1, seed=seed, model=model)
                is_short = len(committee) < self.fixed.members
                after = _opened(opened, recorded, is_over=is_short)
            case UpdatesCommitted(_, clients, commitments):
                digest = before.commitments
                for client, commitment in zip(clients, commitments, strict=True):
                    digest = encoding.commitments_digest(digest, client, commitment)
                after = replace(before, commitments=digest)
            case ClientBanned(_, client, _):
                head = encoding.head_after_ban(before.head, before.round, client)
                after = replace(before, head=head)
            case _:
                after = self._ended(event, recorded)
        return replace(self, snapshot=after)

    def _ended(
        self, event: RoundDecided | RoundAbandoned, recorded: RecordedEvent
    ) -> LedgerSnapshot:
        before, fixed = self.snapshot, self.fixed
        place = encoding.HeadContext(before.head, before.round, before.seed, before.commitments)
        is_last = before.round >= fixed.rounds
        ended = replace(
            before,
            head=head_after_end(place, event),
            seed=event.next_seed,
            model=event.model if isinstance(event, RoundDecided) else before.model,
            round=before.round if is_last else before.round + 1,
        )
        is_short = len(event.next_committee) < fixed.members
        return _opened(ended, recorded, is_over=is_last or is_short)


def head_after_end(before: encoding.HeadContext, event: RoundDecided | RoundAbandoned) -> Digest:
    """Return the head after the end of a round, as it follows from the event's other fields.

    Args:
        before: head, round, seed and commitments up to there.
        event: the end.
    """
    following = encoding.set_digest(event.next_committee)
    if isinstance(event, RoundAbandoned):
        return encoding.head_after_abandoned(before, following)
    votes = encoding.votes_digest(event.views, event.signers, event.incidents)
    accepted = encoding.set_digest(event.accepted)
    return encoding.head_after_decision(before, accepted, following, event.result(), votes)


def _opened(snapshot: LedgerSnapshot, recorded: RecordedEvent, *, is_over: bool) -> LedgerSnapshot:
    opening = RoundStart.of(recorded)
    assert opening is not None, "the event opens a round, or says that there is none"
    return replace(
        snapshot,
        stage=LedgerStage.FINISHED if is_over else LedgerStage.OPEN,
        opened_block=opening.opened_block,
        committee=encoding.set_digest(opening.committee),
        commitments=NO_DIGEST,
    )


def _shown(value: object) -> str:
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    return value.name.lower() if isinstance(value, LedgerStage) else str(value)
