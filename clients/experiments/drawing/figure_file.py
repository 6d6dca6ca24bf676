"""A figure as files, SVG and PNG: the same bytes whenever its rows are the same.

Text in the SVG stays text, so that a figure is small, can be searched, and is read at its own size.
The caption is part of the figure: it names a point that can be audited.
"""

from __future__ import annotations

import re
from io import BytesIO
from textwrap import fill
from typing import TYPE_CHECKING, Any

from clients.experiments.drawing.series import by_method, grouped, scenario_name, swept_axes
from ledger.io.named_files import write_named

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from clients.experiments.drawing.canvas import Panels
    from clients.experiments.rows import CellRow

BANDS = "bands are one standard error"
SIGNS = "± is one standard error"
WHISKERS = "whiskers are one standard error"
"""What a caption says of errors."""

CALM = "nobody attacks"
MOST_CONDITIONS = 4
"""Conditions whose attacks a caption names one by one."""

_PNG_DPI = 110
_LEAST_WIDTH = 6.8
"""In inches, so that a caption has room."""
_PLACES = re.compile(rb"(-?\d+\.\d)\d+")
_STEPS = re.compile(rb"\s*\b([MLCQz])\s*")
_INDENT = re.compile(rb"\n +<")
_GEOMETRY = re.compile(rb' (?:d|x|y|transform)="[^"]*"')
_PATH = re.compile(rb' d="((?:[ML]-?\d+(?:\.\d)? -?\d+(?:\.\d)?)+)\s*(z?)"')
_POINT = re.compile(rb"([ML])(\S+?) ([^MLz]+)")
_STYLE = re.compile(rb' style="([^"]*)"')
_SHEET = b"</style>"

_INCHES = 0.16
"""Height of a line of the caption."""
_LETTERS = 14.5
"""Letters of the caption in an inch."""
_LEAST_COLUMN, _LETTER = 1.7, 0.08
"""Width of a column of the legend, and of a letter in it, in inches."""


