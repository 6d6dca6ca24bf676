"""The chain of heads as links: what each head commits to, from one head to a later one.

A head commits to everything before it (docs/protocol.md, section 10). Whoever has a later head of a
run, and the links up to it, needs nobody's word for what the links say.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from ledger.protocol import encoding
from ledger.protocol.ledger_state import (
    ClientBanned,
    RoundAbandoned,
    RoundDecided,
    UpdatesCommitted,
)
from ledger.protocol.types import NO_DIGEST

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ledger.protocol.ledger_state import Event
    from ledger.protocol.types import ClientId, Digest


@dataclass(frozen=True, slots=True)
class DecisionLink:
    """What a decision adds to the head.

    Attributes:
        round: t.
        seed: seed_t.
        commitments: the commitments digest when the decision ran.
        accepted: set digest of S_a.
        committee: set digest of the next committee.
        result: what the committee voted on beside the sets.
        votes: digest of how it voted.
    """

    round: int
    seed: Digest
    commitments: Digest
    accepted: Digest
    committee: Digest
    result: Digest
    votes: Digest

    def follow(self, head: Digest) -> Digest:
        """Return the head after it."""
        before = encoding.HeadContext(head, self.round, self.seed, self.commitments)
        rest = self.accepted, self.committee, self.result, self.votes
        return encoding.head_after_decision(before, *rest)


@dataclass(frozen=True, slots=True)
class AbandonmentLink:
    """What a round without a decision adds to the head; `committee` is the drawn one's digest."""

    round: int
    seed: Digest
    commitments: Digest
    committee: Digest

    def follow(self, head: Digest) -> Digest:
        """Return the head after it."""
        before = encoding.HeadContext(head, self.round, self.seed, self.commitments)
        return encoding.head_after_abandoned(before, self.committee)


@dataclass(frozen=True, slots=True)
class BanLink:
    """What a ban adds to the head."""

    round: int
    client: ClientId

    def follow(self, head: Digest) -> Digest:
        """Return the head after it."""
        return encoding.head_after_ban(head, self.round, self.client)


EndLink: TypeAlias = DecisionLink | AbandonmentLink
Link: TypeAlias = DecisionLink | AbandonmentLink | BanLink


@dataclass(frozen=True)
class HeadPath:
    """The way from one head to a later one.

    Attributes:
        start: the first head; the configuration's digest where the path begins with the run.
        links: what was added, oldest first.
    """

    start: Digest
    links: tuple[Link, ...]

    @cached_property
    def heads(self) -> tuple[Digest, ...]:
        """Every head on the way: the first one, and the one after each link."""
        found = [self.start]
        for link in self.links:
            found.append(link.follow(found[-1]))
        return tuple(found)

    def end_of(self, round_number: int) -> int | None:
        """Return the place of the link that ended a round; None if there is none."""
        for place, link in enumerate(self.links):
            if not isinstance(link, BanLink) and link.round == round_number:
                return place
        return None

    def ended(self, round_number: int) -> EndLink | None:
        """Return the link that ended a round; None if there is none."""
        place = self.end_of(round_number)
        link = None if place is None else self.links[place]
        return None if isinstance(link, BanLink) else link

    def before_end_of(self, round_number: int) -> HeadPath:
        """Return the way up to where a round ends: a head after it says nothing of what follows.

        Args:
            round_number: t; if it has not ended, the whole way is returned.
        """
        return HeadPath(self.start, self.links[: self.end_of(round_number)])

    def bans(self) -> tuple[BanLink, ...]:
        """Return the bans on the way, oldest first."""
        return tuple(link for link in self.links if isinstance(link, BanLink))


def links_of(seed: Digest, events: Iterable[Event]) -> Iterator[Link]:
    """Yield what events add to the head.

    Args:
        seed: of the round that is open before the first of them.
        events: of the contract, in the chain's order.
    """
    digest = NO_DIGEST
    for event in events:
        match event:
            case UpdatesCommitted(_, clients, commitments):
                for client, commitment in zip(clients, commitments, strict=True):
                    digest = encoding.commitments_digest(digest, client, commitment)
            case ClientBanned(number, client, _):
                yield BanLink(number, client)
            case RoundDecided() | RoundAbandoned():
                yield _end(seed, digest, event)
                seed, digest = event.next_seed, NO_DIGEST
            case _:
                pass


def _end(seed: Digest, commitments: Digest, event: RoundDecided | RoundAbandoned) -> EndLink:
    committee = encoding.set_digest(event.next_committee)
    if isinstance(event, RoundAbandoned):
        return AbandonmentLink(event.round, seed, commitments, committee)
    return DecisionLink(
        event.round,
        seed,
        commitments,
        encoding.set_digest(event.accepted),
        committee,
        event.result(),
        encoding.votes_digest(event.views, event.signers, event.incidents),
    )
