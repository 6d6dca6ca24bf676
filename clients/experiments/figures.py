"""The figures of experiments, from their rows: `cmfl experiment plot`.

A definition names the kinds of its figures; without it they follow from the number of axes. The
same rows give the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import copysign, sqrt
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

from clients.experiments import costs, plots, series
from clients.experiments.costs import RATES, Transmission, solo_training_seconds
from clients.experiments.definition import GROWTH_AXIS, GROWTH_START, FigureKind, require_axes
from clients.experiments.plots import Drawn
from clients.experiments.rows import CellRow, ExperimentRows, sorted_rows
from clients.experiments.series import Estimate, Lines
from ledger.io.extras import require_extra
from ledger.protocol.errors import ConfigurationError

SETTLED = 0.2  # share of a curve, at its start, that a zoomed panel does not have to show
FINAL = "Mean accuracy of the last five measured rounds."
ACCURACY = "test accuracy"
Draw: TypeAlias = Callable[[Sequence[CellRow]], Iterator[Drawn]]


def draw(
    rows: Mapping[str, ExperimentRows],
    folder: Path,
    drawn_by: Mapping[FigureKind, Draw] | None = None,
) -> list[Path]:
    """Draw every experiment with rows, and return the SVG and the PNG of each figure."""
    require_extra("plots", "figures need")
    from matplotlib import rc_context  # noqa: PLC0415 - the extra `plots`, and slow to load

    drawn_by = DRAWN_BY if drawn_by is None else drawn_by
    plans = []
    for name, experiment in sorted_rows(rows).items():
        axes = series.swept_axes(experiment.cells)
        asked = () if experiment.definition is None else experiment.definition.figure
        kinds = [kind for kind in asked if kind in drawn_by] or UNASKED[min(2, len(axes))]
        for kind in kinds:
            require_axes(f"experiment {name}", kind, axes)
            plans.append((kind, name, experiment.cells))
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    with rc_context(plots.STYLE):
        for kind, name, cells in plans:
            figures = list(drawn_by[kind](cells))
            for number, drawn in enumerate(figures, start=1):
                file = f"{name}-{kind}" if len(figures) == 1 else f"{name}-{kind}-{number}"
                paths += plots.write(drawn, folder / file, name)
    return paths


def _floor_text(cells: Sequence[CellRow]) -> str:
    floor = series.floor_of(cells)
    return "" if floor is None else f" The most frequent class alone scores {floor:.3f}."


def _left_out(methods: Sequence[str]) -> str:
    return f" Run under one condition alone: {', '.join(methods)}." if methods else ""


QUALITIES: dict[str, Callable[[CellRow], Sequence[float | None]]] = {
    ACCURACY: lambda cell: cell.accuracy,
    "test loss": lambda cell: cell.loss,
    "training loss, all clients": lambda cell: cell.training_loss,
}


def curves(cells: Sequence[CellRow]) -> Iterator[Drawn]:
    """Draw accuracy over rounds, a panel for each condition; a single one with its losses."""
    shown = series.panels_of(cells)
    names = list(series.places_of(shown))
    for start in range(0, len(names), series.MOST_LINES):
        part = names[start : start + series.MOST_LINES]
        panels = {
            title: {name: own for name, own in lines.items() if name in part}
            for title, lines in shown.items()
        }
        views = [(title, ACCURACY, SETTLED, lines) for title, lines in panels.items() if lines]
        if len(views) == 1:  # each quality that was measured, and the accuracy on a larger scale
            lines = views[0][-1]
            measured = [
                name
                for name, of in QUALITIES.items()
                if any(value is not None for cell in series.cells_of(lines) for value in of(cell))
            ]
            views = [(name, name, SETTLED, lines) for name in measured]
            views.append((f"{ACCURACY}, enlarged", ACCURACY, 0.5, lines))
        size, columns = ((2.7, 2.2), 4) if len(shown) > 1 else ((4.6, 2.7), 2)
        figure, places = plots.new_figure(len(views), size, columns)
        for axes, (title, quality, settled, lines) in zip(places, views, strict=True):
            found = [
                series.over_rounds(name, own, QUALITIES[quality]) for name, own in lines.items()
            ]
            for line in found:
                plots.draw_line(axes, line, part.index(line.name))
            plots.zoom(axes, found, settled)
            axes.set(title=title, ylabel=ACCURACY if quality == ACCURACY else "loss")
            plots.count_rounds(axes)
        sentence = (
            "Quality over rounds, each panel on the scale of its curves after the first fifth "
            f"of the rounds.{_floor_text(cells)}"
        )
        yield Drawn(figure, sentence, cells)


def final_table(cells: Sequence[CellRow]) -> Iterator[Drawn]:
    """Draw the final accuracy of every method under every condition, as a table."""
    filled, left_out = series.well_filled(cells)
    swept = series.varied_axes(filled)
    sides: dict[str, Callable[[CellRow], str]] = {
        "condition": lambda cell: series.with_labels(cell.condition, cell, swept),
        "method": lambda cell: cell.method,
    }
    # The fewer stand side by side, so that no figure is wider than a page.
    down, across = sorted(sides, key=lambda of: -len(series.grouped(filled, sides[of])))
    row_of, column_of = sides[down], sides[across]
    rows, columns = series.grouped(filled, row_of), list(series.grouped(filled, column_of))
    table = [
        [_estimate(cell for cell in own if column_of(cell) == column) for column in columns]
        for own in rows.values()
    ]
    figure, (axes,) = plots.new_figure(1, (2.1 + 0.8 * len(columns), 1.3 + 0.36 * len(rows)))
    plots.draw_table(axes, table, (list(rows), columns), **_greys(table))
    plots.slant_names(axes)
    axes.set(ylabel=down, xlabel=across)
    yield Drawn(figure, f"{FINAL}{_floor_text(filled)}{_left_out(left_out)}", cells, plots.SIGNS)


def grid(cells: Sequence[CellRow]) -> Iterator[Drawn]:
    """Draw the final accuracy over the first two axes, a panel for each method and condition."""
    swept = series.swept_axes(cells)
    down, across = list(swept)[:2]
    others = [axis for axis in series.varied_axes(cells) if axis not in {down, across}]
    groups = series.grouped(
        cells, lambda cell: series.with_labels(f"{cell.method}, {cell.condition}", cell, others)
    )
    size = (1.4 + 0.6 * len(swept[across]), 1.0 + 0.48 * len(swept[down]))
    figure, places = plots.new_figure(len(groups), size, columns=2)
    for axes, (title, own) in zip(places, groups.items(), strict=True):
        labels = (series.swept_axes(own)[down], series.swept_axes(own)[across])
        table = [
            [
                _estimate(c for c in own if (c.axes[down], c.axes[across]) == (y, x))
                for x in labels[1]
            ]
            for y in labels[0]
        ]
        plots.draw_table(axes, table, labels, **_greys(table))
        axes.set(title=title, xlabel=across, ylabel=down)
    yield Drawn(figure, f"{FINAL}{_floor_text(cells)}", cells, plots.SIGNS)


def _estimate(cells: Iterable[CellRow]) -> Estimate | None:
    finals = series.finals_of(cells)
    return series.mean_and_error(finals) if finals else None


def _greys(table: Sequence[Sequence[Estimate | None]]) -> dict[str, Any]:
    numbers = [cell.mean for line in table for cell in line if cell is not None] or [0.0]
    low = min(numbers)
    return {"cmap": "Greys", "vmin": low - 0.1, "vmax": max(*numbers, low + plots.LEAST_SPAN) + 0.1}


def heat(cells: Sequence[CellRow]) -> Iterator[Drawn]:
    """Draw final accuracies less the first method and condition's, a panel for each point."""
    columns, left_out = series.well_filled(cells)
    swept = series.varied_axes(cells)
    # The reference may be of a method that has no column.
    shown = series.grouped(cells, lambda cell: ", ".join(cell.axes[axis] for axis in swept))
    methods = series.by_method(columns)
    rates = {name: sorted({cell.learning_rate for cell in own}) for name, own in methods.items()}
    titles = list(methods)
    if not swept and len({rate for of in rates.values() for rate in of}) > 1:
        titles = [f"{m}, rate {'/'.join(f'{rate:g}' for rate in of)}" for m, of in rates.items()]
    reference = (cells[0].method, cells[0].condition)
    most = max(len({cell.condition for cell in own}) for own in shown.values())
    figure, places = plots.new_figure(len(shown), (1.9 + 0.62 * len(methods), 1.5 + 0.36 * most))
    for axes, (title, own) in zip(places, shown.items(), strict=True):
        conditions = list(dict.fromkeys(cell.condition for cell in own))
        table = [[_difference(own, (m, c), reference) for m in methods] for c in conditions]
        shades = {"cmap": "RdBu", "vmin": -1.25, "vmax": 1.25}
        plots.draw_table(axes, table, (conditions, titles), tone_of, **shades)
        plots.slant_names(axes)
        calm = series.finals_of(cell for cell in own if (cell.method, cell.condition) == reference)
        level = f"{', '.join(reference)}: {fmean(calm):.3f}" if calm else ""
        axes.set(title="; ".join(filter(None, [title, level])), xlabel="method", ylabel="attack")
    sentence = (
        f"{FINAL[:-1]}, less that of {reference[0]} under {reference[1]}, paired by seed: red "
        f"is a loss.{_floor_text(cells)}{_left_out(left_out)}"
    )
    yield Drawn(figure, sentence, cells, plots.SIGNS)


