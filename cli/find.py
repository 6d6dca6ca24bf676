"""`cmfl find`: where a digest stands, from the sha256 of a file to the round that names it.

`--json` prints what the service answers, but for the block that it speaks of.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from cli.console import AsCsv, AsJson, complain, print_csv, print_json, print_line, print_table
from cli.options import (
    DEFAULT_HOME,
    Address,
    ChainId,
    Cursor,
    HomeFolder,
    IndexAt,
    Limit,
    RpcUrl,
    RunName,
)
from cli.where import Where
from ledger.history.source import SourceUnusableError
from ledger.home import Home, index_place

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ledger.history.facts.words import Facts
    from ledger.history.recorded import RecordedHistory
    from ledger.history.source import HistorySource

_DIGEST = re.compile(r"(0x)?[0-9a-fA-F]{64}")
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
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Say as what, in which round and for which client a digest stands in a run.

    A long run takes an index, which `cmfl index build` makes.
    """
    from ledger.history.facts.digests import digest_facts
    from ledger.protocol.types import Digest

    wanted = Digest(bytes.fromhex(digest.removeprefix("0x")))
    where = Where(home, run, address, rpc_url, chain_id)
    at = index_place(Home(home), index)

    def tell(history: HistorySource) -> Facts:
        return digest_facts(history, wanted, limit, cursor)

    with where.reader() as chain:
        history = where.history(chain)
        is_there = isinstance(at, str) or index is not None or at.exists()
        facts = _indexed(history, at, tell) if is_there else None
        facts = tell(history) if facts is None else facts
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


def _indexed(
    history: RecordedHistory, where: Path | str, tell: Callable[[HistorySource], Facts]
) -> Facts | None:
    """Return what the index tells; None where it stands elsewhere or cannot be read."""
    from ledger.index.beside import IndexBeside

    beside = IndexBeside(where)
    try:
        with beside.history(history.ledger, history.blobs, history.ledger.chain.head()) as found:
            return None if found is None else tell(found)
    except SourceUnusableError as error:
        complain(f"the index is not used: {error}")
        return None
    finally:
        beside.close()
