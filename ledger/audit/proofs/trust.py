"""The verifier's trust anchor: a kept head, or a contract on a chain that it trusts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ledger.audit.proofs.proof import EventLocation, RecordedBan, RecordedCommitment
from ledger.chain.contract.code import code_violation
from ledger.protocol.ledger_state import RoundAbandoned, RoundDecided, UpdatesCommitted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ledger.chain.contract.committee_ledger import CommitteeLedger
    from ledger.chain.contract.event_logs import RecordedEvent
    from ledger.chain.ports import Log
    from ledger.protocol.fold import RoundStart
    from ledger.protocol.ledger_state import Deployment
    from ledger.protocol.types import ClientId, Digest, Domain


@dataclass(frozen=True, slots=True)
class TrustedHead:
    """A head of the run that was kept, of the round that is asked for or a later one."""

    head: Digest


@dataclass(frozen=True, slots=True)
class TrustedContract:
    """A round as a contract on a trusted chain reports it.

    Attributes:
        domain: the contract on its chain.
        genesis_hash: of the chain.
        deployment: what the contract says was deployed.
        code_doubt: why the code there is not the ledger's; empty if it is.
        opening: how the round began; None if it has not.
        bans: those recorded before it opened, in the chain's order.
        commitments: those taken in it, in the chain's order.
        commitment_places: where the chain holds each of them.
        places: where the chain holds each event of the round up to its end, in the chain's order.
        ended: head after decision or abandonment; None while the round is open.
        ended_at: where the chain holds it; None while the round is open.
        is_final: whether nothing of all this can be taken back.
    """

    domain: Domain
    genesis_hash: bytes
    deployment: Deployment
    code_doubt: str
    opening: RoundStart | None
    bans: tuple[RecordedBan, ...]
    commitments: tuple[RecordedCommitment, ...]
    commitment_places: dict[ClientId, EventLocation]
    places: tuple[EventLocation, ...]
    ended: Digest | None
    ended_at: EventLocation | None
    is_final: bool


Trusted: TypeAlias = TrustedHead | TrustedContract


def read_trusted_contract(ledger: CommitteeLedger, round_number: int) -> TrustedContract:
    """Return what a contract says of a round.

    Args:
        ledger: the contract, on a chain that one trusts.
        round_number: t.

    Raises:
        ChainError: the chain is unreachable or damaged, or there is no such contract.
    """
    chain = ledger.chain
    domain = ledger.domain()
    deployment, final = ledger.deployment(), chain.finalized()
    recorded = ledger.round_events(round_number)
    ended = _ended(recorded)
    opening = ledger.opening(round_number)
    newest = chain.head().number if ended is None else ended.block_number
    commitments, places = _commitments(recorded)
    return TrustedContract(
        domain=domain,
        genesis_hash=chain.genesis_hash,
        deployment=deployment,
        code_doubt=code_violation(chain.code(ledger.address), deployment, domain) or "",
        opening=opening,
        bans=bans_before(ledger, round_number),
        commitments=commitments,
        commitment_places=places,
        places=tuple(map(location_of, recorded[: _until(recorded, ended)])),
        ended=None if ended is None else _head_of(ended),
        ended_at=None if ended is None else location_of(ended),
        is_final=newest <= final,
    )


def bans_before(ledger: CommitteeLedger, round_number: int) -> tuple[RecordedBan, ...]:
    """Return the bans that were recorded before a round opened, in the chain's order.

    Args:
        ledger: the contract.
        round_number: t.

    Raises:
        ChainError: the chain is unreachable or damaged.
    """
    bans = (RecordedBan(event.round, event.client) for event in ledger.bans())
    return tuple(ban for ban in bans if ban.round < round_number)


def location_of(recorded: RecordedEvent) -> EventLocation:
    """Return where a chain holds an event."""
    where = recorded.block_number, recorded.block_hash, recorded.transaction_hash
    return EventLocation(*where, recorded.log_index)


def log_location(log: Log) -> EventLocation:
    """Return where a chain holds a log."""
    return EventLocation(log.block_number, log.block_hash, log.transaction_hash, log.log_index)


def _ended(recorded: Iterable[RecordedEvent]) -> RecordedEvent | None:
    ends = (entry for entry in recorded if isinstance(entry.event, RoundDecided | RoundAbandoned))
    return next(ends, None)


def _until(recorded: list[RecordedEvent], ended: RecordedEvent | None) -> int:
    return len(recorded) if ended is None else recorded.index(ended) + 1


def _head_of(recorded: RecordedEvent) -> Digest | None:
    event = recorded.event
    return event.head if isinstance(event, RoundDecided | RoundAbandoned) else None


def _commitments(
    recorded: Iterable[RecordedEvent],
) -> tuple[tuple[RecordedCommitment, ...], dict[ClientId, EventLocation]]:
    commitments: list[RecordedCommitment] = []
    places: dict[ClientId, EventLocation] = {}
    for entry in recorded:
        if isinstance(entry.event, UpdatesCommitted):
            pairs = zip(entry.event.clients, entry.event.commitments, strict=True)
            commitments += [RecordedCommitment(*pair) for pair in pairs]
            places |= dict.fromkeys(entry.event.clients, location_of(entry))
    return tuple(commitments), places
