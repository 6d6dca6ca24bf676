"""Who may write, as the chain has it: read anew once it is a second old."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.chain.addresses import to_canonical
from ledger.protocol.errors import ChainError
from ledger.protocol.inputs import registry_with_bans
from ledger.protocol.types import Address, Domain

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.chain.contract.committee_ledger import CommitteeLedger
    from ledger.protocol.types import RegisteredClient

FRESH_SECONDS = 1.0
STALE_SECONDS = 60.0
"""For so long a store goes on with what it knows while the chain cannot be read."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a run stands.

    Attributes:
        round: the open one, or the last.
        registry: all clients with their bans.
    """

    round: int
    registry: tuple[RegisteredClient, ...]

    def takes(self, round_number: int) -> bool:
        """Say whether something of a round may still, or already, be written."""
        return abs(round_number - self.round) <= 1


class Standings:
    """What the chain says of one contract; safe to share between threads.

    Args:
        ledger: the contract.
        clock: seconds that only grow.
    """

    def __init__(self, ledger: CommitteeLedger, clock: Callable[[], float]) -> None:
        self.domain = domain_of(ledger)
        self._ledger = ledger
        self._clock = clock
        self._lock = threading.Lock()
        self._clients = 0
        self._registered: tuple[RegisteredClient, ...] = ()
        self._found: tuple[float, Standing] | None = None

    def now(self) -> Standing:
        """Return where the run stands.

        Raises:
            ChainError: the chain cannot be read, and what is known of it is too old.
        """
        with self._lock:
            asked_at = self._clock()
            if self._found is not None and asked_at - self._found[0] < FRESH_SECONDS:
                return self._found[1]
            try:
                self._found = (asked_at, self._read())
            except ChainError:
                if self._found is None or asked_at - self._found[0] > STALE_SECONDS:
                    raise
            return self._found[1]

    def _read(self) -> Standing:
        number = self._ledger.state().round
        if not self._clients or len(self._registered) < self._clients:
            self._clients = self._ledger.deployment().clients
            self._registered = self._ledger.registry()
        bans = [ban for ban in self._ledger.bans() if ban.client < len(self._registered)]
        return Standing(number, registry_with_bans(self._registered, bans))


def domain_of(ledger: CommitteeLedger) -> Domain:
    """Return what is signed for one contract on its chain.

    Args:
        ledger: the contract.
    """
    return Domain(ledger.chain.chain_id, Address(to_canonical(ledger.address)))
