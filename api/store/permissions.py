"""Write permissions of a contract's clients, read from the chain at most once a second."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from ledger.chain.contract.committee_ledger import CommitteeLedger
from ledger.chain.contract.complete_log import CompleteLog
from ledger.protocol.errors import ChainError
from ledger.protocol.fold import registry_with_bans
from ledger.protocol.ledger_state import LedgerStage
from ledger.protocol.types import Address, Digest, RegisteredClient

FRESH_SECONDS = 1.0
STALE_SECONDS = 60.0
"""A store uses older permissions for this long while the chain cannot be read."""


@dataclass(frozen=True, slots=True)
class WritePermissions:
    """The clients that may write, and the round for which they may.

    Attributes:
        run: sha256 of the run document.
    """

    round: int
    ended: int
    run: Digest
    registry: tuple[RegisteredClient, ...]

    def accepts(self, round_number: int) -> bool:
        """Return whether a round is open, or next to the open one."""
        return abs(round_number - self.round) <= 1

    def has_registered(self, address: Address) -> bool:
        return any(
            client.address == address and not client.is_banned_in(self.round)
            for client in self.registry
        )


class PermissionCache:
    """The permissions of one contract; safe to share between threads.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, ledger: CommitteeLedger, clock: Callable[[], float]) -> None:
        self.domain = ledger.domain()
        self._ledger = ledger
        self._clock = clock
        self._lock = threading.Lock()
        self._log = CompleteLog()
        self._latest: tuple[float, WritePermissions] | None = None
        self._failure: tuple[float, str] | None = None

    def now(self) -> WritePermissions:
        """Return the permissions.

        One thread asks the chain at a time. Once that has failed the others do not wait for it:
        else a silent node would block every thread of the store, and with them readers of blobs,
        who need no chain.
        """
        latest = self._latest
        if latest is not None and self._clock() - latest[0] < FRESH_SECONDS:
            return latest[1]
        if self._lock.acquire(blocking=self._failure is None):
            try:
                self._refresh()
            finally:
                self._lock.release()
        return self._cached()

    def _refresh(self) -> None:
        """Read the chain, unless another thread has just done so, or has just failed to."""
        start = self._clock()
        for previous in (self._latest, self._failure):
            if previous is not None and start - previous[0] < FRESH_SECONDS:
                return
        try:
            self._latest, self._failure = (start, self._read()), None
        except ChainError as error:
            self._failure = (self._clock(), str(error))

    def _cached(self) -> WritePermissions:
        failure, latest = self._failure, self._latest
        if failure is not None and (latest is None or self._clock() - latest[0] > STALE_SECONDS):
            raise ChainError(failure[1])
        assert latest is not None, "a refresh succeeds or fails"
        return latest[1]

    def _read(self) -> WritePermissions:
        state = self._ledger.state()
        ended = state.round - 1 if state.stage is LedgerStage.OPEN else state.round
        ledger = self._log.up_to(self._ledger)
        registry = registry_with_bans(ledger.registry(), ledger.bans())
        return WritePermissions(state.round, ended, ledger.deployment().config, registry)
