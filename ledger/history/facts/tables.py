"""The lists as tables: flat rows with fixed columns, for CSV, JSON lines and Parquet.

A value is a whole number, a number, a text or a truth value, or nothing; several values in one cell
are separated by blanks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ledger.history.facts.words import Facts

Cell = int | float | str | bool | None


@dataclass(frozen=True, slots=True)
class Table:
    """One list as a table.

    Attributes:
        name: of the list.
        entries: the key under which a page has its entries.
        columns: each with the type of its values.
        row: makes a flat row of an entry.
    """

    name: str
    entries: str
    columns: Mapping[str, type]
    row: Callable[[Facts], dict[str, Cell]]

    def rows(self, page: Facts) -> list[dict[str, Cell]]:
        """Return the rows of a page, each with exactly the columns."""
        return [self.row(entry) for entry in page[self.entries]]


def _round_row(entry: Facts) -> dict[str, Cell]:
    views = entry["views"] or (None, None)
    return {
        **{name: entry[name] for name in ("round", "status", "ranked", "accepted")},
        "view_aggregation": views[0],
        "view_election": views[1],
        "model": entry["model"],
        **_end(entry),
    }


def _end(entry: Facts) -> dict[str, Cell]:
    ended = entry["ended"] or {}
    return {
        "ended_block": ended.get("number"),
        "ended_transaction": ended.get("transaction"),
        "ended_time": ended.get("time"),
        "ended_at": ended.get("at"),
    }


def _client_row(entry: Facts) -> dict[str, Cell]:
    return {name: entry[name] for name in CLIENTS.columns}


def _client_round_row(entry: Facts) -> dict[str, Cell]:
    same = ("round", "status", "role", "place", "empty_seat", "committed", "outcome", "rank")
    return {
        **{name: entry[name] for name in (*same, "distance", "distance_bits")},
        "reason": entry["reason"] and entry["reason"]["name"],
        "scores": entry["scores"],
        "refused": " ".join(one["reason"]["name"] for one in entry["refused"]),
        "voted": " ".join(entry["voted"]),
        "primary_of": " ".join(entry["primary_of"]),
        "incidents": " ".join(one["kind"]["name"] for one in entry["incidents"]),
        **{name: entry[name] for name in ("banned", "commitment", "payload")},
        **_end(entry),
    }


_END = {"ended_block": int, "ended_transaction": str, "ended_time": int, "ended_at": str}

ROUNDS = Table(
    "rounds",
    "rounds",
    {
        "round": int,
        "status": str,
        "ranked": int,
        "accepted": int,
        "view_aggregation": int,
        "view_election": int,
        "model": str,
        **_END,
    },
    _round_row,
)
CLIENTS = Table(
    "clients",
    "clients",
    {
        "client": int,
        "address": str,
        "samples": str,
        "sampled": int,
        "ranked": int,
        "accepted": int,
        "dropped_out": int,
        "served": int,
        "scored": int,
        "refused": int,
        "voted": int,
        "primary": int,
        "incidents": int,
        "banned_in_round": int,
    },
    _client_row,
)
CLIENT_ROUNDS = Table(
    "client-rounds",
    "rounds",
    {
        "round": int,
        "status": str,
        "role": str,
        "place": int,
        "empty_seat": bool,
        "committed": bool,
        "outcome": str,
        "rank": int,
        "distance": float,
        "distance_bits": str,
        "reason": str,
        "scores": str,
        "refused": str,
        "voted": str,
        "primary_of": str,
        "incidents": str,
        "banned": bool,
        "commitment": str,
        "payload": str,
        **_END,
    },
    _client_round_row,
)
