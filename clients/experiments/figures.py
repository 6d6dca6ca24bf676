"""The figures of experiments, from their rows: `cmfl experiment plot`.

A definition names the kinds of its figures; without it they follow from the number of axes. The
caption is part of the figure: it names a point that can be audited. The same rows give the same
bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import sqrt
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, TypeAlias

from clients.experiments import series
from clients.experiments.canvas import (
    COLOURS,
    LEAST_SPAN,
    SETTLED,
    count_rounds,
    draw_bar,
    draw_floor,
    draw_line,
    draw_table,
    name_ticks,
    panels,
    slant_names,
    write,
    zoom,
)
from clients.experiments.costs import (
    RATES,
    Transmission,
    computation_of,
    solo_training_seconds,
    time_axis,
    transmission_of,
)
from clients.experiments.definition import GROWTH_AXIS, GROWTH_START, FigureKind, require_axes
from clients.experiments.report import attack_text, rate_text
from clients.experiments.rows import CellRow, ExperimentRows, sorted_rows
from clients.experiments.series import (
    Estimate,
    PlotLine,
    PlotPanel,
    mean_and_error,
    paired,
    spearman,
)
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Draw: TypeAlias = Callable[[str, Sequence[CellRow], Path], list[Path]]

FULL_LOSS = 0.3
"""A difference from which a cell's colour is full; below, it goes with the root."""
FINAL = "Mean accuracy of the last five measured rounds."
ACCURACY = "test accuracy"
BANDS = "bands are one standard error"
SIGNS = "± is one standard error"
WHISKERS = "whiskers are one standard error"


def draw(
    rows: Mapping[str, ExperimentRows],
    folder: Path,
    drawn_by: Mapping[FigureKind, Draw] | None = None,
) -> list[Path]:
    """Draw every experiment that has rows, and return the SVG and the PNG of each figure.

    Kinds that `drawn_by` lacks are left out. A kind that needs another axis is refused before
    anything is drawn.
    """
    drawn_by = DRAWN_BY if drawn_by is None else drawn_by
    plans = []
    for name, experiment in sorted_rows(rows).items():
        axes = series.swept_axes(experiment.cells)
        asked = () if experiment.definition is None else experiment.definition.figure
        kinds = [kind for kind in asked if kind in drawn_by] or UNASKED[min(2, len(axes))]
        for kind in kinds:
            require_axes(f"experiment {name}", kind, axes)
            plans.append((drawn_by[kind], name, experiment.cells))
    folder.mkdir(parents=True, exist_ok=True)
    return [path for figure, name, cells in plans for path in figure(name, cells, folder)]


def caption_of(
    sentence: str, experiment: str, cells: Sequence[CellRow], errors: str = BANDS
) -> str:
    """Return a caption: what attacks, learning rates, seeds, and a point that can be audited."""
    swept = series.swept_axes(cells)
    constant = [f"{axis} = {labels[0]}" for axis, labels in swept.items() if len(labels) == 1]
    parts = [sentence, attack_text(cells), *([f"{', '.join(constant)}."] if constant else [])]
    parts += [rate_text(cells), _seed_text(experiment, cells, errors)]
    recorded = next(((cell, cell.ledger) for cell in cells if cell.ledger is not None), None)
    if recorded is None:
        return " ".join([*parts, "No point of it is on a chain."])
    cell, at = recorded
    return " ".join(parts) + (
        f" On chain {at.chain_id}: {cell.cell} at {at.address}, head {at.head}, audit "
        f"{at.verdict}; again by: cmfl experiment audit {experiment} {cell.cell}"
    )


def _seed_text(experiment: str, cells: Iterable[CellRow], errors: str) -> str:
    places = series.grouped(
        cells, lambda cell: f"{cell.method}\n{series.scenario_name(cell, cell.axes)}"
    )
    counts = [len({cell.seed for cell in own}) for own in places.values()]
    listed = ", ".join(map(str, sorted({cell.seed for own in places.values() for cell in own})))
    few, most = min(counts), max(counts)
    if most == 1:
        return f"Experiment {experiment}, seed {listed}: one seed a point, and so no errors."
    uneven = "" if few == most else f", {few} to {most} of them at a point"
    alone = "; a point with one seed has none" if few == 1 else ""
    return f"Experiment {experiment}, mean over seeds {listed}{uneven}; {errors}{alone}."