def tone_of(difference: float) -> float:
    """Return the tone of a difference, from -1 for a full loss of 0.3 to 1 for a full gain."""
    return copysign(min(1.0, sqrt(abs(difference) / 0.3)), difference)


def _difference(
    cells: Sequence[CellRow], place: tuple[str, str], reference: tuple[str, str]
) -> Estimate | None:
    own, theirs = (
        {
            cell.seed: cell.final
            for cell in cells
            if (cell.method, cell.condition) == at and cell.final is not None
        }
        for at in (place, reference)
    )
    return series.paired(own, theirs)


def sweep(cells: Sequence[CellRow]) -> Iterator[Drawn]:
    """Draw the final accuracy along the first axis, a panel for each condition."""
    axis = next(iter(cells[0].axes))
    scale = (axis, series.positions_of(cells, axis))
    shown = series.panels_of(cells, along=axis)
    names = series.places_of(shown)
    figure, places = plots.new_figure(len(shown), (4.4, 2.8), 2, sharey=True)
    for axes, (title, lines) in zip(places, shown.items(), strict=True):
        for line, own in lines.items():
            found = series.along_axis(line, own, scale, lambda cell: cell.final)
            plots.draw_line(axes, found, names[line])
        plots.draw_floor(axes, series.floor_of(series.cells_of(lines)))
        axes.set_title(title)
        plots.name_ticks(axes, *scale)
    figure.supylabel(ACCURACY)
    yield Drawn(figure, f"{FINAL}{_floor_text(cells)}", cells)


