"""`cmfl find`: the places of a digest, from the sha256 of a file to the round that names it."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from cmfl.access.history import open_history
from cmfl.commands.console import (
    AsCsv,
    AsJson,
    print_csv,
    print_cursor,
    print_line,
    print_response,
    print_table,
)
from cmfl.commands.option_groups import expand_groups
from cmfl.commands.options import Cursor, Limit
from cmfl.commands.source_options import HistoryOptions
from ledger.protocol import digest_patterns

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
    limit: Limit = 20,
    cursor: Cursor = None,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Find the places of a digest in a run: kind, round and client."""
    from ledger.protocol.types import Digest

    sought = Digest(bytes.fromhex(digest.removeprefix("0x")))
    with open_history(source.target()) as history:
        page = history.digest(sought, limit, cursor)
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
