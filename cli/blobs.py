"""`cmfl blobs`: what a round has published, what of it is old, and a store for several machines."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.chain import until_interrupted
from cli.console import AsJson, print_json, print_line, print_table
from cli.exit_codes import INCOMPLETE
from cli.options import (
    DEFAULT_HOME,
    BlobsAt,
    ChainId,
    HomeFolder,
    RpcUrl,
    RunName,
    contract_address,
)
from cli.service_options import MEBIBYTE, LogRequests
from cli.target import Target
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from ledger.chain.contract.committee_ledger import CommitteeLedger
    from ledger.chain.ports import ChainReader
    from ledger.protocol.types import Digest
    from ledger.storage.blobs import BlobStore

app = typer.Typer(
    help="What was published: of one round, of old ones, and for others.", no_args_is_help=True
)

Contract = Annotated[
    str | None,
    typer.Option(
        "--contract",
        "--address",
        help="The contract, where there is no manifest.",
        callback=contract_address,
    ),
]
KeepRounds = Annotated[
    int, typer.Option("--keep-rounds", min=1, max=2**31 - 1, help="Newest rounds that stay whole.")
]


@app.command("list")
def list_blobs(
    round_number: Annotated[int, typer.Option("--round", min=1, help="Which round.")],
    home: HomeFolder = DEFAULT_HOME,
    run: RunName = None,
    contract: Contract = None,
    rpc_url: RpcUrl = None,
    chain_id: ChainId = None,
    blobs_at: BlobsAt = None,
    json: AsJson = False,
) -> None:
    """List the blobs that a decided round names, and whether they are there.

    Payloads are what cmfl blobs prune removes of old rounds; the rest is the record.
    """
    from ledger.actors.round_blobs import blobs_of_round

    where = Target(home, run, contract, rpc_url, chain_id, blobs_at)
    published = where.published()
    with where.reader() as chain:
        named = blobs_of_round(where.complete_ledger(chain), published, round_number)
    if named is None:
        raise ConfigurationError(f"round {round_number} has no decision, and so names no blobs")
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
        return
    cells = [[*list(row.values())[:3], "yes" if row["is_there"] else "no"] for row in rows]
    print_table(f"blobs of round {round_number}", ("use", "client", "sha256", "there"), cells)


@app.command("prune")
def prune(
    keep_rounds: KeepRounds,
    home: HomeFolder = DEFAULT_HOME,
    run: RunName = None,
    contract: Contract = None,
    rpc_url: RpcUrl = None,
    chain_id: ChainId = None,
    blobs_at: BlobsAt = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would go, and remove nothing.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Remove the payloads and the mail of old rounds; records, vectors and models stay.

    An audit of such a round says what is not there, and ends incomplete (exit code 3).
    """
    from ledger.actors.payload_removal import removable_payloads
    from ledger.chain.contract.committee_ledger import FinalLedger

    where = Target(home, run, contract, rpc_url, chain_id, blobs_at)
    store = _store(where)
    with where.reader() as chain:
        ledger = where.complete_ledger(chain)
        pinned = _named_by_others(where, chain, ledger.address, store)
        final = FinalLedger.of(ledger)
        # What a reorganisation may need again stays, and so does what is needed at the head.
        gone = sorted(
            removable_payloads(final, store, keep_rounds, pinned)
            & removable_payloads(ledger, store, keep_rounds, pinned)
        )
        there = [digest for digest in gone if store.has(digest)]
        if not dry_run:
            for digest in there:
                store.remove(digest)
            _remove_mail(where, ledger, final.state().round - keep_rounds)
    told: dict[str, Any] = {
        "removed": not dry_run,
        "payloads": [digest.hex() for digest in there],
        "gone_before": len(gone) - len(there),
    }
    if json:
        print_json(told)
        return
    what = "would go" if dry_run else "removed"
    print_line(f"{len(there)} payloads {what}; {len(gone) - len(there)} were gone already")


@app.command("copy")
def copy(
    to: Annotated[str, typer.Option("--to", help="Folder or URL of the other place.")],
    home: HomeFolder = DEFAULT_HOME,
    run: RunName = None,
    contract: Contract = None,
    rpc_url: RpcUrl = None,
    chain_id: ChainId = None,
    blobs_at: BlobsAt = None,
) -> None:
    """Copy all that a run has published to another place, so that workers begin there.

    Each blob is compared with its name. Exit code 3: something that the run names is missing.
    """
    from ledger.actors.payload_removal import blobs_named_by_run
    from ledger.protocol.errors import BlobMissingError
    from ledger.protocol.types import NO_DIGEST
    from ledger.storage.opening import store_at

    where = Target(home, run, contract, rpc_url, chain_id, blobs_at)
    source, target = where.published(), store_at(to)
    with where.reader() as chain:
        # A round without incidents names none by zeros.
        named = sorted(blobs_named_by_run(where.complete_ledger(chain), source) - {NO_DIGEST})
    copied, missing = 0, 0
    for digest in named:
        try:
            target.put(source.get(digest))
            copied += 1
        except BlobMissingError:
            missing += 0 if target.has(digest) else 1
    target.sync()
    print_line(f"{copied} blobs are there now; {missing} are missing")
    if missing:
        raise typer.Exit(INCOMPLETE)