def write(drawn: Panels, folder: Path, name: str, caption: str) -> list[Path]:
    """Write a figure as SVG and PNG, its legend and caption below the panels.

    Args:
        drawn: the figure.
        folder: where to; it is there.
        name: of the files, without an extension.
        caption: below the figure.

    Returns:
        The two files.

    Raises:
        OSError: they cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - as in `panels`
    from matplotlib.backends.backend_svg import FigureCanvasSVG  # noqa: PLC0415

    figure = drawn.figure
    width, height = figure.get_size_inches()
    width = max(width, _LEAST_WIDTH)
    text = fill(caption, int(width * _LETTERS), break_on_hyphens=False)
    figure.set_size_inches(width, height)  # the legend has as many columns as there is room for
    _draw_legend(drawn)
    room = (text.count("\n") + 2) * _INCHES
    figure.set_size_inches(width, height + room)
    engine = figure.get_layout_engine()
    assert engine is not None, "panels are laid out"
    engine.set(rect=(0, room / (height + room), 1, height / (height + room)))  # type: ignore[call-arg]
    figure.text(0.008, 0.5 * _INCHES / (height + room), text, fontsize=8, va="bottom", ha="left")
    # Laid out once: as long a matter as to draw.
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    paths = [folder / f"{name}.svg", folder / f"{name}.png"]
    drawing = BytesIO()
    # Not by `savefig`, which draws all of it once more before, to lay it out.
    svg: Any = FigureCanvasSVG(figure)
    png: Any = FigureCanvasAgg(figure)
    svg.print_svg(drawing, metadata={"Date": None, "Creator": None})
    write_named(paths[0], _squeezed(drawing.getvalue()))
    figure.set_dpi(_PNG_DPI)
    pixels = BytesIO()
    png.print_png(pixels, metadata={"Software": None})
    write_named(paths[1], pixels.getvalue())
    return paths


def _squeezed(svg: bytes) -> bytes:
    """Return an SVG rounded to a tenth of a point, which saves two thirds of the file."""

    def shorter(found: re.Match[bytes]) -> bytes:
        return _PATH.sub(_relative, _STEPS.sub(rb"\1", _PLACES.sub(rb"\1", found[0])))

    return _styled(_INDENT.sub(b"\n<", _GEOMETRY.sub(shorter, svg)))


def _styled(svg: bytes) -> bytes:
    """Return an SVG that says each style once, in its sheet."""
    names = {
        style: b"s%d" % number for number, style in enumerate(dict.fromkeys(_STYLE.findall(svg)))
    }
    sheet = b"".join(b".%s{%s}" % (name, style) for style, name in names.items())
    classed = _STYLE.sub(lambda found: b' class="%s"' % names[found[1]], svg)
    return classed.replace(_SHEET, sheet + _SHEET, 1)


def _relative(path: re.Match[bytes]) -> bytes:
    """Return a path of straight lines with each point from the one before, in the same tenths."""
    path_text, previous, x, y = "", "", 0, 0
    for letter, across, down in _POINT.findall(path[1]):
        there = round(10 * float(across)), round(10 * float(down))
        if letter == b"M":
            path_text += f"M{there[0] / 10:g} {there[1] / 10:g}"
        else:
            path_text += " " if previous == letter else "l"
            path_text += f"{(there[0] - x) / 10:g} {(there[1] - y) / 10:g}"
        previous, (x, y) = letter, there
    return f' d="{path_text.replace(" -", "-")}{path[2].decode()}"'.encode()


def _draw_legend(drawn: Panels) -> None:
    """Draw one legend for all panels above them, each name once."""
    named: dict[str, Any] = {}
    for axes in drawn.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
    if named:
        column = max(_LEAST_COLUMN, 0.6 + max(map(len, named)) * _LETTER)
        columns = max(1, int(drawn.figure.get_figwidth() / column))
        drawn.figure.legend(
            list(named.values()), list(named), loc="outside upper center", ncols=columns
        )


def caption_of(
    sentence: str, experiment: str, cells: Sequence[CellRow], errors: str = BANDS
) -> str:
    """Return a caption: what attacks, learning rates, seeds, and a point that can be audited.

    Args:
        sentence: what the figure shows.
        experiment: its name.
        cells: that are drawn.
        errors: how the figure shows them, where there is more than one seed.
    """
    parts = [
        sentence,
        attack_text(cells),
        *_constant_axes(cells),
        rate_text(cells),
        _seed_text(experiment, cells, errors),
    ]
    recorded = next((cell for cell in cells if cell.ledger is not None), None)
    if recorded is None or recorded.ledger is None:
        parts.append("No point of it is on a chain.")
    else:
        at = recorded.ledger
        parts.append(
            f"On chain {at.chain_id}: {recorded.cell} at {at.address}, head {at.head}, audit "
            f"{at.verdict}; again by: cmfl experiment audit {experiment} {recorded.cell}"
        )
    return " ".join(parts)


def attack_text(cells: Iterable[CellRow]) -> str:
    """Return who attacks under which condition, by the attackers that the rows name."""
    conditions = grouped(cells, lambda cell: cell.condition)
    texts = {condition: _attack_of(condition, own) for condition, own in conditions.items()}
    if len(set(texts.values())) == 1 and CALM in texts.values():
        return "Nobody attacks."
    if len(texts) <= MOST_CONDITIONS:
        named = (
            text if text.startswith(f"{condition} by") else f"{condition}: {text}"
            for condition, text in texts.items()
        )
        return f"{'; '.join(named)}."
    calm = [condition for condition, text in texts.items() if text == CALM]
    attacked = [cell for name, own in conditions.items() if name not in calm for cell in own]
    everywhere = f"in all {len(texts)} conditions" + (f" but {', '.join(calm)}" if calm else "")
    return f"{_percent(attacked)} of the clients attack {everywhere}."


def rate_text(cells: Iterable[CellRow]) -> str:
    """Return the learning rates, by method where methods differ."""
    methods: dict[str, list[str]] = {}
    for method, own in by_method(cells).items():
        rates = dict.fromkeys(f"{cell.learning_rate:g}" for cell in own)
        methods.setdefault(" and ".join(rates), []).append(method)
    if len(methods) == 1:
        return f"Learning rate {next(iter(methods))}."
    listed = "; ".join(f"{rates} of {', '.join(names)}" for rates, names in methods.items())
    return f"Learning rate {listed}."


def _attack_of(condition: str, cells: Sequence[CellRow]) -> str:
    attacked = [cell for cell in cells if cell.malicious]
    if not attacked:
        return CALM
    # Rows of earlier versions name no attack: then their condition does.
    named = dict.fromkeys(cell.attack for cell in attacked if cell.attack is not None)
    attacks = " or ".join(named) if named else f"the attack {condition}"
    return f"{attacks} by {_percent(cells)} of the clients"


def _percent(cells: Iterable[CellRow]) -> str:
    shares = {round(100 * len(cell.malicious) / len(cell.samples)) for cell in cells}
    return " to ".join(map(str, sorted({min(shares), max(shares)}))) + " %"


def _constant_axes(cells: Iterable[CellRow]) -> list[str]:
    """Return the axes that neither lines nor panels tell apart."""
    swept = swept_axes(cells)
    constant = [f"{axis} = {labels[0]}" for axis, labels in swept.items() if len(labels) == 1]
    return [f"{', '.join(constant)}."] if constant else []


def _seed_text(experiment: str, cells: Iterable[CellRow], errors: str) -> str:
    places = grouped(cells, lambda cell: f"{cell.method}\n{scenario_name(cell, cell.axes)}")
    counts = [len({cell.seed for cell in own}) for own in places.values()]
    seeds = sorted({cell.seed for own in places.values() for cell in own})
    listed = ", ".join(map(str, seeds))
    if max(counts) == 1:
        return f"Experiment {experiment}, seed {listed}: one seed a point, and so no errors."
    few = min(counts)
    uneven = "" if few == max(counts) else f", {few} to {max(counts)} of them at a point"
    alone = "; a point with one seed has none" if few == 1 else ""
    return f"Experiment {experiment}, mean over seeds {listed}{uneven}; {errors}{alone}."