def _floor_text(cells: Sequence[CellRow]) -> str:
    floor = series.floor_of(cells)
    return "" if floor is None else f" The most frequent class alone scores {floor:.3f}."


def _left_out_text(methods: Sequence[str]) -> str:
    return f" Run under one condition alone: {', '.join(methods)}." if methods else ""


def _files(
    file: str, cells: Sequence[CellRow], along: str | None = None
) -> list[tuple[str, PlotPanel]]:
    """Return the file of each panel that is a figure of its own, numbered if there are more."""
    shown = series.panels_of(cells, along)
    if len(shown) == 1:
        return [(file, shown[0])]
    return [(f"{file}-{number}", panel) for number, panel in enumerate(shown, start=1)]


def draw_curves(name: str, cells: Sequence[CellRow], folder: Path) -> list[Path]:
    """Draw accuracy over rounds, a panel for each condition; a single one with its losses."""
    shown = series.panels_of(cells)
    lines = list(series.places_of(shown))
    parts = [lines[at : at + series.MOST_LINES] for at in range(0, len(lines), series.MOST_LINES)]
    paths = []
    for number, part in enumerate(parts, start=1):
        own = [
            PlotPanel(panel.title, {name: of for name, of in panel.lines.items() if name in part})
            for panel in shown
        ]
        views = [(panel.title, panel, QUALITIES[ACCURACY], SETTLED) for panel in own if panel.lines]
        if len(views) == 1:
            views = _qualities(views[0][1])
        wide, size = (4, (2.7, 2.2)) if len(own) > 1 else (2, (4.6, 2.7))
        places = {name: place for place, name in enumerate(part)}
        with panels(len(views), wide, size) as drawn:
            for axes, (title, panel, of, settled) in zip(drawn.axes, views, strict=True):
                found = [series.over_rounds(line, own, of) for line, own in panel.lines.items()]
                for line in found:
                    draw_line(axes, line, places[line.name])
                is_accuracy = of is QUALITIES[ACCURACY]
                zoom(axes, found, series.floor_of(panel.cells) if is_accuracy else None, settled)
                axes.set(title=title, ylabel=ACCURACY if is_accuracy else "loss")
                count_rounds(axes)
            sentence = (
                "Quality over rounds, each panel on the scale of its curves after the first fifth "
                f"of the rounds.{_floor_text(cells)}"
            )
            file = f"{name}-curves" if len(parts) == 1 else f"{name}-curves-{number}"
            paths += write(drawn, folder, file, caption_of(sentence, name, cells))
    return paths


QUALITIES: dict[str, Callable[[CellRow], Sequence[float | None]]] = {
    ACCURACY: lambda cell: cell.accuracy,
    "test loss": lambda cell: cell.loss,
    "training loss, all clients": lambda cell: cell.training_loss,
}
_View: TypeAlias = tuple[str, PlotPanel, Callable[[CellRow], Sequence[float | None]], float]
"""A panel of curves: its title, what it is of, the quality, and the share of rounds to settle."""


def _qualities(panel: PlotPanel) -> list[_View]:
    views = [
        (title, panel, of, SETTLED)
        for title, of in QUALITIES.items()
        if any(value is not None for cell in panel.cells for value in of(cell))
    ]
    return [*views, (f"{ACCURACY}, enlarged", panel, QUALITIES[ACCURACY], 0.5)]


