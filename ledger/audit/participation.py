"""What each client did over a whole run, from the chain's events alone."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from eth_utils.address import to_checksum_address

from ledger.protocol.encoding import word_client, word_distance
from ledger.protocol.ledger_state import RoundAbandoned, RoundDecided
from ledger.protocol.types import ClientId

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ledger.chain.contract.committee_ledger import CommitteeLedger


@dataclass(frozen=True, slots=True)
class EndedRound:
    """A round that has ended: its committee, and how."""

    committee: tuple[ClientId, ...]
    event: RoundDecided | RoundAbandoned


@dataclass(slots=True)
class Participation:
    """One client's counts.

    Attributes:
        client: its index.
        address: of its key, EIP-55.
        samples: n_k.
        trained: rounds in which it was ranked.
        accepted: rounds in which its update entered the model.
        served: rounds in which it was a member.
        banned_in_round: the round in whose course its ban was recorded, which counts from the
            next one on; None without one.
    """

    client: ClientId
    address: str
    samples: int
    trained: int = 0
    accepted: int = 0
    served: int = 0
    banned_in_round: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the counts as plain data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ClientRound:
    """What one client did in one round.

    Attributes:
        round: t.
        role: "trainer" or "member".
        rank: from 0; None for a member.
        distance: to the committee; None for a member.
        accepted: whether its update entered the model.
    """

    round: int
    role: str
    rank: int | None
    distance: float | None
    accepted: bool

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


def participation(ledger: CommitteeLedger, ended: Iterable[EndedRound]) -> list[Participation]:
    """Return every client's counts.

    Args:
        ledger: the contract.
        ended: its ended rounds.

    Raises:
        NotServedError: the logs do not hold all clients, though a round has begun.
    """
    rounds, bans = tuple(ended), ledger.bans()
    registry = ledger.whole_registry() if rounds or bans else ledger.registry()
    found = [
        Participation(ClientId(index), to_checksum_address(client.address), client.samples)
        for index, client in enumerate(registry)
    ]
    for one in rounds:
        for member in one.committee:
            found[member].served += 1
        if isinstance(one.event, RoundDecided):
            for word in one.event.ranking:
                found[word_client(word)].trained += 1
            for client in one.event.accepted:
                found[client].accepted += 1
    for ban in bans:
        found[ban.client].banned_in_round = ban.round
    return found


def client_rounds(ended: Iterable[EndedRound], client: int) -> list[ClientRound]:
    """Return the rounds that a client took part in, oldest first.

    Args:
        ended: the ended rounds, oldest first.
        client: its index.
    """
    found = []
    for one in ended:
        event = one.event
        if client in one.committee:
            found.append(ClientRound(event.round, "member", None, None, accepted=False))
        if not isinstance(event, RoundDecided):
            continue
        for rank, word in enumerate(event.ranking):
            if word_client(word) == client:
                accepted = client in event.accepted
                row = ClientRound(event.round, "trainer", rank, word_distance(word), accepted)
                found.append(row)
    return found


def ended_rounds(ledger: CommitteeLedger) -> list[EndedRound]:
    """Return committee and outcome of each ended round, oldest first.

    Args:
        ledger: the contract.
    """
    opening = ledger.opening(1)
    committee = opening.committee if opening else ()
    found: list[EndedRound] = []
    for recorded in ledger.outcomes(limit=2**31, descending=False):
        if isinstance(recorded.event, RoundDecided | RoundAbandoned):
            found.append(EndedRound(committee, recorded.event))
            committee = recorded.event.next_committee
    return found
