"""Heat map: what each attack costs each method, as a difference to training that nobody attacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.experiments.drawing import series
from clients.experiments.drawing.accuracy import FINAL, floor_text, left_out_text
from clients.experiments.drawing.canvas import difference_shade, draw_table, panels, slant_names
from clients.experiments.drawing.figure_file import SIGNS, caption_of, write
from clients.experiments.statistics import mean_and_error, paired

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from clients.experiments.rows import CellRow
    from clients.experiments.statistics import Estimate

MOST_COLUMNS = 3
"""Panels of an experiment with axes that stand side by side."""

MINUS = "\u2212"


def draw_heat(name: str, cells: Sequence[CellRow], folder: Path) -> list[Path]:
    """Draw the final accuracy less that of the first method under the first condition.

    Differences are paired by seed. Points of axes have a panel each, with their own reference.

    Args:
        name: of the experiment.
        cells: of it, in the order of its definition.
        folder: where to.
    """
    columns, left_out = series.well_filled(cells)
    swept = [axis for axis, labels in series.swept_axes(cells).items() if len(labels) > 1]
    # The reference may be of a method that has no column.
    shown = series.grouped(cells, lambda cell: ", ".join(cell.axes[axis] for axis in swept))
    methods = series.by_method(columns)
    rates = {method: {cell.learning_rate for cell in own} for method, own in methods.items()}
    is_tuned = len(set().union(*rates.values())) > 1
    titles = {
        method: f"{method}, rate {'/'.join(f'{rate:g}' for rate in sorted(rates[method]))}"
        if is_tuned and not swept
        else method
        for method in methods
    }
    reference = (cells[0].method, cells[0].condition)
    most = max(len(_conditions(own)) for own in shown.values())
    size = (1.9 + 0.62 * len(methods), 1.5 + 0.36 * most)
    with panels(len(shown), columns=MOST_COLUMNS, size=size) as drawn:
        for axes, (title, own) in zip(drawn.axes, shown.items(), strict=True):
            conditions = _conditions(own)
            table = [[_difference(own, (m, c), reference) for m in methods] for c in conditions]
            numbers = [[None if cell is None else cell.mean for cell in line] for line in table]
            texts = [[difference_text(cell) for cell in line] for line in table]
            draw_table(axes, numbers, (conditions, list(titles.values())), texts, difference_shade)
            slant_names(axes)
            parts = [title, _accuracy(own, reference)]
            axes.set(title="; ".join(filter(None, parts)), xlabel="method", ylabel="attack")
        sentence = (
            f"{FINAL[:-1]}, less that of {reference[0]} under {reference[1]}, paired by seed: red "
            f"is a loss.{floor_text(cells)}{left_out_text(left_out)}"
        )
        caption = caption_of(sentence, name, cells, SIGNS)
        return write(drawn, folder, f"{name}-heat", caption)


def difference_text(difference: Estimate | None) -> str:
    """Return a difference with its error below, both without the zero before the point."""
    if difference is None:
        return ""
    sign = MINUS if round(difference.mean, 3) < 0 else "+"
    text = f"{sign}{_short(abs(difference.mean))}"
    return text if difference.error is None else f"{text}\n±{_short(difference.error)}"


def _accuracy(cells: Sequence[CellRow], at: tuple[str, str]) -> str:
    """Return the accuracy from which differences are taken; empty if it was not measured."""
    finals = [c.final for c in cells if (c.method, c.condition) == at and c.final is not None]
    return f"{at[0]}, {at[1]}: {mean_and_error(finals).mean:.3f}" if finals else ""


def _short(number: float) -> str:
    return f"{number:.3f}".removeprefix("0")


def _conditions(cells: Sequence[CellRow]) -> list[str]:
    return list(dict.fromkeys(cell.condition for cell in cells))


def _difference(
    cells: Sequence[CellRow], place: tuple[str, str], reference: tuple[str, str]
) -> Estimate | None:
    """Return the mean difference of two (method, condition) over the seeds that both have."""
    own, theirs = (
        {
            cell.seed: cell.final
            for cell in cells
            if (cell.method, cell.condition) == at and cell.final is not None
        }
        for at in (place, reference)
    )
    seeds = sorted(own.keys() & theirs.keys())
    if not seeds:
        return None
    return paired([own[seed] for seed in seeds], [theirs[seed] for seed in seeds])