def clients(cells: Sequence[CellRow]) -> Iterator[Drawn]:
    """Draw the paper's figure of clients: aggregations, accuracy, and one against the other."""
    titles = (
        ("clients aggregated at most x times", "x", "share of clients"),
        ("clients with accuracy at most x", "x", "share of clients"),
        ("times aggregated, by accuracy", "client's accuracy, classes of 0.2", "times aggregated"),
    )
    for lines in series.panels_of(cells).values():
        has_accuracy = any(cell.client_accuracy is not None for cell in series.cells_of(lines))
        figure, places = plots.new_figure(3 if has_accuracy else 1, (3.4, 2.6))
        for place, (line, own) in enumerate(lines.items()):
            measured = [cell for cell in own if cell.client_accuracy is not None]
            found = (
                series.share_at_most(line, own, lambda cell: cell.times_aggregated),
                series.share_at_most(line, measured, accuracies),
                series.times_by_accuracy(line, measured),
            )
            for axes, points in zip(places, found, strict=False):
                plots.draw_line(axes, points, place)
        for axes, (title, x, y) in zip(places, titles, strict=False):
            axes.set(title=title, xlabel=x, ylabel=y)
        sentence = "Aggregation frequency of clients, and the last model's accuracy on them."
        yield Drawn(figure, sentence, series.cells_of(lines))


def accuracies(cell: CellRow) -> list[float]:
    """Return the accuracy on every client that has test samples, in hundredths."""
    return [round(value, 2) for value in cell.client_accuracy or () if value is not None]


