"""Number 7: whether those are aggregated more often that train longer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.experiments.drawing import series
from clients.experiments.drawing.canvas import draw_line, panels
from clients.experiments.drawing.figure_file import caption_of, write
from clients.experiments.statistics import mean_and_error, spearman

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from clients.experiments.rows import CellRow


def draw(name: str, cells: Sequence[CellRow], folder: Path) -> list[Path]:
    """Draw an experiment whose conditions are ways to count local work.

    Args:
        name: of the experiment.
        cells: of it.
        folder: where to.
    """
    conditions = series.grouped(cells, lambda cell: cell.condition)
    with panels(len(conditions), sharey=True, size=(4.2, 2.8)) as drawn:
        for axes, (condition, own) in zip(drawn.axes, conditions.items(), strict=True):
            for place, (method, runs) in enumerate(series.by_method(own).items()):
                draw_line(axes, series.times_by_samples(method, runs), place)
            axes.set(title=condition, xlabel="fifth of the clients, fewest samples first")
            axes.set_xticks(range(1, 6))
        drawn.axes[0].set_ylabel("times aggregated")
        ranks = "; ".join(
            f"{condition}: {_correlations(own)}" for condition, own in conditions.items()
        )
        sentence = (
            "How often clients are aggregated, by their number of samples. Spearman's correlation "
            f"of the two, ± standard error: {ranks}."
        )
        return write(drawn, folder, name, caption_of(sentence, name, cells))


def correlation(cell: CellRow) -> float | None:
    """Return Spearman's correlation of times aggregated and number of samples."""
    if not cell.samples:
        return None
    return spearman(cell.times_aggregated, cell.samples)


def _correlations(cells: Sequence[CellRow]) -> str:
    parts = []
    for method, own in series.by_method(cells).items():
        values = [value for value in map(correlation, own) if value is not None]
        if values:
            mean = mean_and_error(values)
            error = "" if mean.error is None else f" ± {mean.error:.2f}"
            parts.append(f"{method} {mean.mean:+.2f}{error}")
    return ", ".join(parts) or "none"
