"""Tables of rows: lists of dicts that a notebook shows, and that become a pandas frame."""

from __future__ import annotations

import html
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, SupportsIndex, overload

from cmfl.arguments import PATH, naming_extras, require
from ledger.io.home import naming, write_named
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from clients.experiments.rows import CellRow


MOST_SHOWN = 60  # rows of a table
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
        """Return the values of one column."""
        if name not in self.columns:
            raise ConfigurationError(f"no column {name!r}; there are {', '.join(self.columns)}")
        return [row[name] for row in self]

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a pandas frame, one column each."""
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


class Tracker(Protocol):
    """Receives how far a call is: `done` of `total` steps, and a note."""

    def __call__(self, done: int, total: int, note: str = "") -> None: ...


@contextmanager
def tracking(
    label: str, *, shown: bool | None = None, line_for_each: bool = False
) -> Iterator[Tracker]:
    """Show the progress of the context's work; yield a function that takes the steps.

    `shown` is True for a bar, or for lines where there is neither a terminal nor a notebook; False
    for nothing; None for a bar at a terminal or in a notebook. A line is for a tenth of the steps,
    or for each with `line_for_each`, which None prints too.
    """
    # The shell is a notebook's; nothing is imported to see it.
    shell = sys.modules.get("IPython")
    is_notebook = shell is not None and type(shell.get_ipython()).__name__ == "ZMQInteractiveShell"
    if shown is not False and is_notebook:
        yield _notebook_bar(label)
    elif shown is not False and sys.stderr.isatty():
        with _terminal_bar(label) as tracker:
            yield tracker
    else:
        shown = line_for_each if shown is None else shown
        yield _lines(label, shown=shown, for_each=line_for_each)


def _notebook_bar(label: str) -> Tracker:
    from IPython.display import HTML, display

    shown: Any = display(HTML(html.escape(label)), display_id=True)

    def show(done: int, total: int, note: str = "") -> None:
        text = html.escape(f"{label}: {done} of {total}{', ' if note else ''}{note}")
        shown.update(HTML(f'<progress value="{done}" max="{max(total, 1)}"></progress> {text}'))

    return show


@contextmanager
def _terminal_bar(label: str) -> Iterator[Tracker]:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    except ImportError:  # the extra of the command line
        yield _lines(label, shown=True)
        return
    name, note = (
        TextColumn(f"{{task.{x}}}", markup=False) for x in ("description", "fields[note]")
    )
    columns = (name, BarColumn(), MofNCompleteColumn(), note)
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None, note="")

        def show(done: int, total: int, note: str = "") -> None:
            bar.update(task, completed=done, total=total, note=note)

        yield show


def _lines(label: str, *, shown: bool, for_each: bool = False) -> Tracker:
    newest = 0 if for_each else -1

    def show(done: int, total: int, note: str = "") -> None:
        nonlocal newest
        place = done if for_each else 10 * done // max(total, 1)
        if shown and place > newest:
            newest = place
            sys.stderr.write(f"{label}: {done} of {total}{', ' if note else ''}{note}\n")

    return show


@naming_extras()
def new_axes(count: int = 1) -> list[Axes]:
    """Return the axes of a new figure of pyplot, in at most three columns."""
    from matplotlib import pyplot as plt

    wide = min(3, count)
    high = -(-count // wide)
    figure, grid = plt.subplots(
        high, wide, squeeze=False, sharey=True, figsize=(1.4 + 3.6 * wide, 3.4 * high)
    )
    figure.set_layout_engine("constrained")
    panels = [axes for line in grid for axes in line]
    for unused in panels[count:]:
        figure.delaxes(unused)
    return panels[:count]


def write(axes: Axes, to: str | Path | None) -> None:
    """Write the figure of some axes to a file, which replaces an existing one; None for no file."""
    if to is None:
        return
    require(PATH, to=to)
    figure = axes.get_figure(root=True)
    assert figure is not None, "axes that were drawn on have a figure"
    drawn = BytesIO()
    with naming(to, (OSError, ValueError)):
        figure.savefig(drawn, format=Path(to).suffix[1:] or None)
        write_named(Path(to), drawn.getvalue())


def draw_rounds(
    title: str, rows: Sequence[Mapping[str, Any]], floor: float | None, axes: Axes | None
) -> Axes:
    """Draw a run's accuracy, its floor, and the attackers' share of the accepted, by its rounds."""
    measured = [row for row in rows if row["accuracy"] is not None]
    if not measured:
        raise ConfigurationError(f"{title}: no accuracy is known to draw")
    if axes is not None and not hasattr(axes, "plot"):
        raise ConfigurationError(f"axes = {axes!r:.80}: must be axes of matplotlib")
    axes = new_axes()[0] if axes is None else axes
    axes.plot(
        [row["round"] for row in measured], [row["accuracy"] for row in measured], label="accuracy"
    )
    if floor is not None:
        axes.axhline(floor, color="0.35", linewidth=0.9, linestyle=":", label="majority class")
    attacked = [row for row in rows if row["malicious_accepted"] is not None and row["accepted"]]
    if any(row["malicious_accepted"] for row in attacked):
        axes.bar(
            [row["round"] for row in attacked],
            [row["malicious_accepted"] / row["accepted"] for row in attacked],
            color="#d55e00",
            alpha=0.35,
            zorder=0,
            label="attackers' share of the accepted",
        )
    axes.set(xlabel="round", ylim=(0, 1), title=title)
    axes.locator_params(axis="x", integer=True)
    # Below the panel: within it, it would hide rounds.
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3, fontsize="small")
    return axes


def draw_comparison(cells: Sequence[CellRow]) -> list[Axes]:
    """Draw the runs of a comparison, a panel for each condition, and return the panels."""
    from clients.experiments import plots, series

    swept = list(series.varied_axes(cells))
    along = (swept[0], series.positions_of(cells, swept[0])) if swept else None
    shown = series.panels_of(cells, along=None if along is None else along[0])
    places = series.places_of(shown)
    drawn = new_axes(len(shown))
    for axes, (title, lines) in zip(drawn, shown.items(), strict=True):
        for line, own in lines.items():
            if along is None:
                points = series.over_rounds(line, own, lambda cell: cell.accuracy)
            else:
                points = series.along_axis(line, own, along, lambda cell: cell.final)
            plots.draw_line(axes, points, places[line])
        plots.draw_floor(axes, series.floor_of(series.cells_of(lines)))
        axes.set_title(title)
        if along is None:
            plots.count_rounds(axes)
        else:
            plots.name_ticks(axes, *along)
        axes.legend(fontsize="small")
    drawn[0].set_ylabel("accuracy" if along is None else "final accuracy")
    return drawn
