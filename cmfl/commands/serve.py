"""`cmfl serve`: the REST service over a home, read-only, while runs go on."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from cmfl.commands.console import print_line
from cmfl.commands.interrupts import until_interrupted
from cmfl.commands.options import DEFAULT_HOME, HomeFolder, NodeOptions
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from pydantic import ValidationError

    from api.settings import Settings


MAX_TOKENS_BYTES = 65_536
MEBIBYTE = 2**20

LogRequests = Annotated[
    bool,
    Option(
        "--log-requests",
        help="Write a line of JSON for each request on standard error, without queries and tokens.",
        envvar="CMFL_API_LOG_REQUESTS",
    ),
]

AllowedHosts = Annotated[
    list[str] | None,
    Option(
        "--allowed-host",
        metavar="NAME",
        help="Name that a request's Host may have, such as a reverse proxy's; may be repeated. "
        "Addresses, localhost and the name of --host always may.",
        envvar="CMFL_API_ALLOWED_HOSTS",
    ),
]


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """Access to a service, the mailbox that it watches, and its audits on request."""

    tokens_file: Annotated[
        Path | None,
        Option(
            help="File of bearer tokens, one per line; every request needs one of them. Without "
            "it anyone may read, and only this machine may start verifications.",
            envvar="CMFL_API_TOKENS_FILE",
        ),
    ] = None
    open_reading: Annotated[
        bool,
        Option(
            "--open-reading",
            help="Require a token only to start a verification.",
            envvar="CMFL_API_OPEN_READING",
        ),
    ] = False
    origins: Annotated[
        list[str] | None,
        Option(
            "--origin",
            help="Origin whose pages may read the answers, such as https://audit.example; may be "
            "given several times. This service's own pages always may.",
            envvar="CMFL_API_ORIGINS",
        ),
    ] = None
    root_path: Annotated[
        str,
        Option(
            metavar="PATH",
            help="Path below which a reverse proxy serves this service, such as /ledger; the proxy "
            "removes it from requests.",
            envvar="CMFL_API_ROOT_PATH",
        ),
    ] = ""
    allowed_hosts: AllowedHosts = None
    requests_per_minute: Annotated[
        int | None,
        Option(
            min=1,
            max=1_000_000,
            help="Maximum number of requests of one address; no limit if not given.",
            envvar="CMFL_API_REQUESTS_PER_MINUTE",
        ),
    ] = None
    trusted_proxies: Annotated[
        list[str] | None,
        Option(
            "--trusted-proxy",
            help="Address or network of a proxy whose X-Forwarded-For is trusted; may be given "
            "several times. The header of any other sender is ignored.",
            envvar="CMFL_API_TRUSTED_PROXIES",
        ),
    ] = None
    log_requests: LogRequests = False
    mailbox: Annotated[
        str | None,
        Option(
            help="Mailbox of the running federations, as their workers are given it: a folder, a "
            "server or a URL that fsspec knows. With it the dashboard shows late clients.",
            envvar="CMFL_API_MAILBOX",
        ),
    ] = None
    verifications: Annotated[
        bool,
        Option(
            "--verifications/--no-verifications",
            help="Run audits on request.",
            envvar="CMFL_API_VERIFICATIONS",
        ),
    ] = True
    verification_memory: Annotated[
        int,
        Option(
            min=256,
            max=2**30,
            help="Memory of one audit, in MiB.",
            envvar="CMFL_API_VERIFICATION_MEMORY",
        ),
    ] = 4_096
    verification_seconds: Annotated[
        int,
        Option(
            min=1,
            max=10**7,
            help="Time of one audit, in seconds of the clock and of a processor.",
            envvar="CMFL_API_VERIFICATION_SECONDS",
        ),
    ] = 3_600
    rules: Annotated[
        list[str] | None,
        Option(
            metavar="FILE",
            help="Your copy of a file with a run's own distance; may be repeated. "
            "Audits on request run it, if its sha256 is that of the run's document.",
            envvar="CMFL_API_RULES",
        ),
    ] = None

    def settings(self, **of_home: Any) -> Settings:
        """Return the settings of the service."""
        from pydantic import ValidationError

        from api.settings import Settings
        from ledger.io.user_code import require_source
        from ledger.storage.objects import parse_locations

        if self.open_reading and self.tokens_file is None:
            raise ConfigurationError("--open-reading has no effect without --tokens-file")
        if self.mailbox is not None:
            parse_locations("--mailbox", self.mailbox)
        for source in self.rules or ():
            require_source(source)
        try:
            return Settings(
                **of_home,
                tokens=_read_tokens(self.tokens_file),
                reading_is_open=self.open_reading,
                allowed_origins=tuple(self.origins or ()),
                root_path=self.root_path.rstrip("/"),
                allowed_hosts=tuple(self.allowed_hosts or ()),
                requests_per_minute=self.requests_per_minute,
                trusted_proxies=tuple(self.trusted_proxies or ()),
                logs_requests=self.log_requests,
                mailbox=self.mailbox,
                verifications=self.verifications,
                rules=tuple(self.rules or ()),
                verification_memory_bytes=self.verification_memory * MEBIBYTE,
                verification_seconds=self.verification_seconds,
            )
        except ValidationError as error:
            raise _settings_error(error) from error


_OPTIONS = {
    "tokens": "--tokens-file",
    "allowed_origins": "--origin",
    "root_path": "--root-path",
    "allowed_hosts": "--allowed-host",
    "requests_per_minute": "--requests-per-minute",
    "trusted_proxies": "--trusted-proxy",
    "rpc_url": "--rpc-url",
    "chain_id": "--chain-id",
    "mailbox": "--mailbox",
}
"""The option behind each setting."""


def _read_tokens(path: Path | None) -> tuple[str, ...]:
    """Return the tokens in a file; no error shows one of them."""
    from ledger.io.home import read_text

    if path is None:
        return ()
    try:
        text = read_text(path, MAX_TOKENS_BYTES)
    except ConfigurationError as error:
        raise ConfigurationError(f"--tokens-file: {error}") from error
    tokens = []
    for number, line in enumerate(text.split("\n"), 1):
        token = line.strip()
        if not token:
            continue
        if not (16 <= len(token) <= 500 and token.isascii() and token.isprintable()):
            raise ConfigurationError(
                f"--tokens-file {path}: line {number} is no token: 16 to 500 printable characters "
                f"of ASCII"
            )
        tokens.append(token)
    if not tokens:
        raise ConfigurationError(f"--tokens-file {path}: there is no token in it")
    return tuple(tokens)


def _settings_error(error: ValidationError) -> ConfigurationError:
    """Return an error that names the option at fault, but never its value."""
    first: Any = error.errors(include_input=False)[0]
    name = str(first["loc"][0]) if first["loc"] else "rpc_url"
    return ConfigurationError(f"{_OPTIONS.get(name, name)}: {first['msg']}")


def serve(
    home: HomeFolder = DEFAULT_HOME,
    host: Annotated[str, Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="Port to listen on.")] = 8000,
    *,
    node: NodeOptions,
    service: ServiceOptions,
) -> None:
    """Serve the round history over REST, with a dashboard; /openapi.json describes it."""
    from api.serve import serve as serve_app

    target, rpc_url, chain_id = node.chain_of(home), node.rpc_url, node.chain_id
    if rpc_url is None and chain_id is not None:
        with target.reader():  # it checks the id of the home's own chain
            chain_id = None
    elif rpc_url is not None:
        target.node_chain_id()
    settings = service.settings(home=home, rpc_url=rpc_url, chain_id=chain_id)
    with until_interrupted():
        serve_app(
            settings,
            host,
            port,
            lambda address: print_line(f"serving {home} at {address}/ until Ctrl-C"),
        )


def is_port_taken(port: int) -> bool:
    """Return whether a process listens on a port of this machine."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