def samples(cells: Sequence[CellRow]) -> Iterator[Drawn]:
    """Draw how often clients are aggregated, by their number of samples."""
    shown = series.panels_of(cells)
    names = series.places_of(shown)
    figure, places = plots.new_figure(len(shown), (4.2, 2.8), sharey=True)
    ranks = []
    for axes, (title, lines) in zip(places, shown.items(), strict=True):
        for line, own in lines.items():
            plots.draw_line(axes, series.times_by_samples(line, own), names[line])
            found = [value for value in map(correlation, own) if value is not None]
            if found:
                ranks.append(f"{line}, {title} {fmean(found):+.2f}")
        axes.set(title=title, xlabel="fifth of the clients, fewest samples first")
        axes.set_xticks(range(1, 6))
    figure.supylabel("times aggregated")
    sentence = (
        "Aggregation frequency of clients, by their number of samples. Spearman's "
        f"correlation of the two: {'; '.join(ranks) or 'none'}."
    )
    yield Drawn(figure, sentence, cells)


def correlation(cell: CellRow) -> float | None:
    """Return Spearman's correlation of times aggregated and number of samples."""
    return series.spearman(cell.times_aggregated, cell.samples) if cell.samples else None


def attackers(cells: Sequence[CellRow]) -> Iterator[Drawn]:
    """Draw the attackers in a round along the first axis, a panel for each method and condition."""
    axis = next(iter(cells[0].axes))
    scale = (axis, series.positions_of(cells, axis))
    shown = series.panels_of(cells, along=axis)
    groups = {
        line if len(shown) == 1 else f"{line}, {title}": own
        for title, lines in shown.items()
        for line, own in lines.items()
    }
    counts: dict[str, Callable[[CellRow], float | None]] = {
        "N1, training": lambda cell: fmean(cell.malicious_trained),
        "N2, on the committee": lambda cell: (
            fmean(cell.malicious_members) if cell.malicious_members else None
        ),
        "N3, aggregated": lambda cell: fmean(cell.malicious_aggregated),
    }
    figure, (*places, last) = plots.new_figure(len(groups) + 1, (3.4, 2.6), sharex=True)
    for place, (axes, (title, own)) in enumerate(zip(places, groups.items(), strict=True)):
        for style, (what, of) in enumerate(counts.items()):
            plots.draw_line(axes, series.along_axis(what, own, scale, of), style)
        axes.set(title=f"{title}: attackers in a round", ylabel="clients")
        line = series.along_axis(f"{title}, accuracy", own, scale, lambda cell: cell.final)
        plots.draw_line(last, line, place + len(counts))
    plots.draw_floor(last, series.floor_of(cells))
    last.set(title="final test accuracy", ylabel=ACCURACY)
    for axes in (*places, last):
        plots.name_ticks(axes, *scale)
    sentence = "Attackers in a round, mean over its rounds, and what becomes of the model."
    yield Drawn(figure, sentence, cells)


def time(cells: Sequence[CellRow]) -> Iterator[Drawn]:
    """Draw accuracy against simulated time, by three models of transmission."""
    ways = [(model, rate) for model in Transmission for rate in RATES]
    for lines in _timed_panels(cells):
        alone = solo_training_seconds(series.cells_of(lines))
        figure, places = plots.new_figure(len(ways), (3.2, 2.2), sharey=True)
        for axes, (model, rate) in zip(places, ways, strict=True):
            for place, (line, own) in enumerate(lines.items()):
                found = series.over_rounds(line, own, lambda cell: cell.accuracy)
                clocks = [costs.time_axis(cell, model, rate, training=alone) for cell in own]
                at = [fmean(clock[int(number) - 1] for clock in clocks) for number in found.x]
                plots.draw_line(
                    axes, series.PlotLine(line, tuple(at), found.mean, found.error), place
                )
            plots.draw_floor(axes, series.floor_of(series.cells_of(lines)))
            axes.set(title=f"{model}, {rate:g} Mbit/s", xscale="log", xlabel="simulated seconds")
            axes.minorticks_off()
        figure.supylabel(ACCURACY)
        sentence = (
            "Test accuracy against seconds of computation and transmission: by the paper's "
            "text, by the authors' script, or counted as it is really sent."
        )
        yield Drawn(figure, sentence, series.cells_of(lines))


