"""A figure as files, SVG and PNG: the same bytes whenever its rows are the same.

Text in the SVG stays text, so that a figure is small, can be searched, and is read at its own size.
The caption is part of the figure: it names a point that can be audited.
"""

from __future__ import annotations

import re
from io import BytesIO
from textwrap import fill
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from clients.experiments.drawing.canvas import Panels
    from clients.experiments.rows import CellRow

BANDS = "bands are one standard error"
SIGNS = "± is one standard error"
NO_ERRORS = "means over the seeds"
"""What a caption says of errors."""

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
    figure.savefig(drawing, format="svg", metadata={"Date": None, "Creator": None})
    paths[0].write_bytes(_squeezed(drawing.getvalue()))
    figure.savefig(paths[1], dpi=110, metadata={"Software": None})
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
        columns = max(1, int(drawn.figure.get_figwidth() / 1.7))
        drawn.figure.legend(
            list(named.values()), list(named), loc="outside upper center", ncols=columns
        )


def caption_of(
    sentence: str, experiment: str, cells: Sequence[CellRow], errors: str = BANDS
) -> str:
    """Return a caption with the seeds and a point of the figure that can be audited.

    Args:
        sentence: what the figure shows.
        experiment: its name.
        cells: that are drawn.
        errors: how the figure shows them, where there is more than one seed.
    """
    seeds = sorted({cell.seed for cell in cells})
    listed = ", ".join(map(str, seeds))
    seed_text = f"s {listed}; {errors}" if len(seeds) > 1 else f" {listed}, and so no errors"
    parts = [f"{sentence} Experiment {experiment}, seed{seed_text}."]
    recorded = next((cell for cell in cells if cell.ledger is not None), None)
    if recorded is None or recorded.ledger is None:
        return f"{parts[0]} No point of it is on a chain."
    at = recorded.ledger
    parts.append(
        f"On chain {at.chain_id}: {recorded.cell} at {at.address}, head {at.head}, audit "
        f"{at.verdict}; again by: cmfl experiment audit {experiment} {recorded.cell}"
    )
    return " ".join(parts)
