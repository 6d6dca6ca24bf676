"""Settings of a store: its folder, and how much each client may put there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from api.store.auditors import MAX_AUDITORS
from ledger.protocol.types import Address

MEBIBYTE = 2**20


class StoreSettings(BaseModel):
    """The bounds of one store.

    Attributes:
        folder: of blobs and mail.
        public_urls: under which clients know the store, as `base_url` writes them; uploads that are
            signed for another URL are refused.
        max_blob_bytes: largest accepted blob.
        quota_bytes: of new blobs of one client in one round.
        quota_blobs: number of new blobs of one client in one round.
        quota_mail_bytes: of new envelopes that one client sends in one round, its own or others'.
        quota_envelopes: number of new envelopes that one client sends in one round.
        auditors: addresses that may put attestations, beside the registered clients; each has the
            quotas of a client's envelopes.
        keep_rounds: number of newest rounds whose payloads and mail are retained; None for all.
        mail_rounds: number of newest rounds whose mail is listed.
        grace_seconds: that a client may take to send anything at all.
        least_bytes_per_second: that it has to send beyond them.
        logs_requests: whether each request has its line on standard error.
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

    def seconds_for(self, size: int) -> float:
        """Return the time in which a body of this size has to arrive."""
        return self.grace_seconds + size / self.least_bytes_per_second
