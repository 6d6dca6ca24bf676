"""Permissions and settings of the store: contracts' clients and auditors may write."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from ledger.chain.contract.event_log import EventLog
from ledger.chain.contract.ledger import CommitteeLedger
from ledger.chain.round_ledger import last_ended
from ledger.protocol.errors import ChainError
from ledger.protocol.fold import registry_with_bans
from ledger.protocol.types import Address, Digest, RegisteredClient, Upload

MAX_AUDITORS = 16
"""Auditors that an operator may name: with 2,000 attestations each they fill half of a board."""

Writer = int | Address
"""Index of a client, or address of an auditor."""


@dataclass(frozen=True, slots=True)
class AttestationUpload(Upload):
    """An upload of an attestation, charged to the address that signed it."""

    auditor: Address


def writer_of(upload: Upload) -> tuple[Writer, str]:
    """Return the writer that is charged for an upload, and its name for people."""
    if isinstance(upload, AttestationUpload):
        return upload.auditor, f"auditor 0x{upload.auditor.hex()}"
    return int(upload.client), f"client {upload.client}"


MEBIBYTE = 2**20


class StoreSettings(BaseModel):
    """The bounds of one store; quotas are for one client in one round.

    Attributes:
        public_urls: under which clients know the store, as `base_url` writes them; uploads that are
            signed for another URL are refused.
        quota_mail_bytes: of new envelopes that the client sends, its own or others'.
        auditors: addresses that may put attestations, besides the registered clients; each has the
            quotas of a client's envelopes.
        keep_rounds: number of newest rounds whose payloads and mail are retained; None for all.
        mail_rounds: number of newest rounds whose mail is listed.
        grace_seconds: time that a client may take to send anything at all.
        least_bytes_per_second: rate at which it has to send beyond them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: Path
    public_urls: tuple[str, ...] = ()
    max_blob_bytes: Annotated[int, Field(ge=1, le=2**40)] = 256 * MEBIBYTE
    quota_bytes: Annotated[int, Field(ge=1, le=2**50)] = 1024 * MEBIBYTE
    quota_blobs: Annotated[int, Field(ge=1, le=10**6)] = 1_000
    quota_mail_bytes: Annotated[int, Field(ge=1, le=2**40)] = 32 * MEBIBYTE
    quota_envelopes: Annotated[int, Field(ge=1, le=10**6)] = 2_000
    auditors: Annotated[frozenset[Address], Field(max_length=MAX_AUDITORS)] = frozenset()
    keep_rounds: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    mail_rounds: Annotated[int, Field(ge=2, le=1_000)] = 8
    grace_seconds: Annotated[float, Field(gt=0, le=600)] = 20.0
    least_bytes_per_second: Annotated[int, Field(ge=1)] = 65_536
    logs_requests: bool = False


FRESH_SECONDS = 1.0
STALE_SECONDS = 60.0
"""A store uses older permissions for this long while the chain cannot be read."""


@dataclass(frozen=True, slots=True)
class WritePermissions:
    """The clients that may write, and the rounds for which they may; `run` is the config digest."""

    round: int
    ended: int
    run: Digest
    registry: tuple[RegisteredClient, ...]


class PermissionCache:
    """The permissions of one contract, by a monotonic clock; safe to share between threads."""

    def __init__(
        self, ledger: CommitteeLedger, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.domain = ledger.domain()
        self._ledger = ledger
        self._clock = clock
        self._lock = threading.Lock()
        self._log = EventLog()
        self._latest: tuple[float, WritePermissions] | None = None
        self._failure: tuple[float, str] | None = None

    def now(self) -> WritePermissions:
        """Return the permissions; one thread asks the chain at a time.

        Once that has failed the others do not wait: a silent node would block readers, too.
        """
        latest = self._latest
        if latest is not None and self._clock() - latest[0] < FRESH_SECONDS:
            return latest[1]
        if self._lock.acquire(blocking=self._failure is None):
            try:
                self._refresh()
            finally:
                self._lock.release()
        failure, latest = self._failure, self._latest
        if failure is not None and (latest is None or self._clock() - latest[0] > STALE_SECONDS):
            raise ChainError(failure[1])
        assert latest is not None, "a refresh succeeds or fails"
        return latest[1]

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

    def _read(self) -> WritePermissions:
        state = self._ledger.state()
        ledger = self._log.up_to(self._ledger)
        registry = registry_with_bans(ledger.registry(), ledger.bans())
        config = ledger.deployment().config
        return WritePermissions(state.round, last_ended(state), config, registry)
