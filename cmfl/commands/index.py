"""`cmfl index`: the index that the service's lists and look-ups read."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cmfl.commands.console import AsJson, print_json, print_line, print_table, shortened
from cmfl.commands.interrupts import until_interrupted
from cmfl.commands.option_groups import expand_groups
from cmfl.commands.options import DEFAULT_HOME, HomeFolder, IndexAt
from cmfl.commands.source_options import ContractOptions, NodeOptions
from ledger.io.home import Home, index_place

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cmfl.access.target import Target
    from ledger.chain.contract.committee_ledger import CommitteeLedger
    from ledger.chain.ports import ChainReader
    from ledger.index.database import Database
    from ledger.index.index import Coverage
    from ledger.index.indexer import IndexingProgress
    from ledger.protocol.errors import CmflError

app = typer.Typer(
    help="The index that lists and look-ups read: built from chain and blobs, never trusted.",
    no_args_is_help=True,
)

_COLUMNS = ("address", "block", "behind", "rounds", "ended", "compared", "waiting")


@app.command("build")
@expand_groups
def build(
    source: ContractOptions,
    index: IndexAt = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Keep up with the chain, until Ctrl-C.")
    ] = False,
) -> None:
    """Build the index, or go on with it where it ended.

    All runs of the home are indexed if none is named.
    """
    target = source.target()
    with target.reader() as chain:
        _build(target, chain, index_place(Home(source.home), index), follow=follow)


@app.command("rebuild")
@expand_groups
def rebuild(source: ContractOptions, index: IndexAt = None) -> None:
    """Remove the index and build it anew: one of another schema, or one that is damaged.

    All runs of the home are indexed if none is named.
    """
    from ledger.index.schema import drop_index

    target, home = source.target(), Home(source.home)
    where = index_place(home, index)
    with target.reader() as chain:
        _ledgers(target, chain)  # nothing is removed where nothing can be built
        drop_index(where, is_own=where == home.index)
        _build(target, chain, where, follow=False)


@app.command("status")
@expand_groups
def status(
    home: HomeFolder = DEFAULT_HOME,
    index: IndexAt = None,
    *,
    node: NodeOptions,
    json: AsJson = False,
) -> None:
    """Show how far each deployment is indexed, and whether nothing is missing up to there."""
    from ledger.index.index import Index

    opened = Index(index_place(Home(home), index))
    with opened.reading() as reading:
        covered = reading.coverage()
    opened.close()
    with node.chain_of(home).reader() as chain:
        genesis, head = chain.genesis_hash, chain.head().number
    rows = [_row(each, head if each.path.chain.genesis == genesis else None) for each in covered]
    if json:
        print_json({"deployments": rows})
        return
    cells = [
        [_compared(row[name]) if name == "compared" else shortened(row[name]) for name in _COLUMNS]
        for row in rows
    ]
    print_table("index", _COLUMNS, cells)


@app.command("drop")
def drop(home: HomeFolder = DEFAULT_HOME, index: IndexAt = None) -> None:
    """Remove the index; chain and blobs have all that it held."""
    from ledger.index.schema import drop_index

    where = index_place(Home(home), index)
    is_there = drop_index(where, is_own=where == Home(home).index)
    print_line("The index is removed." if is_there else "There was no index.")


def _build(target: Target, chain: ChainReader, where: Path | str, *, follow: bool) -> None:
    from ledger.index.indexer import Indexer
    from ledger.index.updater import catch_up

    with _writable(where) as database:
        blobs = target.published()
        indexers = [Indexer(database, ledger, blobs) for ledger in _ledgers(target, chain)]
        for indexer in indexers:
            print_line(_progress_line(indexer.ledger.address, catch_up(indexer)))
        if follow:
            _follow(indexers)


@contextmanager
def _writable(where: Path | str) -> Iterator[Database]:
    from ledger.index.database import Database
    from ledger.index.schema import SCHEMA_NUMBER, make_schema

    database = Database(where, read_only=False)
    try:
        earlier = make_schema(database)
        if earlier is not None:
            print_line(f"The index had schema {earlier}: it is built anew as {SCHEMA_NUMBER}.")
        yield database
    finally:
        database.close()


def _ledgers(where: Target, chain: ChainReader) -> list[CommitteeLedger]:
    """Return the contracts to index: the named one, or those of all runs of the home."""
    from ledger.chain.contract.deployment import connect
    from ledger.chain.contract.manifest import read_run_manifest

    if where.address is not None or where.run is not None:
        return [where.ledger(chain)]
    deployed = Home(where.home).deployed()
    if not deployed:
        return [where.ledger(chain)]  # it explains that there is none
    return [connect(chain, read_run_manifest(paths)) for paths in deployed]


def _follow(indexers: list[Any]) -> None:
    from cmfl.commands.console import complain
    from ledger.index.updater import follow

    def report(error: CmflError) -> None:
        complain(str(error))

    print_line("Follows the chain until Ctrl-C.")
    with until_interrupted():
        follow(lambda: indexers, threading.Event(), on_error=report)


def _row(coverage: Coverage, head: int | None) -> dict[str, Any]:
    from ledger.index.responses import index_coverage
    from ledger.protocol.encoding import to_hex

    row = {
        "chain": coverage.path.chain.name,
        "address": coverage.path.address,
        **index_coverage(coverage, coverage.block if head is None else head),
        "final": coverage.final,
        "head": to_hex(coverage.head),
        "rewinds": coverage.rewinds,
    }
    return row if head is not None else row | {"behind": None}


def _compared(code: dict[str, Any]) -> str:
    return {
        "not_yet": "not yet compared",
        "equal": "whole: the contract agrees",
        "different": "NOT whole: the contract differs",
    }[code["name"]]


def _progress_line(address: str, progress: IndexingProgress) -> str:
    return f"{address}: {progress.rounds} rounds up to block {progress.block}"
