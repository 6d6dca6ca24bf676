"""Lists as tables: flat rows with fixed, typed columns, for CSV and Parquet.

The service and `cmfl export table` write the same columns. Several values in one cell are separated
by blanks.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import IO, Any, Generic, Literal, TypeAlias, TypeVar, cast

from ledger.history.answers_clients import ClientRound, ClientRoundsAnswer, ClientsAnswer
from ledger.history.answers_parts import RoundNumbers
from ledger.history.answers_rounds import FullRound, RoundsAnswer, RoundSummary
from ledger.history.answers_signed import EvidenceAnswer, EvidenceEntry
from ledger.history.fields import Code

Cell: TypeAlias = int | float | str | bool | None
Row: TypeAlias = dict[str, Cell]
TableName: TypeAlias = Literal["rounds", "updates", "participation", "evidence"]

P = TypeVar("P")

PAGE = 100  # entries that are read at once; a long list is never in memory as a whole


@dataclass(frozen=True, slots=True)
class CsvTable(Generic[P]):
    """One list as a table."""

    name: str
    columns: Mapping[str, type]
    rows: Callable[[P], list[Row]]


def pages(read: Callable[[int, str | None], P], first: P | None = None) -> Iterator[P]:
    """Yield all pages of a list, after a first one if it was read already."""
    page = read(PAGE, None) if first is None else first
    yield page
    while (cursor := cast("dict[str, Any]", page)["next_cursor"]) is not None:
        if cast("dict[str, Any]", page).get("scanned") == 0:
            raise ValueError("a page has no rounds, and is not the last")
        page = read(PAGE, cursor)
        yield page


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
    """Write a table as Parquet, with a row group for each page."""
    import pyarrow as arrow  # noqa: PLC0415 - an extra
    from pyarrow import parquet  # noqa: PLC0415

    kinds = {int: arrow.int64(), float: arrow.float64(), str: arrow.string(), bool: arrow.bool_()}
    schema = arrow.schema([(name, kinds[kind]) for name, kind in table.columns.items()])
    with parquet.ParquetWriter(file, schema) as writer:
        for rows in pages:
            writer.write_table(arrow.Table.from_pylist(rows, schema=schema))


def _csv_cell(value: Cell) -> Cell:
    """Return a value as JSON has it; a quote disarms a formula that a service may send."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return value
    text = value if value.isprintable() else ascii(value)[1:-1]
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def _row(columns: Mapping[str, type], *parts: Mapping[str, Any]) -> Row:
    fields = {name: value for part in parts for name, value in part.items()}
    return {name: _cell(fields[name]) for name in columns}


def _cell(value: Any) -> Cell:
    """Return a value as one cell: of a code its name, of a list all values separated by blanks."""
    match value:
        case {"name": name}:
            return cast("str", name)
        case {"reason": code} | {"kind": code}:
            return _cell(code)
        case list():
            return " ".join(str(_cell(each)) for each in value)
        case _:
            return cast("Cell", value)


def _columns(words: str) -> dict[str, type]:
    """Return columns from names with a type each; text is `str`, which is not written."""
    kinds = {"": str, "int": int, "float": float, "bool": bool}
    return {name: kinds[kind] for name, _, kind in (word.partition(":") for word in words.split())}


_UPDATE = "committed:bool outcome rank:int distance:float distance_bits reason"
_FILES = "commitment payload"
_END = "ended_block:int ended_transaction ended_time:int ended_at"
_ROUND = _columns(
    "round:int status ranked:int accepted:int view_aggregation:int view_election:int model " + _END
)
_CLIENT = _columns(
    "client:int address samples sampled:int ranked:int accepted:int dropped_out:int served:int "
    "scored:int refused:int voted:int primary:int incidents:int banned_in_round:int"
)
_CLIENT_ROUND = _columns(
    f"round:int status role place:int empty_seat:bool {_UPDATE} scores refused voted primary_of "
    f"incidents banned:bool {_FILES} {_END}"
)
_EVIDENCE = _columns(
    "round:int client:int kind block:int transaction signed_twice digest reason named:int "
    f"incident phase view:int {_FILES}"
)


