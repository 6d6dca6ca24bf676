"""What each client did over a whole run, from the chain's events alone."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from eth_utils.address import to_checksum_address

from ledger.protocol import ledger_state
from ledger.protocol.encoding import word_client, word_distance
from ledger.protocol.types import ClientId

EndedRound = tuple[tuple[ClientId, ...], ledger_state.RoundDecided | ledger_state.RoundAbandoned]
"""A round's committee, and how it ended."""

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ledger.chain.committee_ledger import CommitteeLedger


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
        banned: whether it is banned.
    """

    client: ClientId
    address: str
    samples: int
    trained: int = 0
    accepted: int = 0
    served: int = 0
    banned: bool = False

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
    """
    found = [
        Participation(ClientId(index), to_checksum_address(client.address), client.samples)
        for index, client in enumerate(ledger.registry())
    ]
    for committee, event in ended:
        for member in committee:
            found[member].served += 1
        if isinstance(event, ledger_state.RoundDecided):
            for word in event.ranking:
                found[word_client(word)].trained += 1
            for client in event.accepted:
                found[client].accepted += 1
    for recorded in ledger.bans():
        if isinstance(recorded.event, ledger_state.ClientBanned):
            found[recorded.event.client].banned = True
    return found


def client_rounds(ended: Iterable[EndedRound], client: int) -> list[ClientRound]:
    """Return the rounds that a client took part in, oldest first.

    Args:
        ended: the ended rounds, oldest first.
        client: its index.
    """
    found = []
    for committee, event in ended:
        if client in committee:
            found.append(ClientRound(event.round, "member", None, None, accepted=False))
        for rank, word in enumerate(getattr(event, "ranking", ())):
            if word_client(word) == client:
                accepted = isinstance(event, ledger_state.RoundDecided) and client in event.accepted
                row = ClientRound(event.round, "trainer", rank, word_distance(word), accepted)
                found.append(row)
    return found


def ended_rounds(ledger: CommitteeLedger) -> list[EndedRound]:
    """Return committee and outcome of each ended round, oldest first.

    Args:
        ledger: the contract.
    """
    opening = ledger.opening(1)
    committee = opening[0] if opening else ()
    found: list[EndedRound] = []
    for recorded in ledger.outcomes(limit=2**31, descending=False):
        if isinstance(recorded.event, ledger_state.RoundDecided | ledger_state.RoundAbandoned):
            found.append((committee, recorded.event))
            committee = recorded.event.next_committee
    return found
