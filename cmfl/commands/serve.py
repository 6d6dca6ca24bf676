"""`cmfl serve` and `cmfl blobs`: the history over REST, and a store for several machines."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from api.settings import MAX_AUDITORS, MEBIBYTE, Settings, StoreSettings
from cmfl.commands import INCOMPLETE, options
from cmfl.commands.application import Commands
from cmfl.commands.console import AsJson, print_json, print_line, print_result, print_table
from cmfl.commands.process import until_interrupted
from cmfl.where import HOME
from ledger.actors.retention import (
    PayloadRemover,
    blobs_named_by_run,
    blobs_of_other_runs,
    blobs_of_round,
)
from ledger.chain.contract.event_log import EventLog
from ledger.chain.finality import final_block
from ledger.io.home import Home, naming, read_text
from ledger.io.user_code import require_source
from ledger.protocol.encoding import to_canonical
from ledger.protocol.errors import BlobMissingError, ConfigurationError
from ledger.protocol.types import NO_DIGEST, Address
from ledger.storage.blobs import LocationKind, parse_locations
from ledger.storage.mailbox import remove_mail

MAX_TOKENS_BYTES = 65_536

LogRequests = Annotated[
    bool,
    "Write a line of JSON for each request to standard error, without queries and tokens.",
    Option("--log-requests", envvar="CMFL_API_LOG_REQUESTS"),
]

AllowedHosts = Annotated[
    list[str] | None,
    "Name allowed in the Host header, such as a reverse proxy's; may be repeated. Addresses, "
    "localhost and the name of --host are always allowed.",
    Option("--allowed-host", metavar="NAME", envvar="CMFL_API_ALLOWED_HOSTS"),
]


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """Access to a service, the mailbox that it watches, and its audits on request."""

    tokens_file: Annotated[
        Path | None,
        "File of bearer tokens, one per line. Every request then needs a token. Without the "
        "option, anyone may read, and only this machine may start verifications.",
        Option(envvar="CMFL_API_TOKENS_FILE"),
    ] = None
    reading_is_open: Annotated[
        bool,
        "Require a token only for starting a verification.",
        Option("--open-reading", envvar="CMFL_API_OPEN_READING"),
    ] = False
    allowed_origins: Annotated[
        list[str] | None,
        "Origin whose pages may read the responses, such as https://audit.example; may be "
        "repeated. The service's own pages always may.",
        Option("--origin", envvar="CMFL_API_ORIGINS"),
    ] = None
    root_path: Annotated[
        str,
        "Path prefix on a reverse proxy, such as /ledger. The proxy must remove it from requests.",
        Option(metavar="PATH", envvar="CMFL_API_ROOT_PATH"),
    ] = ""
    allowed_hosts: AllowedHosts = None
    requests_per_minute: Annotated[
        int | None,
        "Largest number of requests of one address. Default: no limit.",
        Option(min=1, max=1_000_000, envvar="CMFL_API_REQUESTS_PER_MINUTE"),
    ] = None
    trusted_proxies: Annotated[
        list[str] | None,
        "Address or network of a proxy whose X-Forwarded-For is trusted; may be repeated. "
        "The header is ignored from other senders.",
        Option("--trusted-proxy", envvar="CMFL_API_TRUSTED_PROXIES"),
    ] = None
    logs_requests: LogRequests = False
    mailbox: Annotated[
        str | None,
        "Mailbox of the running federations, the same location as for their workers. With "
        "it, the dashboard shows late clients.",
        Option(envvar="CMFL_API_MAILBOX"),
    ] = None
    verifications: Annotated[
        bool,
        "Run audits on request.",
        Option("--verifications/--no-verifications", envvar="CMFL_API_VERIFICATIONS"),
    ] = True
    verification_memory: Annotated[
        int,
        "Memory limit of one audit, in MiB.",
        Option(min=256, max=2**30, envvar="CMFL_API_VERIFICATION_MEMORY"),
    ] = 4_096
    verification_seconds: Annotated[
        int,
        "Time limit of one audit in seconds, both elapsed and processor time.",
        Option(min=1, max=10**7, envvar="CMFL_API_VERIFICATION_SECONDS"),
    ] = 3_600
    rules: Annotated[
        list[str] | None,
        "Your copy of a file with a run's own distance; may be repeated. Audits on request "
        "execute it if its sha256 is in the run document.",
        Option(metavar="FILE", envvar="CMFL_API_RULES"),
    ] = None

    def settings(self, **of_home: Any) -> Settings:
        from pydantic import ValidationError

        given = {name: value for name, value in asdict(self).items() if value is not None}
        file = given.pop("tokens_file", None)
        if self.reading_is_open and file is None:
            raise ConfigurationError("--open-reading has no effect without --tokens-file")
        if self.mailbox is not None:
            parse_locations("--mailbox", self.mailbox)
        for source in self.rules or ():
            require_source(source)
        given["tokens"] = () if file is None else _read_tokens(file)
        given["root_path"] = self.root_path.rstrip("/")
        given["verification_memory_bytes"] = given.pop("verification_memory") * MEBIBYTE
        try:
            return Settings(**of_home, **given)
        except ValidationError as error:
            first: Any = error.errors(include_input=False)[0]
            name = str(first["loc"][0]) if first["loc"] else "rpc_url"
            option = _OPTIONS.get(name, f"--{name.replace('_', '-')}")
            raise ConfigurationError(f"{option}: {first['msg']}") from error


_OPTIONS = {
    "tokens": "--tokens-file",
    "allowed_origins": "--origin",
    "allowed_hosts": "--allowed-host",
    "trusted_proxies": "--trusted-proxy",
}
"""The options behind settings of other names."""


def _read_tokens(path: Path) -> tuple[str, ...]:
    """Return the tokens in a file; no error shows one of them."""
    with naming("--tokens-file", ConfigurationError):
        lines = read_text(path, MAX_TOKENS_BYTES).split("\n")
    tokens = {number: line.strip() for number, line in enumerate(lines, 1) if line.strip()}
    for number, token in tokens.items():
        if not (16 <= len(token) <= 500 and token.isascii() and token.isprintable()):
            raise ConfigurationError(
                f"--tokens-file {path}: line {number} must be a token of 16 to 500 printable "
                "ASCII characters"
            )
    if not tokens:
        raise ConfigurationError(f"--tokens-file {path}: contains no token")
    return tuple(tokens.values())


def serve(
    home: options.HomeFolder = HOME,
    host: Annotated[str, "Address to listen on."] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="Port to listen on.")] = 8000,
    *,
    node: options.NodeOptions,
    service: ServiceOptions,
) -> None:
    """Serve the round history over REST, with a dashboard."""
    from api.app import serve as serve_app

    target, rpc_url, chain_id = node.chain_of(home), node.rpc_url, node.chain_id
    if rpc_url is not None:
        target.node_chain_id()
    elif chain_id is not None:
        with target.reader():  # it checks the id of the home's own chain
            chain_id = None
    settings = service.settings(home=home, rpc_url=rpc_url, chain_id=chain_id)
    with until_interrupted():
        serve_app(
            *(settings, host, port),
            lambda address: print_line(f"serving {home} at {address}/ until Ctrl-C"),
        )


blobs_app = Commands()


@dataclass(frozen=True, slots=True)
class RunOptions(options.ContractOptions):
    """A contract, which --contract names as well as --address."""

    address: Annotated[
        str | None,
        "Address of the contract, if there is no manifest.",
        Option("--contract", "--address", callback=options.contract_address),
    ] = None


@dataclass(frozen=True, slots=True)
class RunBlobsOptions(RunOptions):
    """A contract, and where its blobs are."""

    blobs: options.BlobsAt = None


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """The URLs and bounds of a store."""

    public_urls: Annotated[
        list[str] | None,
        "URL of this store for clients, such as a proxy's; may be repeated. Default: the "
        "listening address.",
        Option("--public-url"),
    ] = None
    keep_rounds: Annotated[
        int | None,
        "Number of newest rounds whose payloads and mail are kept. Attestations always stay. "
        "Default: all rounds.",
        Option(min=1, max=2**31 - 1),
    ] = None
    max_blob_bytes: Annotated[int, Option(min=1, max=2**40, help="Size limit of one blob.")] = (
        256 * MEBIBYTE
    )
    quota_bytes: Annotated[
        int, Option(min=1, max=2**50, help="Limit of one client's new blobs in a round, bytes.")
    ] = 1024 * MEBIBYTE
    quota_blobs: Annotated[
        int, Option(min=1, max=10**6, help="Limit of one client's new blobs in a round.")
    ] = 1_000
    quota_mail_bytes: Annotated[
        int,
        Option(min=1, max=2**40, help="Limit of one client's new envelopes in a round, bytes."),
    ] = 32 * MEBIBYTE
    quota_envelopes: Annotated[
        int, Option(min=1, max=10**6, help="Limit of one client's new envelopes in a round.")
    ] = 2_000
    auditors: Annotated[
        list[str] | None,
        "Address that may upload attestations of any ended round, as clients may; may be repeated.",
        Option("--auditor", metavar="ADDRESS"),
    ] = None
    logs_requests: LogRequests = False

    def settings(self, folder: Path) -> StoreSettings:
        auditors = frozenset(Address(to_canonical(each)) for each in self.auditors or ())
        if len(auditors) > MAX_AUDITORS:
            raise ConfigurationError(f"--auditor: {len(auditors)}; must be at most {MAX_AUDITORS}")
        given = {name: value for name, value in asdict(self).items() if value is not None}
        return StoreSettings(folder=folder, **given | {"auditors": auditors})


@blobs_app.command("list")
def list_blobs(
    source: RunBlobsOptions,
    round_number: Annotated[int, Option("--round", min=1, help="Number of the round.")],
    json: AsJson = False,
) -> None:
    """List the blobs that decided rounds name, and mark the missing ones.

    To remove the payloads of earlier rounds, use cmfl blobs prune. The other blobs are the record.
    """
    target = source.target()
    published = target.published()
    with target.reader() as chain:
        named = blobs_of_round(target.complete_ledger(chain), published, round_number)
    if named is None:
        raise ConfigurationError(f"round {round_number} was not decided, so it has no blobs")
    rows = [
        {
            "use": str(blob.use),
            "client": blob.client,
            "sha256": blob.digest.hex(),
            "is_there": published.has(blob.digest),
        }
        for blob in named
    ]
    if json:
        print_json({"round": round_number, "blobs": rows})
    else:
        columns, cells = ("use", "client", "sha256", "there"), [list(row.values()) for row in rows]
        print_table(f"blobs of round {round_number}", columns, cells)


@blobs_app.command("prune")
def prune(
    source: RunBlobsOptions,
    keep_rounds: Annotated[
        int, Option(min=1, max=2**31 - 1, help="Number of newest rounds that are kept complete.")
    ],
    dry_run: Annotated[bool, "List the blobs to remove, and remove nothing."] = False,
    json: AsJson = False,
) -> None:
    """Remove payloads and mail of earlier rounds.

    Attestations, environments, records, vectors and models stay. An audit of a pruned round lists
    the missing blobs and ends incomplete (exit code 3).
    """
    from ledger.storage.opening import store_at

    target = source.target()
    store = target.blobs() if target.blobs_at is None else store_at(target.blobs_at)
    with target.reader() as chain:
        ledger = target.complete_ledger(chain)
        pinned = blobs_of_other_runs(Home(target.home), ledger.address, chain, store)
        final = EventLog().up_to(ledger, final_block(chain, None))
        # A reorganisation may need a payload again; so may the head, which is not final.
        removers = (PayloadRemover(one, store, keep_rounds, pinned) for one in (final, ledger))
        removable = sorted(frozenset.intersection(*(each.removable() for each in removers)))
        present = [digest for digest in removable if store.has(digest)]
        if not dry_run:
            for digest in present:
                store.remove(digest)
            # Mail is removed where it is on this machine alone.
            folder: Path | None = target.blobs().folder
            if target.blobs_at is not None:
                location, *others = parse_locations("blobs", target.blobs_at)
                is_folder = not others and location.kind is LocationKind.FOLDER
                folder = Path(location.text) if is_folder else None
            if folder is not None:
                remove_mail(folder, ledger.domain(), final.state().round - keep_rounds)
    payloads, gone = [digest.hex() for digest in present], len(removable) - len(present)
    verb = "would be removed" if dry_run else "removed"
    print_result(
        {"removed": not dry_run, "payloads": payloads, "gone_before": gone},
        [f"{len(present)} payloads {verb}; {gone} were gone already"],
        as_json=json,
    )


@blobs_app.command("copy")
def copy(
    source: RunBlobsOptions, to: Annotated[str, "Folder or URL of the other location."]
) -> None:
    """Copy all blobs of a run to another location, so that workers can start there.

    Each blob is compared with its name. The exit code is 3 if a blob of the run is missing.
    """
    from ledger.storage.opening import store_at

    target = source.target()
    published, copies = target.published(), store_at(to)
    with target.reader() as chain:
        # A round without incidents names them by zeros.
        named = sorted(blobs_named_by_run(target.complete_ledger(chain), published) - {NO_DIGEST})
    copied, missing = 0, 0
    for digest in named:
        try:
            copies.put(published.get(digest))
            copied += 1
        except BlobMissingError:
            missing += 0 if copies.has(digest) else 1
    copies.sync()
    print_line(f"{copied} blobs are there now; {missing} are missing")
    if missing:
        raise typer.Exit(INCOMPLETE)


@blobs_app.command("serve")
def serve_blobs(
    folder: Annotated[Path | None, "Folder of blobs and mail. Default: the home's."] = None,
    host: Annotated[str, "Address to listen on."] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="Port to listen on.")] = 8600,
    *,
    source: RunOptions,
    store: StoreOptions,
) -> None:
    """Serve blobs and mail to other machines: anyone reads, the contract's clients write.

    Each upload is signed by a registered client that is not banned. The signature covers this
    store's URL and a round, which must be the open one or an adjacent one. The store rejects
    uploads signed for another store. Clients and the accounts of --auditor may upload attestations
    of ended rounds. The server has no TLS: use a proxy on an open network.
    """
    from api.store.app import serve as serve_store

    target = source.target()
    own = target.blobs()
    served = own.folder if folder is None else folder
    if not served.is_dir() and not served.parent.is_dir():
        option = f"--home {source.home}" if folder is None else f"--folder {folder}"
        raise ConfigurationError(f"{option}: the parent folder of {served} is missing")
    with ExitStack() as stack:
        pinned = None
        is_homes = served.resolve() == own.folder.resolve()
        if is_homes and served.is_dir():
            # A process that is alone in a home removes unfinished files there.
            stack.enter_context(target.own_folder())
        chain = stack.enter_context(target.reader())
        stack.enter_context(until_interrupted())
        ledger = target.ledger(chain)
        if is_homes and store.keep_rounds is not None:
            pinned = partial(blobs_of_other_runs, Home(target.home), ledger.address, chain, own)
            pinned()
        keeps = f"keeps blobs and mail of {ledger.address} in {served}, until Ctrl-C"
        serve_store(
            *(store.settings(served), ledger, host, port),
            lambda url: print_line(f"{url} {keeps}"),
            pinned,
        )
