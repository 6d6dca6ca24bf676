"""The matrix as a page of the documentation."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from tests.federation.cells import CELLS
from tests.federation.checks import Wrong

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.federation.state import State, Tally

BEGIN, END = "<!-- begin of the table -->", "<!-- end of the table -->"


def written(page: Path, states: Sequence[State]) -> None:
    text = page.read_text("utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{page} has no place for the table")
    page.write_text(f"{before}{BEGIN}\n{table(states)}\n{END}{after}", "utf-8")


def table(states: Sequence[State]) -> str:
    """Return the table: a row for each cell, two columns for each chain, and what was wrong."""
    heads = "".join(f" {s.chain}: rounds | recovery, median and most (s) |" for s in states)
    lines = [f"| fault | victim |{heads}", "| --- | --- |" + " ---: | ---: |" * len(states)]
    for cell in CELLS:
        columns = "".join(_columns(state.cells[cell]) for state in states)
        lines.append(f"| {cell.fault} | {cell.role} |{columns}")
    lines.append("")
    lines += [_sums(state) for state in states]
    return "\n".join(lines)


def _columns(tally: Tally) -> str:
    if not tally.recovery_seconds:
        return f" {tally.done} | |"
    middle, most = statistics.median(tally.recovery_seconds), max(tally.recovery_seconds)
    return f" {tally.done} | {middle:.1f}, {most:.1f} |"


def _sums(state: State) -> str:
    wrong = {kind: sum(v.wrong is kind for v in state.violations) for kind in Wrong}
    said = ", ".join(f"{kind} {count}" for kind, count in wrong.items())
    return (
        f"* **{state.chain}**: {state.rounds} rounds in {state.seconds / 3600:.2f} h, "
        f"{state.abandoned} of them abandoned, {state.drawn} of these since chance drew no "
        f"primary but the faulty one, {state.beyond} with too many away by chance, "
        f"{state.federations} federations, audits of {state.audited} rounds. Of what must not be: "
        f"{said}."
    )
