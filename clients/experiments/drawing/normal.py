"""Number 1: accuracy and losses over rounds; which clients are aggregated, and how they fare."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.experiments.drawing import series
from clients.experiments.drawing.canvas import count_rounds, draw_floor, draw_line, panels
from clients.experiments.drawing.figure_file import caption_of, write

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from clients.experiments.rows import CellRow

CURVES: tuple[tuple[str, Callable[[CellRow], Sequence[float | None]]], ...] = (
    ("test accuracy", lambda cell: cell.accuracy),
    ("test loss", lambda cell: cell.loss),
    ("training loss, all clients", lambda cell: cell.training_loss),
)


def draw(name: str, cells: Sequence[CellRow], folder: Path) -> list[Path]:
    """Draw an experiment without attackers."""
    return [*_curves(name, cells, folder), *_clients(name, cells, folder)]


def _curves(name: str, cells: Sequence[CellRow], folder: Path) -> list[Path]:
    shown = [
        (title, of)
        for title, of in CURVES
        if any(value is not None for cell in cells for value in of(cell))
    ]
    half = max(cell.rounds for cell in cells) // 2
    with panels(len(shown) + 1, columns=2, size=(4.6, 2.7)) as drawn:
        for place, (method, own) in enumerate(series.by_method(cells).items()):
            for axes, (title, of) in zip(drawn.axes, shown, strict=False):
                draw_line(axes, series.over_rounds(method, own, of), place)
                axes.set_title(title)
                count_rounds(axes)
            late = series.over_rounds(method, own, lambda cell: cell.accuracy).after(half)
            draw_line(drawn.axes[-1], late, place)
        draw_floor(drawn.axes[0], series.floor_of(cells))
        drawn.axes[-1].set_title("test accuracy, second half enlarged")
        count_rounds(drawn.axes[-1])
        caption = caption_of("Nobody attacks: mean over the seeds.", name, cells)
        return write(drawn, folder, f"{name}-curves", caption)


def _clients(name: str, cells: Sequence[CellRow], folder: Path) -> list[Path]:
    """Draw the paper's figure of clients: aggregations, accuracy, and one against the other."""
    per_client = [cell for cell in cells if cell.client_accuracy is not None]
    with panels(3 if per_client else 1) as drawn:
        for place, (method, own) in enumerate(series.by_method(cells).items()):
            line = series.share_at_most(method, own, lambda cell: cell.times_aggregated)
            draw_line(drawn.axes[0], line, place)
            measured = [cell for cell in own if cell.client_accuracy is not None]
            if measured:
                line = series.share_at_most(method, measured, accuracies)
                draw_line(drawn.axes[1], line, place)
                draw_line(drawn.axes[2], series.times_by_accuracy(method, measured), place)
        drawn.axes[0].set(
            title="clients aggregated at most x times", xlabel="x", ylabel="share of clients"
        )
        if per_client:
            drawn.axes[1].set(title="clients with accuracy at most x", xlabel="x")
            drawn.axes[2].set(
                title="times aggregated, by accuracy", xlabel="client's accuracy, classes of .2"
            )
        sentence = "How often clients are aggregated, and how accurate the last model is on them."
        return write(drawn, folder, f"{name}-clients", caption_of(sentence, name, cells))


def accuracies(cell: CellRow) -> list[float]:
    """Return the accuracy on every client that has test samples, to two decimals."""
    # Hundredths: a step for each fraction that a client's few samples can have would not be seen.
    return [round(value, 2) for value in cell.client_accuracy or () if value is not None]
