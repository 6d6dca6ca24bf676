"""Lists as tables: flat rows with fixed, typed columns, for CSV and Parquet.

The service and `cmfl export table` write the same columns. Several values in one cell are separated
by blanks.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Generic, TypeAlias, TypeVar, cast

from ledger.history.responses.clients import ClientEntry, ClientRound, ClientRoundsPage, ClientsPage
from ledger.history.responses.evidence import EvidenceEntry, EvidencePage
from ledger.history.responses.rounds import (
    CommitteeMember,
    Duties,
    EndBlock,
    FullRound,
    RoundNumbers,
    RoundsPage,
    RoundSummary,
    UpdateEntry,
)

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


_FORMULA = ("=", "+", "-", "@")
"""How text begins that a spreadsheet takes for a formula; no column needs such text."""


def csv_lines(table: CsvTable[P], pages: Iterable[list[Row]]) -> Iterator[bytes]:
    """Yield a table as CSV in UTF-8: the header, then the rows of each page."""
    text = io.StringIO()
    writer = csv.DictWriter(text, table.columns, lineterminator="\n")
    writer.writeheader()
    for rows in pages:
        writer.writerows({name: _csv_cell(value) for name, value in row.items()} for row in rows)
        yield text.getvalue().encode()
        text.seek(0)
        text.truncate()
    yield text.getvalue().encode()


def write_parquet(table: CsvTable[P], pages: Iterable[list[Row]], file: IO[bytes]) -> None:
    """Write a table as Parquet, with a row group for each page.

    Raises:
        ModuleNotFoundError: the extra `data` is not installed.
        ValueError, OverflowError: a value does not fit the type of its column.
    """
    import pyarrow as arrow  # noqa: PLC0415 - an extra
    from pyarrow import parquet  # noqa: PLC0415

    kinds = {int: arrow.int64(), float: arrow.float64(), str: arrow.string(), bool: arrow.bool_()}
    schema = arrow.schema([(name, kinds[kind]) for name, kind in table.columns.items()])
    with parquet.ParquetWriter(file, schema) as writer:
        for rows in pages:
            writer.write_table(arrow.Table.from_pylist(rows, schema=schema))


def _csv_cell(value: Cell) -> Cell:
    """Return a value as JSON has it, with truth values in lower case.

    A service may send any text: a quote disarms a formula, and control characters are escaped.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return value
    text = value if value.isprintable() else ascii(value)[1:-1]
    return f"'{text}" if text.startswith(_FORMULA) else text


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


def _update(entry: UpdateEntry | ClientRound) -> Row:
    return {
        "committed": entry["committed"],
        "outcome": entry["outcome"],
        "rank": entry["rank"],
        "distance": entry["distance"],
        "distance_bits": entry["distance_bits"],
        "reason": entry["reason"] and entry["reason"]["name"],
        "commitment": entry["commitment"],
        "payload": entry["payload"],
    }


def _duties(entry: Duties) -> Row:
    return {
        "scores": entry["scores"],
        "refused": " ".join(refusal["reason"]["name"] for refusal in entry["refused"]),
        "voted": " ".join(entry["voted"]),
        "primary_of": " ".join(entry["primary_of"]),
        "incidents": " ".join(incident["kind"]["name"] for incident in entry["incidents"]),
    }


def _client_round_row(entry: ClientRound) -> Row:
    return {
        "round": entry["round"],
        "status": entry["status"],
        "role": entry["role"],
        "place": entry["place"],
        "empty_seat": entry["empty_seat"],
        **_update(entry),
        **_duties(entry),
        "banned": entry["banned"],
        **_end(entry["ended"]),
    }


def _updates_of(round_: RoundSummary | FullRound) -> list[Row]:
    round_ = _whole(round_)
    return [
        {"round": round_["round"], "client": update["client"], **_update(update)}
        for update in round_["parts"]["updates"]
    ]


