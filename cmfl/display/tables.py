"""Tables of rows: lists of dicts that a notebook shows, and that become a pandas frame."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    import pandas as pd

MOST_SHOWN = 60
_LONGEST = 80


class Table(list[dict[str, Any]]):
    """Rows with the same columns, each a dict; a list in every other way."""

    def __init__(self, rows: Iterable[Mapping[str, Any]] = ()) -> None:
        super().__init__(dict(row) for row in rows)

    @overload
    def __getitem__(self, place: SupportsIndex) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, place: slice) -> Table: ...
    def __getitem__(self, place: SupportsIndex | slice) -> dict[str, Any] | Table:
        if isinstance(place, slice):
            return Table(super().__getitem__(place))
        return super().__getitem__(place)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns, in order; none without a row."""
        return tuple(self[0]) if self else ()

    def column(self, name: str) -> list[Any]:
        """Return the values of one column.

        Raises:
            ConfigurationError: there is no such column.
        """
        if name not in self.columns:
            raise ConfigurationError(f"no column {name!r}; there are {', '.join(self.columns)}")
        return [row[name] for row in self]

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a pandas frame, one column each.

        Raises:
            ConfigurationError: pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise ConfigurationError("to_pandas() needs pandas: pip install pandas") from error
        return pd.DataFrame(list(self), columns=list(self.columns))

    def __repr__(self) -> str:
        return text_table(self.columns, self)

    def _repr_html_(self) -> str:
        return html_table(self.columns, self)


def text_table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as aligned lines of text; of many, the first and the last."""
    if not rows:
        return "no rows"
    lines = [[_cell(row[column]) for column in columns] for row in _shown(rows)]
    widths = [max(map(len, column)) for column in zip(columns, *lines, strict=True)]
    aligned = [
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in (list(columns), *lines)
    ]
    if len(rows) > len(lines):
        aligned.insert(1 + len(lines) // 2, f"... {len(rows) - len(lines)} more rows ...")
    return "\n".join(aligned)


def html_table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as an HTML table; of many, the first and the last."""
    head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
    shown = _shown(rows)
    lines = [
        "<tr>" + "".join(f"<td>{html.escape(_cell(row[c]))}</td>" for c in columns) + "</tr>"
        for row in shown
    ]
    if len(rows) > len(shown):
        note = f"… {len(rows) - len(shown)} more rows …"
        lines.insert(len(shown) // 2, f'<tr><td colspan="{len(columns)}">{note}</td></tr>')
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _shown(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    if len(rows) <= MOST_SHOWN:
        return list(rows)
    return [*rows[: MOST_SHOWN // 2], *rows[-MOST_SHOWN // 2 :]]


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
