"""Settings of a service and of a store: locations, access, limits."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ledger.io.home import Home
from ledger.protocol.types import Address
from ledger.storage.blobs import MAX_BLOB_BYTES

MEBIBYTE = 2**20
ROOT_PATH = r"^(?:/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*$"


class Settings(BaseModel):
    """Locations, access rules and limits of one service.

    Attributes:
        home: folder of the runs: `chain.sqlite`, `blobs/` and `runs/<name>/deployment.json`.
        rpc_url: a node to read instead of `chain.sqlite`; it must serve the chain `chain_id`.
        manifests: manifests to serve in addition to the home's runs.
        tokens: every request but those for /health must show one; empty for open access.
        allowed_origins: origins whose pages may read the answers; this service's own always may.
        root_path: path that a reverse proxy removes from requests; empty for none.
        allowed_hosts: names in `Host` besides addresses and localhost, if reading needs no token.
        requests_per_minute: limit for one address; None for no limit.
        most_streams_of_address: open streams of one address or one /64 network.
        reading_is_open: tokens are only needed to start work.
        trusted_proxies: networks whose X-Forwarded-For is believed.
        mailbox: place of running federations' mail, as for workers; None to watch none.
        verification_seconds: time of one audit, of the clock and of a processor.
        rules: files or packages of runs' own rules, trusted by the operator and run by audits.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    home: Path
    rpc_url: Annotated[str, Field(max_length=2_000)] | None = None
    chain_id: Annotated[int, Field(ge=1)] | None = None
    manifests: tuple[Path, ...] = ()
    blobs: Path | None = None
    rpc_timeout_seconds: Annotated[float, Field(gt=0, le=300)] = 10.0
    largest_blob_bytes: Annotated[int, Field(ge=1)] = MAX_BLOB_BYTES
    tokens: tuple[Annotated[str, Field(min_length=16, max_length=500)], ...] = ()
    allowed_origins: tuple[Annotated[str, Field(pattern=r"^https?://[^/*\s]+$")], ...] = ()
    root_path: Annotated[str, Field(max_length=200, pattern=ROOT_PATH)] = ""
    allowed_hosts: tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,253}$")], ...] = ()
    requests_per_minute: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    logs_requests: bool = False
    most_streams: Annotated[int, Field(ge=1, le=10_000)] = 64
    most_streams_of_address: Annotated[int, Field(ge=1, le=10_000)] = 8
    reading_is_open: bool = False
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...] = ()
    mailbox: Annotated[str, Field(min_length=1, max_length=2_000)] | None = None
    verifications: bool = True
    verification_memory_bytes: Annotated[int, Field(ge=256 * MEBIBYTE, le=2**50)] = 4_096 * MEBIBYTE
    verification_seconds: Annotated[int, Field(ge=1, le=10**7)] = 3_600
    rules: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _names_the_nodes_chain(self) -> Self:
        if (self.rpc_url is None) != (self.chain_id is None):
            raise ValueError("give rpc_url and chain_id together")
        return self

    @property
    def chain_file(self) -> Path:
        return Home(self.home).chain

    @property
    def blob_folder(self) -> Path:
        return Home(self.home).blobs if self.blobs is None else self.blobs

    @property
    def runs(self) -> Path:
        return Home(self.home).runs


MAX_AUDITORS = 16
"""Auditors that an operator may name: with 2,000 attestations each they fill half of a board."""


class StoreSettings(BaseModel):
    """The bounds of one store; quotas are for one client in one round.

    Attributes:
        public_urls: URLs as `base_url` writes them; uploads signed for other URLs are refused.
        quota_mail_bytes: bytes of new envelopes that the client sends, its own or others'.
        auditors: other addresses that may put attestations, each with a client's quotas.
        keep_rounds: number of newest rounds whose payloads and mail are retained; None for all.
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