def draw_final_table(name: str, cells: Sequence[CellRow], folder: Path) -> list[Path]:
    """Draw the final accuracy of every method under every condition, as a table."""
    filled, left_out = series.well_filled(cells)
    swept = [axis for axis, labels in series.swept_axes(filled).items() if len(labels) > 1]
    methods = series.by_method(filled)
    rows = series.grouped(filled, lambda cell: series.scenario_name(cell, swept))
    finals = {
        (row, method): _finals(cell for cell in own if cell.method == method)
        for row, own in rows.items()
        for method in methods
    }
    # The fewer stand side by side, so that no figure is wider than a page.
    lines, columns = list(rows), list(methods)
    if is_turned := len(lines) < len(columns):
        lines, columns = columns, lines
        finals = {(method, row): found for (row, method), found in finals.items()}
    table = [[finals[line, column] for column in columns] for line in lines]
    with panels(1, size=(2.1 + 0.8 * len(columns), 1.3 + 0.36 * len(lines))) as drawn:
        _draw_finals(drawn.axes[0], table, (lines, columns))
        slant_names(drawn.axes[0])
        names = ("method", "condition") if is_turned else ("condition", "method")
        drawn.axes[0].set(ylabel=names[0], xlabel=names[1])
        sentence = f"{FINAL}{_floor_text(filled)}{_left_out_text(left_out)}"
        return write(drawn, folder, f"{name}-table", caption_of(sentence, name, cells, SIGNS))


def draw_bars(name: str, cells: Sequence[CellRow], folder: Path) -> list[Path]:
    """Draw the final accuracy as bars, a panel for each condition."""
    shown = series.panels_of(cells)
    places = series.places_of(shown)
    with panels(len(shown), columns=4, size=(1.2 + 0.45 * len(places), 2.8), sharey=True) as drawn:
        for axes, panel in zip(drawn.axes, shown, strict=True):
            for line, own in panel.lines.items():
                if finals := _finals(own):
                    draw_bar(axes, places[line], mean_and_error(finals))
            draw_floor(axes, series.floor_of(panel.cells))
            axes.set(title=panel.title, xlabel="method")
            axes.set_xticks(range(len(places)), list(places))
            slant_names(axes)
        drawn.name_y(ACCURACY)
        caption = caption_of(f"{FINAL}{_floor_text(cells)}", name, cells, WHISKERS)
        return write(drawn, folder, f"{name}-bars", caption)


def draw_sweep(name: str, cells: Sequence[CellRow], folder: Path) -> list[Path]:
    """Draw the final accuracy along the first axis, a panel for each condition."""
    axis = next(iter(cells[0].axes))
    positions = series.positions_of(cells, axis)
    shown = series.panels_of(cells, along=axis)
    places = series.places_of(shown)
    with panels(len(shown), size=(4.4, 2.8), columns=2, sharey=True) as drawn:
        for axes, panel in zip(drawn.axes, shown, strict=True):
            for line, own in panel.lines.items():
                found = series.along_axis(line, own, (axis, positions), lambda cell: cell.final)
                draw_line(axes, found, places[line])
            draw_floor(axes, series.floor_of(panel.cells))
            axes.set_title(panel.title)
            name_ticks(axes, axis, positions)
        drawn.name_y(ACCURACY)
        caption = caption_of(f"{FINAL}{_floor_text(cells)}", name, cells)
        return write(drawn, folder, f"{name}-sweep", caption)


def draw_grid(name: str, cells: Sequence[CellRow], folder: Path) -> list[Path]:
    """Draw the final accuracy over the first two axes, a panel for each method and condition."""
    swept = series.swept_axes(cells)
    down, across, *others = swept
    others = [axis for axis in others if len(swept[axis]) > 1]
    groups = series.grouped(
        cells, lambda cell: f"{cell.method}, {series.scenario_name(cell, others)}"
    )
    size = (1.4 + 0.6 * len(swept[across]), 1.0 + 0.48 * len(swept[down]))
    with panels(len(groups), columns=2, size=size) as drawn:
        for axes, (title, own) in zip(drawn.axes, groups.items(), strict=True):
            labels = (series.swept_axes(own)[down], series.swept_axes(own)[across])
            table = [
                [
                    _finals(c for c in own if (c.axes[down], c.axes[across]) == (y, x))
                    for x in labels[1]
                ]
                for y in labels[0]
            ]
            _draw_finals(axes, table, labels)
            axes.set(title=title, xlabel=across, ylabel=down)
        caption = caption_of(f"{FINAL}{_floor_text(cells)}", name, cells, SIGNS)
        return write(drawn, folder, f"{name}-grid", caption)


