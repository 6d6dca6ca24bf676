"""`cmfl find`: the places of a digest, from the sha256 of a file to the round that names it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from cmfl.access.history import open_deployment
from cmfl.commands.console import (
    AsCsv,
    AsJson,
    complain,
    print_csv,
    print_cursor,
    print_line,
    print_response,
    print_table,
)
from cmfl.commands.option_groups import expand_groups
from cmfl.commands.options import Cursor, IndexAt, Limit
from cmfl.commands.source_options import HistoryOptions
from ledger.history.source import SourceUnusableError
from ledger.io.home import Home, index_place
from ledger.protocol import digest_patterns

if TYPE_CHECKING:
    from pathlib import Path

    from cmfl.access.target import Target
    from ledger.history.chain_history import ChainHistory
    from ledger.history.responses.digests import DigestPage
    from ledger.protocol.types import Digest

_DIGEST = re.compile(digest_patterns.EITHER_FORM_ANY_CASE)
_COLUMNS = ("kind", "round", "client")


def _digest(value: str) -> str:
    if not _DIGEST.fullmatch(value):
        raise typer.BadParameter("a digest is 64 hex digits, with or without 0x before them")
    return value


@expand_groups
def find(
    source: HistoryOptions,
    digest: Annotated[
        str,
        typer.Argument(
            callback=_digest,
            metavar="DIGEST",
            help="64 hex digits: of a file as sha256sum prints it, a commitment, a seed, a root, a "
            "result, a head, a block or a transaction.",
        ),
    ],
    index: IndexAt = None,
    limit: Limit = 20,
    cursor: Cursor = None,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Find the places of a digest in a run: kind, round and client.

    A long run needs an index, which `cmfl index build` makes.
    """
    from ledger.protocol.types import Digest

    sought = Digest(bytes.fromhex(digest.removeprefix("0x")))
    target = source.target()
    if target.remote is None:
        page = _find_at_home(target, index, sought, limit, cursor)
    else:
        with open_deployment(target) as deployment:
            page = deployment.digest(sought, limit, cursor)
    if json:
        print_response(page)
    elif csv:
        print_csv(_COLUMNS, page["items"])
    elif page["items"]:
        rows = [(item["kind"], item["round"], item["client"]) for item in page["items"]]
        print_table(f"places of {page['digest'][:18]}…", _COLUMNS, rows)
        print_cursor(page["next_cursor"])
    else:
        print_line(f"{page['digest']} is not in this run.")


def _find_at_home(
    target: Target, index: str | None, digest: Digest, limit: int, cursor: str | None
) -> DigestPage:
    """Return the places of a digest from the index of a home, or else from its chain."""
    from ledger.history.serialise.serialise_digests import digest_page

    location = index_place(Home(target.home), index)
    with target.reader() as chain:
        history = target.history(chain)
        if isinstance(location, str) or index is not None or location.exists():
            page = _from_index(history, location, digest, limit, cursor)
            if page is not None:
                return page
        return digest_page(history, digest, limit, cursor)


def _from_index(
    history: ChainHistory, location: Path | str, digest: Digest, limit: int, cursor: str | None
) -> DigestPage | None:
    """Return the places from the index; None where it is at another block or cannot be read."""
    from ledger.history.serialise.serialise_digests import digest_page
    from ledger.index.service_index import ServiceIndex

    index = ServiceIndex(location)
    head = history.ledger.chain.head()
    try:
        with index.history(history.ledger, history.blobs, head) as indexed:
            return None if indexed is None else digest_page(indexed, digest, limit, cursor)
    except SourceUnusableError as error:
        complain(f"the index is not used: {error}")
        return None
    finally:
        index.close()
