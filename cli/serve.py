"""`cmfl serve`: the REST service over a home, read-only, while runs go on."""

from __future__ import annotations

import socket
from typing import Annotated

import typer

from cli.console import print_line
from cli.options import DEFAULT_HOME, ChainId, HomeFolder, IndexAt, RpcUrl
from cli.service_options import (
    MEBIBYTE,
    LogRequests,
    OpenReading,
    Origins,
    ReportFolder,
    RequestsPerMinute,
    RetainedReports,
    RunsVerifications,
    TokensFile,
    TrustedProxies,
    VerificationMemory,
    VerificationSeconds,
    WaitingVerifications,
    WatchedMailbox,
    read_tokens,
    settings_error,
)
from cli.target import Target
from ledger.protocol.errors import ConfigurationError
from ledger.storage.locations import parse_locations


def serve(
    home: HomeFolder = DEFAULT_HOME,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on.")] = 8000,
    index: IndexAt = None,
    keep_index: Annotated[
        bool,
        typer.Option(
            "--keep-index",
            help="Build the index and keep it at the head of the chain while serving; else only "
            "read it, and cmfl index build --follow keeps it.",
        ),
    ] = False,
    rpc_url: RpcUrl = None,
    chain_id: ChainId = None,
    tokens_file: TokensFile = None,
    open_reading: OpenReading = False,
    origins: Origins = None,
    requests_per_minute: RequestsPerMinute = None,
    trusted_proxies: TrustedProxies = None,
    log_requests: LogRequests = False,
    mailbox: WatchedMailbox = None,
    verifications: RunsVerifications = True,
    reports: ReportFolder = None,
    verification_memory: VerificationMemory = 4_096,
    verification_seconds: VerificationSeconds = 3_600,
    verifications_waiting: WaitingVerifications = 4,
    verifications_kept: RetainedReports = 100,
) -> None:
    """Serve the round history over REST, with a dashboard; see /docs there."""
    from pydantic import ValidationError

    from api.serve import serve as serve_app
    from api.settings import Settings, VerificationBounds

    if open_reading and tokens_file is None:
        raise ConfigurationError("--open-reading has no effect without --tokens-file")
    if mailbox is not None:
        parse_locations("--mailbox", mailbox)
    where = Target(home, rpc_url=rpc_url, chain_id=chain_id)
    if rpc_url is None and chain_id is not None:
        with where.reader():  # the home's own chain has the id that is asked for
            chain_id = None
    elif rpc_url is not None:
        where.node_chain_id()
    try:
        settings = Settings(
            home=home,
            rpc_url=rpc_url,
            chain_id=chain_id,
            index=index,
            keeps_index=keep_index,
            tokens=read_tokens(tokens_file),
            reading_is_open=open_reading,
            allowed_origins=tuple(origins or ()),
            requests_per_minute=requests_per_minute,
            trusted_proxies=tuple(trusted_proxies or ()),
            logs_requests=log_requests,
            mailbox=mailbox,
            verifications=verifications,
            reports=reports,
            verification_bounds=VerificationBounds(
                memory_bytes=verification_memory * MEBIBYTE,
                cpu_seconds=verification_seconds,
                seconds=verification_seconds,
                waiting=verifications_waiting,
                kept=verifications_kept,
            ),
        )
    except ValidationError as error:
        raise settings_error(error) from error
    serve_app(
        settings,
        host,
        port,
        lambda address: print_line(f"serving {home} at {address}/ and /docs, until Ctrl-C"),
    )


def is_port_taken(port: int) -> bool:
    """Return whether somebody listens on a port of this machine.

    Args:
        port: above 0.
    """
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