def _finals(cells: Iterable[CellRow]) -> list[float]:
    return [cell.final for cell in cells if cell.final is not None]


def _draw_finals(
    axes: Axes,
    table: Sequence[Sequence[Sequence[float]]],
    names: tuple[Sequence[str], Sequence[str]],
) -> None:
    """Draw a table of means over seeds, in greys from the least to the largest."""
    found = [[mean_and_error(values) if values else None for values in line] for line in table]
    means = [[None if cell is None else cell.mean for cell in line] for line in found]
    numbers = [mean for line in means for mean in line if mean is not None] or [0.0]
    low = min(numbers)
    shades = {"cmap": "Greys", "vmin": low - 0.1, "vmax": max(*numbers, low + LEAST_SPAN) + 0.1}
    draw_table(axes, means, names, [[_text(cell) for cell in line] for line in found], shades)


def _text(found: Estimate | None) -> str:
    if found is None:
        return "–"  # noqa: RUF001 - a dash, as tables have it
    return f"{found.mean:.3f}" + ("" if found.error is None else f"\n±{found.error:.3f}")


def draw_heat(name: str, cells: Sequence[CellRow], folder: Path) -> list[Path]:
    """Draw the final accuracy less that of the first method under the first condition.

    Differences are paired by seed. Points of axes have a panel each, with their own reference.
    """
    columns, left_out = series.well_filled(cells)
    swept = [axis for axis, labels in series.swept_axes(cells).items() if len(labels) > 1]
    # The reference may be of a method that has no column.
    shown = series.grouped(cells, lambda cell: ", ".join(cell.axes[axis] for axis in swept))
    methods = series.by_method(columns)
    rates = {
        method: sorted({cell.learning_rate for cell in own}) for method, own in methods.items()
    }
    titles = list(methods)
    if not swept and len({rate for of in rates.values() for rate in of}) > 1:
        titles = [f"{m}, rate {'/'.join(f'{rate:g}' for rate in of)}" for m, of in rates.items()]
    reference = (cells[0].method, cells[0].condition)
    most = max(len({cell.condition for cell in own}) for own in shown.values())
    shades = {"cmap": "RdBu", "vmin": -1.25, "vmax": 1.25}
    with panels(len(shown), size=(1.9 + 0.62 * len(methods), 1.5 + 0.36 * most)) as drawn:
        for axes, (title, own) in zip(drawn.axes, shown.items(), strict=True):
            conditions = list(dict.fromkeys(cell.condition for cell in own))
            table = [[_difference(own, (m, c), reference) for m in methods] for c in conditions]
            tones = [
                [None if cell is None else tone_of(cell.mean) for cell in line] for line in table
            ]
            texts = [[_difference_text(cell) for cell in line] for line in table]
            draw_table(axes, tones, (conditions, titles), texts, shades)
            slant_names(axes)
            calm = _finals(cell for cell in own if (cell.method, cell.condition) == reference)
            level = f"{', '.join(reference)}: {mean_and_error(calm).mean:.3f}" if calm else ""
            heading = "; ".join(filter(None, [title, level]))
            axes.set(title=heading, xlabel="method", ylabel="attack")
        sentence = (
            f"{FINAL[:-1]}, less that of {reference[0]} under {reference[1]}, paired by seed: red "
            f"is a loss.{_floor_text(cells)}{_left_out_text(left_out)}"
        )
        return write(drawn, folder, f"{name}-heat", caption_of(sentence, name, cells, SIGNS))