def _fields(entry: ClientRound | FullRound | RoundNumbers | RoundSummary) -> dict[str, Any]:
    """Return a round's fields, with its end and its views each in columns of their own."""
    fields = dict[str, Any](entry)
    ended = fields["ended"] or {}
    aggregation, election = fields.get("views") or (None, None)
    return {
        **fields,
        "ended_block": ended.get("number"),
        **{f"ended_{name}": ended.get(name) for name in ("transaction", "time", "at")},
        "view_aggregation": aggregation,
        "view_election": election,
    }


def _whole(page: RoundsAnswer) -> list[FullRound]:
    for round_ in page["rounds"]:
        if "parts" not in round_:
            raise ValueError(f"round {round_['round']} came without its parts")
    return cast("list[FullRound]", page["rounds"])


_TRAINER: Mapping[str, Any] = {
    "role": "trainer",
    "place": None,
    "empty_seat": False,
    "scores": None,
    **{name: [] for name in ("refused", "voted", "primary_of", "incidents")},
}
_MEMBER: Mapping[str, Any] = {
    "role": "member",
    **dict.fromkeys(("outcome", "rank", "distance", "distance_bits")),
}


def _participation_rows(page: RoundsAnswer) -> list[Row]:
    rows: list[Row] = []
    for round_ in _whole(page):
        parts: list[dict[str, Any]] = [
            *({**_TRAINER, **update} for update in round_["parts"]["updates"]),
            *({**_MEMBER, **member} for member in round_["parts"]["committee"]),
        ]
        for part in sorted(parts, key=itemgetter("client")):
            own = {**part, "banned": part["client"] in round_["banned"]}
            rows.append(_row(PARTICIPATION.columns, _fields(round_), own))
    return rows


def _evidence_row(entry: EvidenceEntry) -> Row:
    incident = entry["incident"] and entry["incident"]["kind"]
    own = {**entry, "incident": incident, "reason": reason_of(entry)}
    return _row(_EVIDENCE, dict.fromkeys(_EVIDENCE), _facts_of(entry), own)


def reason_of(entry: EvidenceEntry) -> Code | None:
    """Return why: of a dropout, a refusal or an incident, or what a banned client signed twice."""
    facts = _facts_of(entry)
    return facts.get("reason") or facts.get("signed_twice") or facts.get("kind")


def _facts_of(entry: EvidenceEntry) -> dict[str, Any]:
    facts = entry["ban"] or entry["scores"] or entry["incident"] or entry.get("dropout")
    return dict(facts or {})


ROUNDS: CsvTable[RoundsAnswer] = CsvTable(
    "rounds", _ROUND, lambda page: [_row(_ROUND, _fields(each)) for each in page["rounds"]]
)
CLIENTS: CsvTable[ClientsAnswer] = CsvTable(
    "clients", _CLIENT, lambda page: [_row(_CLIENT, each) for each in page["clients"]]
)
CLIENT_ROUNDS: CsvTable[ClientRoundsAnswer] = CsvTable(
    "client-rounds",
    _CLIENT_ROUND,
    lambda page: [_row(_CLIENT_ROUND, _fields(each)) for each in page["rounds"]],
)
UPDATES: CsvTable[RoundsAnswer] = CsvTable(
    "updates",
    _columns(f"round:int client:int {_UPDATE} {_FILES}"),
    lambda page: [
        _row(UPDATES.columns, update, {"round": round_["round"]})
        for round_ in _whole(page)
        for update in round_["parts"]["updates"]
    ],
)
PARTICIPATION: CsvTable[RoundsAnswer] = CsvTable(
    "participation", {"client": int, **_CLIENT_ROUND}, _participation_rows
)
EVIDENCE: CsvTable[EvidenceAnswer] = CsvTable(
    "evidence", _EVIDENCE, lambda page: [_evidence_row(each) for each in page["evidence"]]
)
