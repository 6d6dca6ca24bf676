"""`cmfl find`: where a digest stands, from the sha256 of a file to the round that names it.

A home tells it, or a service does; of what a service says, only the shape is checked here.

`--json` prints what the service answers, but for the block that it speaks of.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from cli.console import AsCsv, AsJson, complain, print_csv, print_json, print_line, print_table
from cli.history import open_deployment, pages_of
from cli.options import (
    DEFAULT_HOME,
    Address,
    Api,
    ApiTokenFile,
    ChainId,
    Cursor,
    HomeFolder,
    IndexAt,
    Limit,
    RpcUrl,
    RunName,
)
from cli.remote import RemoteService
from cli.target import Target
from ledger.history.source import SourceUnusableError
from ledger.io.home import Home, index_place
from ledger.protocol import digest_patterns

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from api.client.queries import Paging
    from api.schemas.words import Answer
    from ledger.history.chain_history import ChainHistory
    from ledger.history.facts.words import Facts
    from ledger.history.source import HistorySource
    from ledger.protocol.types import Digest

_DIGEST = re.compile(digest_patterns.EITHER_FORM_ANY_CASE)
_COLUMNS = ("kind", "round", "client")


def _digest(value: str) -> str:
    if not _DIGEST.fullmatch(value):
        raise typer.BadParameter("a digest is 64 hex digits, with or without 0x before them")
    return value


def find(
    digest: Annotated[
        str,
        typer.Argument(
            callback=_digest,
            metavar="DIGEST",
            help="64 hex digits: of a file as sha256sum prints it, a commitment, a seed, a root, a "
            "result, a head, a block or a transaction.",
        ),
    ],
    home: HomeFolder = DEFAULT_HOME,
    run: RunName = None,
    index: IndexAt = None,
    limit: Limit = 20,
    cursor: Cursor = None,
    address: Address = None,
    rpc_url: RpcUrl = None,
    chain_id: ChainId = None,
    api: Api = None,
    api_token_file: ApiTokenFile = None,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Say as what, in which round and for which client a digest stands in a run.

    A long run takes an index, which `cmfl index build` makes.
    """
    from ledger.protocol.types import Digest

    wanted = Digest(bytes.fromhex(digest.removeprefix("0x")))
    where = Target(
        home, run, address, rpc_url, chain_id, remote=RemoteService.of(api, api_token_file)
    )
    if where.remote is None:
        facts = _found_at_home(where, index, wanted, limit, cursor)
    else:
        facts = _found_afar(where, wanted, limit, cursor)
    if json:
        print_json(facts)
    elif csv:
        print_csv(_COLUMNS, facts["items"])
    elif facts["items"]:
        rows = [[one[column] for column in _COLUMNS] for one in facts["items"]]
        print_table(f"where {facts['digest'][:18]}… stands", _COLUMNS, rows)
        if facts["next_cursor"] is not None:
            print_line(f"More: --cursor {facts['next_cursor']}")
    else:
        print_line(f"{facts['digest']} stands nowhere in this run.")


def _found_afar(where: Target, wanted: Digest, limit: int, cursor: str | None) -> Facts:
    """Return what a service tells."""
    with open_deployment(where) as deployment:

        def read(paging: Paging) -> Answer:
            return deployment.digest(wanted, paging)

        return pages_of("items", read, limit, cursor)


def _found_at_home(
    where: Target, index: str | None, wanted: Digest, limit: int, cursor: str | None
) -> Facts:
    """Return what the index of a home tells, or else its chain."""
    from ledger.history.facts.digests import digest_facts

    at = index_place(Home(where.home), index)

    def tell(history: HistorySource) -> Facts:
        return digest_facts(history, wanted, limit, cursor)

    with where.reader() as chain:
        history = where.history(chain)
        is_there = isinstance(at, str) or index is not None or at.exists()
        facts = _indexed(history, at, tell) if is_there else None
        return tell(history) if facts is None else facts


def _indexed(
    history: ChainHistory, where: Path | str, tell: Callable[[HistorySource], Facts]
) -> Facts | None:
    """Return what the index tells; None where it stands elsewhere or cannot be read."""
    from ledger.index.service_index import ServiceIndex

    beside = ServiceIndex(where)
    try:
        with beside.history(history.ledger, history.blobs, history.ledger.chain.head()) as found:
            return None if found is None else tell(found)
    except SourceUnusableError as error:
        complain(f"the index is not used: {error}")
        return None
    finally:
        beside.close()