def tone_of(difference: float) -> float:
    """Return the tone of a difference, from -1 for a full loss to 1 for a full gain."""
    tone = min(1.0, sqrt(abs(difference) / FULL_LOSS))
    return -tone if difference < 0 else tone


def _difference_text(difference: Estimate | None) -> str:
    if difference is None:
        return ""
    sign = "\u2212" if round(difference.mean, 3) < 0 else "+"
    text = f"{sign}{abs(difference.mean):.3f}"
    return text if difference.error is None else f"{text}\n±{difference.error:.3f}"


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
    seeds = sorted(own.keys() & theirs.keys())
    return paired([own[s] for s in seeds], [theirs[s] for s in seeds]) if seeds else None


def draw_clients(name: str, cells: Sequence[CellRow], folder: Path) -> list[Path]:
    """Draw the paper's figure of clients: aggregations, accuracy, and one against the other."""
    titles = (
        ("clients aggregated at most x times", "x", "share of clients"),
        ("clients with accuracy at most x", "x", "share of clients"),
        ("times aggregated, by accuracy", "client's accuracy, classes of 0.2", "times aggregated"),
    )
    paths = []
    for file, panel in _files(f"{name}-clients", cells):
        has_accuracy = any(cell.client_accuracy is not None for cell in panel.cells)
        with panels(3 if has_accuracy else 1) as drawn:
            for place, (line, own) in enumerate(panel.lines.items()):
                measured = [cell for cell in own if cell.client_accuracy is not None]
                found = (
                    series.share_at_most(line, own, lambda cell: cell.times_aggregated),
                    series.share_at_most(line, measured, accuracies),
                    series.times_by_accuracy(line, measured),
                )
                for axes, points in zip(drawn.axes, found, strict=False):
                    draw_line(axes, points, place)
            for axes, (title, x, y) in zip(drawn.axes, titles, strict=False):
                axes.set(title=title, xlabel=x, ylabel=y)
            sentence = (
                "How often clients are aggregated, and how accurate the last model is on them."
            )
            paths += write(drawn, folder, file, caption_of(sentence, name, panel.cells))
    return paths


def draw_samples(name: str, cells: Sequence[CellRow], folder: Path) -> list[Path]:
    """Draw how often clients are aggregated, by their number of samples."""
    shown = series.panels_of(cells)
    places = series.places_of(shown)
    with panels(len(shown), sharey=True, size=(4.2, 2.8)) as drawn:
        ranks = []
        for axes, panel in zip(drawn.axes, shown, strict=True):
            for line, own in panel.lines.items():
                draw_line(axes, series.times_by_samples(line, own), places[line])
                found = [value for value in map(correlation, own) if value is not None]
                if found:
                    ranks.append(f"{line}, {panel.title} {mean_and_error(found).mean:+.2f}")
            axes.set(title=panel.title, xlabel="fifth of the clients, fewest samples first")
            axes.set_xticks(range(1, 6))
        drawn.name_y("times aggregated")
        sentence = (
            "How often clients are aggregated, by their number of samples. Spearman's correlation "
            f"of the two: {'; '.join(ranks) or 'none'}."
        )
        return write(drawn, folder, f"{name}-samples", caption_of(sentence, name, cells))