def spent(cells: Sequence[CellRow]) -> Iterator[Drawn]:
    """Draw the paper's figure of computation and transmission time."""
    for lines in _timed_panels(cells):
        alone = solo_training_seconds(series.cells_of(lines))
        figure, places = plots.new_figure(len(RATES), (3.4, 2.8))
        for axes, rate in zip(places, RATES, strict=True):
            for place, own in enumerate(lines.values()):
                computed = [costs.computation_of(c, alone) * c.rounds for c in own]
                base = series.mean_and_error(computed)
                sent = [sum(costs.transmission_of(c, Transmission.COUNTED, rate)) for c in own]
                plots.draw_bar(axes, place, base, color=plots.COLOURS[0], label="computation")
                style = {"bottom": base.mean, "hatch": "///", "color": "0.8"}
                wire = series.mean_and_error(sent)
                plots.draw_bar(axes, place, wire, label="transmission", **style)
            axes.set_xticks(range(len(lines)), list(lines))
            plots.slant_names(axes)
            axes.set(title=f"{rate:g} Mbit/s", xlabel="method")
        figure.supylabel("seconds of the whole run")
        sentence = "Parts of the simulated time, by the bytes that are really sent."
        yield Drawn(figure, sentence, series.cells_of(lines), plots.WHISKERS)


def _timed_panels(cells: Sequence[CellRow]) -> Iterable[Lines]:
    timed = []
    for cell in cells:
        try:
            costs.time_axis(cell, Transmission.COUNTED, RATES[0])
        except ConfigurationError:
            continue
        timed.append(cell)
    return series.panels_of(timed).values() if timed else ()


def growth(cells: Sequence[CellRow]) -> Iterator[Drawn]:
    """Draw scoring time and bytes against n, C and |w|, on logarithmic axes."""
    start = next((sizes_of(cell) for cell in cells if cell.axes[GROWTH_AXIS] == GROWTH_START), None)
    if start is None:
        return

    def scoring_seconds(cell: CellRow) -> float | None:
        seconds = cell.seconds.scoring
        return None if seconds is None else seconds / cell.rounds

    def busiest_megabytes(cell: CellRow) -> float | None:
        return cell.bytes["busiest"] / cell.rounds / 1e6 if "busiest" in cell.bytes else None

    measures = {
        "scoring, seconds a round": scoring_seconds,
        "busiest link, MB a round": busiest_megabytes,
    }
    for lines in series.panels_of(cells, along=GROWTH_AXIS).values():
        figure, places = plots.new_figure(3, (3.4, 2.8))
        titles = ("n, training clients", "C, members", "bytes of a model")
        for varied, (axes, title) in enumerate(zip(places, titles, strict=True)):
            for place, (line, own) in enumerate(lines.items()):
                prefix = f"{line}, " if len(lines) > 1 else ""
                for style, (what, of) in enumerate(measures.items(), start=2 * place):
                    points = by_size(own, start, varied, of)
                    plots.draw_line(axes, series.line_through(f"{prefix}{what}", points), style)
            axes.set(xscale="log", yscale="log", title=title, xlabel=title)
        figure.supylabel("seconds, and MB, a round")
        sentence = (
            "Seconds that all members take to score, and bytes on the busiest link, of which "
            "one size varies at a time."
        )
        yield Drawn(figure, sentence, series.cells_of(lines))


def by_size(
    cells: Iterable[CellRow],
    start: tuple[float, ...],
    varied: int,
    of: Callable[[CellRow], float | None],
) -> dict[float, list[float]]:
    """Return a number by one size of `sizes_of`, where the others stay as at the start."""
    points: dict[float, list[float]] = {}
    for cell in cells:
        sizes, value = sizes_of(cell), of(cell)
        if sizes is None or value is None:
            continue
        if all(sizes[at] == start[at] for at in range(3) if at != varied):
            points.setdefault(sizes[varied], []).append(value)
    return points


def sizes_of(cell: CellRow) -> tuple[float, float, float] | None:
    """Return n, C and the bytes of a model; None where the row has no sizes."""
    sizes = (cell.extra.get("trainers"), cell.extra.get("committee"), cell.bytes.get("model"))
    return None if None in sizes else (float(sizes[0]), float(sizes[1]), float(sizes[2]))  # type: ignore[arg-type]


DRAWN_BY: Mapping[FigureKind, Draw] = {
    "curves": curves,
    "table": final_table,
    "sweep": sweep,
    "grid": grid,
    "heat": heat,
    "clients": clients,
    "samples": samples,
    "attackers": attackers,
    "time": time,
    "spent": spent,
    "growth": growth,
}
"""All kinds but `bound`, which is part of the repository and not of the installed package."""
UNASKED: tuple[tuple[FigureKind, ...], ...] = (("table", "curves"), ("sweep", "curves"), ("grid",))
"""Figures of an experiment that names none: without an axis, with one, with more."""
