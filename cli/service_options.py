"""The options of `cmfl serve`: who may ask, how much, and what audits on request may take."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from pydantic import ValidationError

MAX_TOKENS_BYTES = 65_536
MEBIBYTE = 2**20

TokensFile = Annotated[
    Path | None,
    typer.Option(
        "--tokens-file",
        help="A file with bearer tokens, one on a line, of which every request has to show one. "
        "Without it anybody may read, and verifications are begun from this machine alone.",
        envvar="CMFL_API_TOKENS_FILE",
    ),
]
OpenReading = Annotated[
    bool,
    typer.Option(
        "--open-reading",
        help="Ask for a token only where a verification is begun or cancelled.",
        envvar="CMFL_API_OPEN_READING",
    ),
]
Origins = Annotated[
    list[str] | None,
    typer.Option(
        "--origin",
        help="An origin whose pages may read the answers, as https://audit.example; may be given "
        "several times. This service's own pages always may.",
        envvar="CMFL_API_ORIGINS",
    ),
]
RequestsPerMinute = Annotated[
    int | None,
    typer.Option(
        "--requests-per-minute",
        min=1,
        max=1_000_000,
        help="Most requests of one address; no limit if not given.",
        envvar="CMFL_API_REQUESTS_PER_MINUTE",
    ),
]
TrustedProxies = Annotated[
    list[str] | None,
    typer.Option(
        "--trusted-proxy",
        help="Address or network of a proxy whose X-Forwarded-For counts; may be given several "
        "times. From anybody else it counts for nothing.",
        envvar="CMFL_API_TRUSTED_PROXIES",
    ),
]
LogRequests = Annotated[
    bool,
    typer.Option(
        "--log-requests",
        help="Write a line of JSON for each request on standard error, without queries and tokens.",
        envvar="CMFL_API_LOG_REQUESTS",
    ),
]
WatchedMailbox = Annotated[
    str | None,
    typer.Option(
        "--mailbox",
        help="Mailbox of the federations that run, as their workers are given it: a folder, a "
        "server or a URL that fsspec knows. With it the dashboard shows who is late.",
        envvar="CMFL_API_MAILBOX",
    ),
]
RunsVerifications = Annotated[
    bool,
    typer.Option(
        "--verifications/--no-verifications",
        help="Run audits on request.",
        envvar="CMFL_API_VERIFICATIONS",
    ),
]
ReportFolder = Annotated[
    Path | None,
    typer.Option(
        "--reports",
        help="Folder of their reports; else verifications in the home.",
        envvar="CMFL_API_REPORTS",
    ),
]
VerificationMemory = Annotated[
    int,
    typer.Option(
        "--verification-memory",
        min=256,
        max=2**30,
        help="MiB that an audit may take.",
        envvar="CMFL_API_VERIFICATION_MEMORY",
    ),
]
VerificationSeconds = Annotated[
    int,
    typer.Option(
        "--verification-seconds",
        min=1,
        max=10**7,
        help="Seconds that an audit may take, of the clock and of a processor.",
        envvar="CMFL_API_VERIFICATION_SECONDS",
    ),
]
WaitingVerifications = Annotated[
    int,
    typer.Option(
        "--verifications-waiting",
        min=0,
        max=1_000,
        help="Audits that may wait while one runs.",
        envvar="CMFL_API_VERIFICATIONS_WAITING",
    ),
]
RetainedReports = Annotated[
    int,
    typer.Option(
        "--verifications-kept",
        min=1,
        max=10_000,
        help="Reports that are kept; the oldest go first.",
        envvar="CMFL_API_VERIFICATIONS_KEPT",
    ),
]

_OPTIONS = {
    "tokens": "--tokens-file",
    "allowed_origins": "--origin",
    "requests_per_minute": "--requests-per-minute",
    "trusted_proxies": "--trusted-proxy",
    "rpc_url": "--rpc-url",
    "chain_id": "--chain-id",
    "reports": "--reports",
    "index": "--index",
    "mailbox": "--mailbox",
    "verification_bounds": "--verifications-waiting and --verifications-kept",
}
"""Of each setting the option that gives it."""


def read_tokens(path: Path | None) -> tuple[str, ...]:
    """Return the tokens in a file; no error shows one of them.

    Args:
        path: of the file; None for no tokens.

    Raises:
        ConfigurationError: it cannot be read, has none, or one that no request can show.
    """
    from ledger.io.home import read_text

    if path is None:
        return ()
    try:
        text = read_text(path, MAX_TOKENS_BYTES)
    except ConfigurationError as error:
        raise ConfigurationError(f"--tokens-file: {error}") from error
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        token = line.strip()
        if not token:
            continue
        if not (16 <= len(token) <= 500 and token.isascii() and token.isprintable()):
            raise ConfigurationError(
                f"--tokens-file {path}: line {number} is no token: 16 to 500 letters, digits and "
                f"signs of ASCII"
            )
        found.append(token)
    if not found:
        raise ConfigurationError(f"--tokens-file {path}: there is no token in it")
    return tuple(found)


def settings_error(error: ValidationError) -> ConfigurationError:
    """Return why settings are refused, by the option at fault; never with its value.

    Args:
        error: of the settings.
    """
    first: Any = error.errors(include_input=False)[0]
    whole = "verification_bounds" if error.title == "VerificationBounds" else "rpc_url"
    name = str(first["loc"][0]) if first["loc"] else whole
    return ConfigurationError(f"{_OPTIONS.get(name, name)}: {first['msg']}")