def draw_attackers(name: str, cells: Sequence[CellRow], folder: Path) -> list[Path]:
    """Draw the attackers in a round along the first axis, a panel for each method and condition."""
    axis = next(iter(cells[0].axes))
    scale = (axis, series.positions_of(cells, axis))
    shown = series.panels_of(cells, along=axis)
    groups = {
        line if len(shown) == 1 else f"{line}, {panel.title}": own
        for panel in shown
        for line, own in panel.lines.items()
    }
    counts: dict[str, Callable[[CellRow], float | None]] = {
        "N1, training": lambda cell: fmean(cell.malicious_trained),
        "N2, on the committee": lambda cell: (
            fmean(cell.malicious_members) if cell.malicious_members else None
        ),
        "N3, aggregated": lambda cell: fmean(cell.malicious_aggregated),
    }
    with panels(len(groups) + 1, sharex=True) as drawn:
        last = drawn.axes[-1]
        for place, (axes, (title, own)) in enumerate(zip(drawn.axes, groups.items(), strict=False)):
            for style, (what, of) in enumerate(counts.items()):
                draw_line(axes, series.along_axis(what, own, scale, of), style)
            axes.set(title=f"{title}: attackers in a round", ylabel="clients")
            line = series.along_axis(f"{title}, accuracy", own, scale, lambda cell: cell.final)
            draw_line(last, line, place + len(counts))
        draw_floor(last, series.floor_of(cells))
        last.set(title="final test accuracy", ylabel=ACCURACY)
        for axes in drawn.axes:
            name_ticks(axes, *scale)
        sentence = "Attackers in a round, mean over its rounds, and what becomes of the model."
        return write(drawn, folder, f"{name}-attackers", caption_of(sentence, name, cells))


def accuracies(cell: CellRow) -> list[float]:
    """Return the accuracy on every client that has test samples, in hundredths."""
    return [round(value, 2) for value in cell.client_accuracy or () if value is not None]


def correlation(cell: CellRow) -> float | None:
    """Return Spearman's correlation of times aggregated and number of samples."""
    return spearman(cell.times_aggregated, cell.samples) if cell.samples else None


def draw_time(name: str, cells: Sequence[CellRow], folder: Path) -> list[Path]:
    """Draw accuracy against simulated time, by three models of transmission."""
    ways = [(model, rate) for model in Transmission for rate in RATES]
    paths = []
    for file, panel in _timed_files(f"{name}-time", cells):
        alone = solo_training_seconds(panel.cells)
        with panels(len(ways), sharey=True, size=(3.2, 2.2)) as drawn:
            for axes, (model, rate) in zip(drawn.axes, ways, strict=True):
                for place, (line, own) in enumerate(panel.lines.items()):
                    found = series.over_rounds(line, own, lambda cell: cell.accuracy)
                    clocks = [time_axis(cell, model, rate, training=alone) for cell in own]
                    at = [fmean(clock[int(number) - 1] for clock in clocks) for number in found.x]
                    draw_line(axes, PlotLine(line, tuple(at), found.mean, found.error), place)
                draw_floor(axes, series.floor_of(panel.cells))
                axes.set(title=f"{model}, {rate:g} Mbit/s", xscale="log")
                axes.set_xlabel("simulated seconds")
                axes.minorticks_off()
            drawn.name_y(ACCURACY)
            sentence = (
                "Test accuracy against seconds of computation and transmission: by the paper's "
                "text, by the authors' script, or counted as it is really sent."
            )
            paths += write(drawn, folder, file, caption_of(sentence, name, panel.cells))
    return paths


def draw_spent(name: str, cells: Sequence[CellRow], folder: Path) -> list[Path]:
    """Draw the paper's figure of computation and transmission time."""
    paths = []
    for file, panel in _timed_files(f"{name}-spent", cells):
        alone = solo_training_seconds(panel.cells)
        with panels(len(RATES), size=(3.4, 2.8)) as drawn:
            for axes, rate in zip(drawn.axes, RATES, strict=True):
                for place, own in enumerate(panel.lines.values()):
                    base = mean_and_error([computation_of(c, alone) * c.rounds for c in own])
                    sent = [sum(transmission_of(c, Transmission.COUNTED, rate)) for c in own]
                    draw_bar(axes, place, base, color=COLOURS[0], label="computation")
                    style = {"bottom": base.mean, "hatch": "///", "color": "0.8"}
                    draw_bar(axes, place, mean_and_error(sent), label="transmission", **style)
                axes.set_xticks(range(len(panel.lines)), list(panel.lines))
                slant_names(axes)
                axes.set(title=f"{rate:g} Mbit/s", xlabel="method")
            drawn.name_y("seconds of the whole run")
            sentence = "Parts of the simulated time, by the bytes that are really sent."
            paths += write(drawn, folder, file, caption_of(sentence, name, panel.cells, WHISKERS))
    return paths


