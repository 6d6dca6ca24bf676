"""The entries of a run's log: one for each round that has ended, in their order.

Entry t - 1 names contract, chain, round t and the head that the end of round t led to, as text:

    cmfl-ledger/head/v1
    chain 31337
    contract 0x...
    salt 0x...
    round 1
    head 0x...

The head commits to everything before it (docs/protocol.md, "Head"), bans included; a ban after the
newest end is under the next entry. The salt is that of the contract's EIP-712 domain: on a chain
that begins anew, chain id and address come again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ledger.protocol.encoding import to_hex
from ledger.protocol.ledger_state import Event, RoundAbandoned, RoundDecided
from ledger.protocol.types import Address, Digest, Domain
from ledger.transparency.errors import NoteError
from ledger.transparency.keys import require_key_name

_ENTRY = re.compile(
    b"cmfl-ledger/head/v1\n"
    b"chain (0|[1-9][0-9]{0,19})\n"
    b"contract 0x([0-9a-f]{40})\n"
    b"salt 0x([0-9a-f]{64})\n"
    b"round ([1-9][0-9]{0,9})\n"
    b"head 0x([0-9a-f]{64})\n"
)


@dataclass(frozen=True, slots=True)
class HeadEntry:
    """The head at the end of a round.

    Attributes:
        round: t, from 1.
    """

    domain: Domain
    round: int
    head: Digest

    def encoded(self) -> bytes:
        """Return the entry's bytes, which the log's leaf is the hash of."""
        return (
            f"cmfl-ledger/head/v1\n"
            f"chain {self.domain.chain_id}\n"
            f"contract {to_hex(self.domain.contract)}\n"
            f"salt {to_hex(self.domain.salt)}\n"
            f"round {self.round}\n"
            f"head {to_hex(self.head)}\n"
        ).encode()


def parse_entry(data: bytes) -> HeadEntry:
    """Return an entry from its bytes."""
    match = _ENTRY.fullmatch(data)
    if match is None:
        raise NoteError("the entry is no head of a run")
    chain, contract, salt, round_, head = (group.decode() for group in match.groups())
    domain = Domain(int(chain), Address(bytes.fromhex(contract)), Digest(bytes.fromhex(salt)))
    return HeadEntry(domain, int(round_), Digest(bytes.fromhex(head)))


def head_entries(domain: Domain, events: Iterable[Event]) -> list[HeadEntry]:
    """Return the entries of a contract's events, in their order."""
    return [
        HeadEntry(domain, event.round, event.head)
        for event in events
        if isinstance(event, RoundDecided | RoundAbandoned)
    ]


def run_suffix(chain_id: int, contract: Address) -> str:
    """Return how the origin of every log of a run ends: its chain and contract."""
    return f"/{chain_id}/{to_hex(contract)}"


def origin_of(prefix: str, domain: Domain) -> str:
    """Return the origin of a run's log.

    Args:
        prefix: name of its publisher, such as `example.org/cmfl`.
    """
    publisher = require_key_name(prefix.rstrip("/"))
    return require_key_name(f"{publisher}{run_suffix(domain.chain_id, domain.contract)}")
