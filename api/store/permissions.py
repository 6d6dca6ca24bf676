"""Who may write, as the chain has it: read anew once it is a second old."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.chain.contract.complete_log import CompleteLog
from ledger.protocol.errors import ChainError
from ledger.protocol.fold import registry_with_bans

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.chain.contract.committee_ledger import CommitteeLedger
    from ledger.protocol.types import RegisteredClient

FRESH_SECONDS = 1.0
STALE_SECONDS = 60.0
"""For so long a store goes on with what it knows while the chain cannot be read."""


@dataclass(frozen=True, slots=True)
class WritePermissions:
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


class PermissionCache:
    """What the chain says of one contract; safe to share between threads.

    Args:
        ledger: the contract.
        clock: seconds that only grow.
    """

    def __init__(self, ledger: CommitteeLedger, clock: Callable[[], float]) -> None:
        self.domain = ledger.domain()
        self._ledger = ledger
        self._clock = clock
        self._lock = threading.Lock()
        self._log = CompleteLog()
        self._found: tuple[float, WritePermissions] | None = None
        self._failed: tuple[float, str] | None = None

    def now(self) -> WritePermissions:
        """Return where the run stands.

        One thread asks the chain at a time. Once that has failed the others do not wait for it: a
        node that is silent would else hold every thread of the store, one after the other, and
        with them those who read blobs and need no chain for that.

        Raises:
            ChainError: the chain cannot be read, and what is known of it is too old.
        """
        found = self._found
        if found is not None and self._clock() - found[0] < FRESH_SECONDS:
            return found[1]
        if self._lock.acquire(blocking=self._failed is None):
            try:
                self._ask()
            finally:
                self._lock.release()
        return self._known()

    def _ask(self) -> None:
        """Read the chain, unless another has just done so, or has just failed to."""
        asked_at = self._clock()
        for last in (self._found, self._failed):
            if last is not None and asked_at - last[0] < FRESH_SECONDS:
                return
        try:
            self._found, self._failed = (asked_at, self._read()), None
        except ChainError as error:
            self._failed = (self._clock(), str(error))

    def _known(self) -> WritePermissions:
        """Return what is known, unless it is too old and the chain cannot be read.

        Raises:
            ChainError: it is.
        """
        failed, found = self._failed, self._found
        if failed is not None and (found is None or self._clock() - found[0] > STALE_SECONDS):
            raise ChainError(failed[1])
        assert found is not None, "what was asked for has come, or has failed"
        return found[1]

    def _read(self) -> WritePermissions:
        number = self._ledger.state().round
        ledger = self._log.up_to(self._ledger)
        return WritePermissions(number, registry_with_bans(ledger.registry(), ledger.bans()))