def _participation_of(round_: RoundSummary | FullRound) -> list[Row]:
    """Return a row for each trainer and member of a round, by client."""
    round_ = _whole(round_)
    parts = round_["parts"]
    roles = [*map(_as_trainer, parts["updates"]), *map(_as_member, parts["committee"])]
    return [
        {
            "client": client,
            "round": round_["round"],
            "status": round_["status"],
            **role,
            "banned": client in round_["banned"],
            **_end(round_["ended"]),
        }
        for client, role in sorted(roles, key=lambda pair: pair[0])
    ]


def _whole(round_: RoundSummary | FullRound) -> FullRound:
    if "parts" not in round_:
        raise ValueError(f"round {round_['round']} came without its parts")
    return cast("FullRound", round_)


def _as_trainer(update: UpdateEntry) -> tuple[int, Row]:
    role: Row = {"role": "trainer", "place": None, "empty_seat": False, **_update(update)}
    return update["client"], role | dict.fromkeys(_DUTIES) | dict.fromkeys(_LISTED, "")


def _as_member(member: CommitteeMember) -> tuple[int, Row]:
    role: Row = {"role": "member", "place": member["place"], "empty_seat": member["empty_seat"]}
    update: Row = dict.fromkeys(_UPDATE) | {
        "committed": member["committed"],
        "commitment": member["commitment"],
        "payload": member["payload"],
        "reason": member["reason"] and member["reason"]["name"],
    }
    return member["client"], role | update | _duties(member)


def _evidence_row(entry: EvidenceEntry) -> Row:
    ban, scores, incident = entry["ban"], entry["scores"], entry["incident"]
    twice = ban and ban["signed_twice"]
    return {
        "round": entry["round"],
        "client": entry["client"],
        "kind": entry["kind"],
        "ban_block": ban and ban["block"],
        "ban_transaction": ban and ban["transaction"],
        "signed_twice": twice and twice["name"],
        "scores_digest": scores and scores["digest"],
        "refused_for": scores and scores["reason"]["name"],
        "false_distance_to": scores and scores["named"],
        "incident": incident and incident["kind"]["name"],
        "phase": incident and incident["phase"],
        "view": incident and incident["view"],
    }


_END = {"ended_block": int, "ended_transaction": str, "ended_time": int, "ended_at": str}
_UPDATE = {
    "committed": bool,
    "outcome": str,
    "rank": int,
    "distance": float,
    "distance_bits": str,
    "reason": str,
    "commitment": str,
    "payload": str,
}
_LISTED = ("refused", "voted", "primary_of", "incidents")
_DUTIES = {"scores": str, **dict.fromkeys(_LISTED, str)}

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
_CLIENT_ROUND = {
    "round": int,
    "status": str,
    "role": str,
    "place": int,
    "empty_seat": bool,
    **_UPDATE,
    **_DUTIES,
    "banned": bool,
    **_END,
}
CLIENT_ROUNDS: CsvTable[ClientRoundsPage] = CsvTable(
    "client-rounds",
    _CLIENT_ROUND,
    lambda page: [_client_round_row(entry) for entry in page["rounds"]],
)
UPDATES: CsvTable[RoundsPage] = CsvTable(
    "updates",
    {"round": int, "client": int, **_UPDATE},
    lambda page: [row for round_ in page["rounds"] for row in _updates_of(round_)],
)
PARTICIPATION: CsvTable[RoundsPage] = CsvTable(
    "participation",
    {"client": int, **_CLIENT_ROUND},
    lambda page: [row for round_ in page["rounds"] for row in _participation_of(round_)],
)
EVIDENCE: CsvTable[EvidencePage] = CsvTable(
    "evidence",
    {
        "round": int,
        "client": int,
        "kind": str,
        "ban_block": int,
        "ban_transaction": str,
        "signed_twice": str,
        "scores_digest": str,
        "refused_for": str,
        "false_distance_to": int,
        "incident": str,
        "phase": str,
        "view": int,
    },
    lambda page: [_evidence_row(entry) for entry in page["evidence"]],
)
