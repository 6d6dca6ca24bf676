"""Rounds by how they ended, many at a time: what lists and scans are made of.

The contract's rounds are numbered without gaps, so a page is a range of numbers, and the events
of its rounds are read with one query, wherever in the history the page is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ledger.chain.ports import NotServedError
from ledger.protocol.inputs import participants_of, registry_with_bans
from ledger.protocol.ledger_state import RoundAbandoned, RoundDecided

if TYPE_CHECKING:
    from api.deployments import Served
    from api.schemas.words import Status
    from ledger.chain.contract.committee_ledger import CommitteeLedger
    from ledger.chain.contract.events import Recorded
    from ledger.protocol.types import ClientId, Digest, RegisteredClient

Role = Literal["any", "trained", "served", "accepted"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One round, as its opening and its end tell.

    Attributes:
        round: t.
        committee: S_c, by places.
        seed: seed_t.
        ended: its decision or abandonment; None while open.
        registry: all clients, with the bans that the chain holds.
    """

    round: int
    committee: tuple[ClientId, ...]
    seed: Digest
    ended: Recorded | None
    registry: tuple[RegisteredClient, ...]

    @property
    def decided(self) -> RoundDecided | None:
        """The decision, if that is how it ended."""
        event = None if self.ended is None else self.ended.event
        return event if isinstance(event, RoundDecided) else None

    @property
    def status(self) -> Status:
        """How it stands."""
        if self.ended is None:
            return "open"
        return "decided" if self.decided else "abandoned"

    def trainers(self, served: Served) -> tuple[ClientId, ...]:
        """Return S_b, ascending: nobody of it was banned when the round opened."""
        where = (self.round, self.seed, self.committee)
        return participants_of(served.sizes, self.registry, *where).trainers

    def is_role_of(self, client: int, role: Role, served: Served) -> bool:
        """Say whether a client had a role in the round.

        Args:
            client: its index.
            role: which; "any" is a trainer's or a member's.
            served: the deployment.
        """
        if role == "accepted":
            return self.decided is not None and client in self.decided.accepted
        if role != "trained" and client in self.committee:
            return True
        return role != "served" and client in self.trainers(served)


def newest_round(served: Served, to_block: int) -> int:
    """Return the number of the newest round that has opened, 0 before the first.

    Args:
        served: the deployment.
        to_block: last block that is read.
    """
    found = served.ledger.outcomes(1, descending=True, to_block=to_block)
    # As in `rounds.abandon_round`: without a full committee no round opens.
    if not found:
        first = served.ledger.opening(1, to_block)
        return int(first is not None and len(first.committee) == served.sizes.members)
    event = found[0].event
    if not isinstance(event, RoundDecided | RoundAbandoned):
        return 0
    goes_on = event.round < served.sizes.rounds and (
        len(event.next_committee) == served.sizes.members
    )
    return event.round + goes_on


def read_outcomes(served: Served, first: int, last: int, to_block: int) -> list[Outcome]:
    """Return the rounds of a range, ascending.

    Args:
        served: the deployment.
        first: its first round, at least 1.
        last: its last round, one that has opened.
        to_block: last block that is read.

    Returns:
        Every round from first to last.

    Raises:
        NotServedError: the logs do not hold all of them.
    """
    ledger = served.ledger
    opening = ledger.opening(first, to_block)
    if opening is None:
        raise NotServedError(f"round {last} is said to have opened, but no log opens round {first}")
    committee, seed = opening.committee, opening.seed
    ends = _ends(ledger, first, last, to_block)
    registry = registry_with_bans(served.registry(), ledger.bans(to_block))
    found: list[Outcome] = []
    for number in range(first, last + 1):
        ended = ends.get(number)
        found.append(Outcome(number, committee, seed, ended, registry))
        if ended is None or not isinstance(ended.event, RoundDecided | RoundAbandoned):
            if number < last:
                raise NotServedError(
                    f"round {last} is said to have opened, but round {number} "
                    "has no end in the logs"
                )
            break
        committee, seed = ended.event.next_committee, ended.event.next_seed
    return found


def _ends(ledger: CommitteeLedger, first: int, last: int, to_block: int) -> dict[int, Recorded]:
    """Return how each round of a range ended, by its number; nothing for the open one."""
    newest = _end(ledger, last, to_block)
    until = to_block if newest is None else newest.block_number
    ends: dict[int, Recorded] = {}
    for recorded in ledger.outcomes(last - first + 1, descending=True, to_block=until):
        if isinstance(recorded.event, RoundDecided | RoundAbandoned):
            ends[recorded.event.round] = recorded
    # Later rounds may have ended in the same block and taken places in the answer above.
    for number in range(first, last):
        if number not in ends and (missing := _end(ledger, number, to_block)) is not None:
            ends[number] = missing
    return ends if newest is None else ends | {last: newest}


def _end(ledger: CommitteeLedger, number: int, to_block: int) -> Recorded | None:
    for recorded in ledger.round_events(number, to_block):
        if isinstance(recorded.event, RoundDecided | RoundAbandoned):
            return recorded
    return None
