"""The report on experiments, from their rows alone: `cmfl experiment report`."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from clients.experiments.catalogue import names
from clients.experiments.drawing.figure_file import attack_text, rate_text
from clients.experiments.tables import DASH, format_range, markdown, sorted_rows, tables

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from clients.experiments.rows import CellRow, ExperimentRows


def report(rows: Mapping[str, ExperimentRows], figures: Sequence[str] = ()) -> str:
    """Return the report as Markdown.

    Args:
        rows: of each experiment, by its name.
        figures: links to figures; each is shown with the experiment whose name its file begins
            with.
    """
    rows = sorted_rows(rows)
    lines = [
        "# What the experiments say",
        "",
        "Made by `cmfl experiment report` from rows, and from nothing else. ± is one standard "
        "error over seeds.",
        "",
        *overview(rows),
        "",
        "## Learning rates",
        "",
        *learning_rates(rows),
        "",
        *sections(rows, figures),
    ]
    return "\n".join(lines).rstrip() + "\n"


def overview(rows: Mapping[str, ExperimentRows]) -> list[str]:
    """Return the table of all experiments: cells, tuning runs, audits and CPU time."""
    table = []
    for name, experiment in rows.items():
        cells, trials = experiment.cells, experiment.trials
        cpu_seconds = sum(cell.seconds.cpu for cell in cells)
        cpu_seconds += sum(trial.seconds.cpu for trial in trials)
        audits = [cell.ledger.verdict for cell in cells if cell.ledger is not None]
        passed = f"{sum(verdict == 'passed' for verdict in audits)} of {len(audits)}"
        table.append(
            [
                _number(cells),
                name,
                str(len(cells)),
                str(len(trials)),
                passed if audits else "none",
                f"{cpu_seconds / 60:.1f}",
            ]
        )
    return markdown(
        ["number", "experiment", "cells", "tuning runs", "audits passed", "CPU minutes"], table
    )


def learning_rates(
    rows: Mapping[str, ExperimentRows], papers_rate: Callable[[str], str] | None = None
) -> list[str]:
    """Return the table of the chosen learning rates.

    Args:
        rows: of each experiment.
        papers_rate: returns the paper's rate for an experiment, as a further column.
    """
    table = []
    for name, experiment in rows.items():
        for choice in experiment.choices:
            finals = ", ".join(f"{factor}: {mean:.3f}" for factor, mean in choice.finals.items())
            rates = dict.fromkeys(
                f"{cell.learning_rate:g}"
                for cell in experiment.cells
                if cell.method == choice.method
            )
            used, seeds = ", ".join(rates) or DASH, str(len(choice.seeds))
            table.append([name, choice.method, f"{choice.factor:g}", used, seeds, finals])
    if not table:
        return ["No rate was chosen."]
    head = ["experiment", "method", "factor", "rate", "seeds", "accuracy by factor"]
    if papers_rate is not None:
        head.append("paper's rate")
        table = [[*line, papers_rate(line[0])] for line in table]
    return markdown(head, table)


def sections(rows: Mapping[str, ExperimentRows], figures: Sequence[str]) -> list[str]:
    """Return the section of each experiment: tables, figures and audited points."""
    lines: list[str] = []
    for name, experiment in rows.items():
        lines += _section(name, experiment, _figures_of(name, figures, rows))
    return lines


def _number(cells: Sequence[CellRow]) -> str:
    return DASH if cells[0].number is None else str(cells[0].number)


def _section(name: str, experiment: ExperimentRows, figures: Sequence[str]) -> list[str]:
    cells, definition = experiment.cells, experiment.definition
    number = "" if cells[0].number is None else f"{cells[0].number}. "
    title = "" if definition is None else f"{definition.title}: "
    seeds = ", ".join(map(str, sorted({cell.seed for cell in cells})))
    rounds = format_range((cell.rounds for cell in cells), lambda count: f"{count:g}")
    floors = [cell.floor for cell in cells if cell.floor is not None]
    floor = f", floor {format_range(floors, lambda value: f'{value:.3f}')}" if floors else ""
    lines = [
        f"## {number}{title}`{name}`",
        "",
        f"Seeds {seeds}; {rounds} rounds{floor}. {attack_text(cells)} {rate_text(cells)}",
        "",
        *tables(cells),
    ]
    for link in figures:
        lines += [f"![{PurePosixPath(link).stem}]({link})", ""]
    points = [
        [f"`{cell.cell}`", f"`{cell.ledger.address}`", f"`{cell.ledger.head}`", cell.ledger.verdict]
        for cell in cells
        if cell.ledger is not None
    ]
    if points:
        lines += ["Points on a chain, each audited again by `cmfl experiment audit`:", ""]
        lines += markdown(["cell", "address", "head", "audit"], points)
        lines.append("")
    return lines


def _figures_of(name: str, figures: Sequence[str], rows: Mapping[str, ExperimentRows]) -> list[str]:
    """Return the figures whose longest matching experiment name is this one."""
    links = []
    for link in figures:
        stem = PurePosixPath(link).stem
        owners = [owner for owner in {*rows, *names()} if f"{stem}-".startswith(f"{owner}-")]
        if owners and max(owners, key=len) == name:
            links.append(link)
    return links
