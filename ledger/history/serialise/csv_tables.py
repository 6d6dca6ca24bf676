"""Lists as tables: flat rows with fixed columns, for CSV, JSON lines and Parquet.

Several values in one cell are separated by blanks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ledger.history.responses.clients import (
        ClientEntry,
        ClientRound,
        ClientRoundsPage,
        ClientsPage,
    )
    from ledger.history.responses.rounds import EndBlock, RoundNumbers, RoundsPage, RoundSummary

Cell: TypeAlias = int | float | str | bool | None
Row: TypeAlias = dict[str, Cell]

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class CsvTable(Generic[P]):
    """One list as a table.

    Attributes:
        name: of the list.
        columns: each with the type of its values.
        rows: returns the rows of a page, each with exactly the columns.
    """

    name: str
    columns: Mapping[str, type]
    rows: Callable[[P], list[Row]]


def _round_row(entry: RoundSummary | RoundNumbers) -> Row:
    views = entry["views"] or (None, None)
    return {
        "round": entry["round"],
        "status": entry["status"],
        "ranked": entry["ranked"],
        "accepted": entry["accepted"],
        "view_aggregation": views[0],
        "view_election": views[1],
        "model": entry["model"],
        **_end(entry["ended"]),
    }


def _end(ended: EndBlock | None) -> Row:
    return {
        "ended_block": None if ended is None else ended["number"],
        "ended_transaction": None if ended is None else ended["transaction"],
        "ended_time": None if ended is None else ended["time"],
        "ended_at": None if ended is None else ended["at"],
    }


def _client_row(entry: ClientEntry) -> Row:
    return {
        "client": entry["client"],
        "address": entry["address"],
        "samples": entry["samples"],
        "sampled": entry["sampled"],
        "ranked": entry["ranked"],
        "accepted": entry["accepted"],
        "dropped_out": entry["dropped_out"],
        "served": entry["served"],
        "scored": entry["scored"],
        "refused": entry["refused"],
        "voted": entry["voted"],
        "primary": entry["primary"],
        "incidents": entry["incidents"],
        "banned_in_round": entry["banned_in_round"],
    }


def _client_round_row(entry: ClientRound) -> Row:
    return {
        "round": entry["round"],
        "status": entry["status"],
        "role": entry["role"],
        "place": entry["place"],
        "empty_seat": entry["empty_seat"],
        "committed": entry["committed"],
        "outcome": entry["outcome"],
        "rank": entry["rank"],
        "distance": entry["distance"],
        "distance_bits": entry["distance_bits"],
        "reason": entry["reason"] and entry["reason"]["name"],
        "scores": entry["scores"],
        "refused": " ".join(refusal["reason"]["name"] for refusal in entry["refused"]),
        "voted": " ".join(entry["voted"]),
        "primary_of": " ".join(entry["primary_of"]),
        "incidents": " ".join(incident["kind"]["name"] for incident in entry["incidents"]),
        "banned": entry["banned"],
        "commitment": entry["commitment"],
        "payload": entry["payload"],
        **_end(entry["ended"]),
    }


_END = {"ended_block": int, "ended_transaction": str, "ended_time": int, "ended_at": str}

ROUNDS: CsvTable[RoundsPage] = CsvTable(
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
    lambda page: [_round_row(entry) for entry in page["rounds"]],
)
CLIENTS: CsvTable[ClientsPage] = CsvTable(
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
    lambda page: [_client_row(entry) for entry in page["clients"]],
)
CLIENT_ROUNDS: CsvTable[ClientRoundsPage] = CsvTable(
    "client-rounds",
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
    lambda page: [_client_round_row(entry) for entry in page["rounds"]],
)