def _timed_files(file: str, cells: Sequence[CellRow]) -> list[tuple[str, PlotPanel]]:
    """Return the figures of the cells that can be put on a time axis."""
    timed = []
    for cell in cells:
        try:
            time_axis(cell, Transmission.COUNTED, RATES[0])
        except ConfigurationError:
            continue
        timed.append(cell)
    return _files(file, timed) if timed else []


def draw_growth(name: str, cells: Sequence[CellRow], folder: Path) -> list[Path]:
    """Draw scoring time and bytes against n, C and |w|, on logarithmic axes."""
    start = next((sizes_of(cell) for cell in cells if cell.axes[GROWTH_AXIS] == GROWTH_START), None)
    if start is None:
        return []
    titles = ("n, training clients", "C, members", "bytes of a model")
    paths = []
    for file, panel in _files(f"{name}-growth", cells, along=GROWTH_AXIS):
        with panels(3, size=(3.4, 2.8)) as drawn:
            for varied, (axes, title) in enumerate(zip(drawn.axes, titles, strict=True)):
                for place, (line, own) in enumerate(panel.lines.items()):
                    prefix = f"{line}, " if len(panel.lines) > 1 else ""
                    for style, (what, of) in enumerate(
                        (
                            ("scoring, seconds a round", _scoring_seconds),
                            ("busiest link, MB a round", _busiest_megabytes),
                        )
                    ):
                        points = by_size(own, start, varied, of)
                        line_ = series.line_through(f"{prefix}{what}", points)
                        draw_line(axes, line_, 2 * place + style)
                axes.set(xscale="log", yscale="log", title=title, xlabel=title)
            drawn.name_y("seconds, and MB, a round")
            sentence = (
                "Seconds that all members take to score, and bytes on the busiest link, of which "
                "one size varies at a time."
            )
            paths += write(drawn, folder, file, caption_of(sentence, name, panel.cells))
    return paths


def by_size(
    cells: Iterable[CellRow],
    start: tuple[float, ...],
    varied: int,
    of: Callable[[CellRow], float | None],
) -> dict[float, list[float]]:
    """Return a number by one size of `sizes_of`, where the others are those of the start."""
    points: dict[float, list[float]] = {}
    for cell in cells:
        sizes, value = sizes_of(cell), of(cell)
        if sizes is None or value is None:
            continue
        if all(sizes[at] == start[at] for at in range(3) if at != varied):
            points.setdefault(sizes[varied], []).append(value)
    return points


def _scoring_seconds(cell: CellRow) -> float | None:
    seconds = cell.seconds.scoring
    return None if seconds is None else seconds / cell.rounds


def _busiest_megabytes(cell: CellRow) -> float | None:
    return cell.bytes["busiest"] / cell.rounds / 1e6 if "busiest" in cell.bytes else None


def sizes_of(cell: CellRow) -> tuple[float, float, float] | None:
    """Return n, C and the bytes of a model; None where the row has no sizes."""
    sizes = (cell.extra.get("trainers"), cell.extra.get("committee"), cell.bytes.get("model"))
    return None if None in sizes else (float(sizes[0]), float(sizes[1]), float(sizes[2]))  # type: ignore[arg-type]


DRAWN_BY: Mapping[FigureKind, Draw] = {
    "curves": draw_curves,
    "table": draw_final_table,
    "bars": draw_bars,
    "sweep": draw_sweep,
    "grid": draw_grid,
    "heat": draw_heat,
    "clients": draw_clients,
    "samples": draw_samples,
    "attackers": draw_attackers,
    "time": draw_time,
    "spent": draw_spent,
    "growth": draw_growth,
}
"""All kinds but `bound`, which is part of the repository and not of the installed package."""
UNASKED: tuple[tuple[FigureKind, ...], ...] = (("table", "curves"), ("sweep", "curves"), ("grid",))
"""Figures of an experiment that names none: without an axis, with one, with more."""
