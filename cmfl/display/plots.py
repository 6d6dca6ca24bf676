"""Figures of runs and comparisons, on matplotlib's axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cmfl.extras import naming_extras
from cmfl.inputs.arguments import PATH, require_or_none
from ledger.io.named_files import write_named
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from clients.experiments.rows import CellRow


@naming_extras()
def new_axes(count: int = 1, *, columns: int = 3) -> list[Axes]:
    """Return the axes of a new figure of pyplot, which notebooks show.

    Args:
        columns: panels in a row at most.
    """
    from matplotlib import pyplot as plt

    wide = min(columns, count)
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
    require_or_none(PATH, to=to)
    if to is None:
        return
    figure = axes.get_figure(root=True)
    assert figure is not None, "axes that were drawn on have a figure"
    drawn = BytesIO()
    try:
        figure.savefig(drawn, format=Path(to).suffix[1:] or None)
        write_named(Path(to), drawn.getvalue())
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{to}: {error}") from error


def draw_rounds(
    title: str, rows: Sequence[Mapping[str, Any]], floor: float | None, axes: Axes | None
) -> Axes:
    """Draw the accuracy of a run, its floor, and the attackers' share of the accepted updates.

    Args:
        rows: of its rounds, with the columns of `Round`.
        floor: accuracy of always answering the commonest class, if it is known.
        axes: to draw on; new ones if not given.
    """
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
    from clients.experiments import canvas, series

    swept = [axis for axis, labels in series.swept_axes(cells).items() if len(labels) > 1]
    along = (swept[0], series.positions_of(cells, swept[0])) if swept else None
    shown = series.panels_of(cells, along=None if along is None else along[0])
    places = series.places_of(shown)
    drawn = new_axes(len(shown))
    for axes, panel in zip(drawn, shown, strict=True):
        for line, own in panel.lines.items():
            if along is None:
                points = series.over_rounds(line, own, lambda cell: cell.accuracy)
            else:
                points = series.along_axis(line, own, along, lambda cell: cell.final)
            canvas.draw_line(axes, points, places[line])
        canvas.draw_floor(axes, series.floor_of(panel.cells))
        axes.set_title(panel.title)
        if along is None:
            canvas.count_rounds(axes)
        else:
            canvas.name_ticks(axes, *along)
        axes.legend(fontsize="small")
    drawn[0].set_ylabel("accuracy" if along is None else "final accuracy")
    return drawn