@app.command("serve")
def serve(
    folder: Annotated[
        Path | None, typer.Option("--folder", help="Folder of blobs and mail; else the home's.")
    ] = None,
    home: HomeFolder = DEFAULT_HOME,
    run: RunName = None,
    contract: Contract = None,
    rpc_url: RpcUrl = None,
    chain_id: ChainId = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on.")] = 8600,
    public_url: Annotated[
        list[str] | None,
        typer.Option(
            "--public-url",
            help="URL that clients are given for this store, a proxy's for instance; again for "
            "another. If not given, the address that it listens on.",
        ),
    ] = None,
    keep_rounds: Annotated[
        int | None,
        typer.Option(
            "--keep-rounds",
            min=1,
            max=2**31 - 1,
            help="Newest rounds whose payloads and mail stay; all if not given.",
        ),
    ] = None,
    max_blob_bytes: Annotated[
        int, typer.Option("--max-blob-bytes", min=1, max=2**40, help="Largest blob that is taken.")
    ] = 256 * MEBIBYTE,
    quota_bytes: Annotated[
        int,
        typer.Option(
            "--quota-bytes", min=1, max=2**50, help="New blobs of one client in one round, bytes."
        ),
    ] = 1024 * MEBIBYTE,
    quota_blobs: Annotated[
        int,
        typer.Option(
            "--quota-blobs", min=1, max=10**6, help="New blobs of one client in one round."
        ),
    ] = 1_000,
    quota_mail_bytes: Annotated[
        int,
        typer.Option(
            "--quota-mail-bytes",
            min=1,
            max=2**40,
            help="New envelopes that one client sends in one round, bytes.",
        ),
    ] = 32 * MEBIBYTE,
    quota_envelopes: Annotated[
        int,
        typer.Option(
            "--quota-envelopes",
            min=1,
            max=10**6,
            help="New envelopes that one client sends in one round.",
        ),
    ] = 2_000,
    log_requests: LogRequests = False,
) -> None:
    """Serve blobs and mail between machines: anybody reads, the contract's clients write.

    Who writes shows a signature of a registered client that is not banned, for a round that is
    open or next to the open one, and for this store's URL: what was signed for another place is
    refused. There is no TLS: on an open network a proxy in front has it.
    """
    from api.store.serve import serve as serve_store
    from api.store.settings import StoreSettings

    where = Target(home, run, contract, rpc_url, chain_id)
    place = where.blobs().folder if folder is None else folder
    if not place.is_dir() and not place.parent.is_dir():
        given = f"--home {home}" if folder is None else f"--folder {folder}"
        raise ConfigurationError(f"{given}: there is no folder in which {place} could be made")
    settings = StoreSettings(
        folder=place,
        public_urls=tuple(public_url or ()),
        max_blob_bytes=max_blob_bytes,
        quota_bytes=quota_bytes,
        quota_blobs=quota_blobs,
        quota_mail_bytes=quota_mail_bytes,
        quota_envelopes=quota_envelopes,
        keep_rounds=keep_rounds,
        logs_requests=log_requests,
    )
    with ExitStack() as stack:
        others = None
        is_homes = place.resolve() == where.blobs().folder.resolve()
        if is_homes and place.is_dir():
            # Whoever comes to a home alone removes what is unfinished there.
            stack.enter_context(where.own_folder())
        chain = stack.enter_context(where.reader())
        stack.enter_context(until_interrupted())
        ledger = where.ledger(chain)
        if is_homes and keep_rounds is not None:
            others = partial(_named_by_others, where, chain, ledger.address, where.blobs())
            others()
        serve_store(
            settings,
            ledger,
            host,
            port,
            lambda url: print_line(
                f"{url} keeps blobs and mail of {ledger.address} in {place}, until Ctrl-C"
            ),
            others,
        )


def _remove_mail(where: Target, ledger: CommitteeLedger, before_round: int) -> None:
    """Remove the mail of old rounds where it lies beside the blobs in a folder of this machine."""
    from ledger.storage.locations import LocationKind, parse_locations
    from ledger.storage.mailbox import remove_mail

    folder = where.blobs().folder
    if where.blobs_at is not None:
        location, *others = parse_locations("blobs", where.blobs_at)
        if others or location.kind is not LocationKind.FOLDER:
            return
        folder = Path(location.text)
    remove_mail(folder, ledger.domain(), before_round)


def _store(where: Target) -> BlobStore:
    from ledger.storage.opening import store_at

    return where.blobs() if where.blobs_at is None else store_at(where.blobs_at)


def _named_by_others(
    where: Target, chain: ChainReader, address: str, blobs: BlobStore
) -> set[Digest]:
    """Return the blobs that the other runs of a home name.

    Raises:
        ConfigurationError: one of them is on another chain, so that nobody can tell.
    """
    from ledger.actors.payload_removal import blobs_named_by_run
    from ledger.chain.contract.complete_log import complete_ledger
    from ledger.chain.contract.deployment import connect
    from ledger.chain.contract.manifest import read_run_manifest
    from ledger.io.home import Home

    named: set[Digest] = set()
    for paths in Home(where.home).deployed():
        manifest = read_run_manifest(paths)
        if manifest.address == address:
            continue
        if manifest.genesis_hash != f"0x{chain.genesis_hash.hex()}":
            raise ConfigurationError(
                f"run {paths.name!r} of {where.home} is on another chain, and old payloads may be "
                f"its own too"
            )
        named |= blobs_named_by_run(complete_ledger(connect(chain, manifest)), blobs)
    return named
