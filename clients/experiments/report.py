"""The report on all experiments, from their rows alone: `cmfl experiment report`.

Nothing in it is written by hand but what was set beforehand: the paper's claims and their tests,
the targets, and the official figures. What has no rows is said to have none.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from benchmarks.paper import complexity, official_figures
from benchmarks.paper.claims.registry import CLAIMS
from benchmarks.paper.scenarios import Results
from benchmarks.paper.targets import AUTHORS, WEIGHTS, targets_of
from benchmarks.paper.verdict import MAX_LISTED, ClaimAnswer
from clients.experiments.catalogue import names
from clients.experiments.row_order import sorted_rows
from clients.experiments.tables import DASH, format_range, markdown, tables

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from benchmarks.paper.verdict import Claim
    from clients.experiments.rows import CellRow, ExperimentRows

NAMES = (
    "",
    "Normal training",
    "Robustness",
    "Grids",
    "Efficiency",
    "Committee",
    "Theorem 1",
    "Steps",
)
"""The experiments by number."""

TARGET_METHODS = ("robust", "robust-travel")
"""Methods that are held to the targets."""

PAPER_RATES = (
    ("femnist", "0.001"),
    ("sent140", "0.005"),
    ("shakespeare", "not given; the code has 0.005, and 0.05 with attacks"),
)
"""The paper's learning rates, by a word in the name of an experiment."""


def report(rows: Mapping[str, ExperimentRows], figures: Sequence[str] = ()) -> str:
    """Return the report as Markdown.

    Args:
        rows: of each experiment, by its name.
        figures: links to figures as the Markdown is to have them; each is shown with its
            experiment, told by the beginning of its file's name.
    """
    rows = sorted_rows(rows)
    results, ordered = Results(rows), list(rows)
    lines = [
        "# What the experiments say",
        "",
        "Made by `cmfl experiment report` from rows, and from nothing else. ± is one standard "
        "error over seeds; a difference is paired by seed, and is one if a t-test at 5 % says so. "
        "Each place is tested by itself: of forty in which nothing differs about one is called "
        "better, and one worse.",
        "",
        *_overview(rows, ordered),
        "",
        "## The paper's claims",
        "",
        *_claims(CLAIMS, results),
        "## What `robust` is held to",
        "",
        *_claims(_targets(), results),
        "## Official figures beside ours",
        "",
        "The authors' logs have one seed, other sizes and, on Sentiment140, other accounts: what "
        "can be compared is the order of the methods, and the distance from the floor. Their "
        "FedAvg trains 4 % of the clients without an attack, as many as CMFL aggregates, and 10 % "
        "under one; ours is the one that is named.",
        "",
        *official_figures.accuracy_table(results),
        "",
        "Attackers in a round:",
        "",
        *official_figures.accepted_table(results),
        "",
        "Clients:",
        "",
        *official_figures.clients_table(results),
        "",
        "## Complexity",
        "",
        *(complexity.table(results) or ["No rows."]),
        "",
        "## Learning rates",
        "",
        *_rates(rows, ordered),
        "",
    ]
    for name in ordered:
        lines += _experiment(name, rows[name].cells, _figures_of(name, figures, rows))
    return "\n".join(lines).rstrip() + "\n"


def _overview(rows: Mapping[str, ExperimentRows], ordered: Sequence[str]) -> list[str]:
    table = []
    for name in ordered:
        cells = rows[name].cells
        trials = rows[name].trials
        spent = [*(row.seconds.cpu for row in cells), *(row.seconds.cpu for row in trials)]
        audits = [cell.ledger.verdict for cell in cells if cell.ledger is not None]
        passed = f"{sum(verdict == 'passed' for verdict in audits)} of {len(audits)}"
        table.append(
            [
                str(cells[0].number),
                name,
                str(len(cells)),
                str(len(trials)),
                passed if audits else "none",
                f"{sum(spent) / 60:.1f}",
            ]
        )
    return markdown(
        ["number", "experiment", "cells", "tuning runs", "audits passed", "CPU minutes"], table
    )


def _targets() -> tuple[Claim, ...]:
    return (*(one for name in TARGET_METHODS for one in targets_of(name)), WEIGHTS, AUTHORS)


def _claims(claims: Iterable[Claim], results: Results) -> list[str]:
    """Return a table of verdicts, and below it what each rests on."""
    judged = [(claim, claim.verdict(results)) for claim in claims]
    lines = markdown(
        ["who", "claim", "verdict"],
        [[claim.source, claim.sentence, verdict.sentence] for claim, verdict in judged],
    )
    lines.append("")
    for claim, verdict in judged:
        if verdict.answer is ClaimAnswer.MISSING:
            continue
        held = sum(finding.holds is True for finding in verdict.findings)
        lines.append(
            f"* **{claim.sentence}** ({claim.source}; test: {claim.test}): in {held} of "
            f"{len(verdict.findings)}."
        )
        for finding in verdict.findings[:MAX_LISTED]:
            said = {True: "yes", False: "no", None: "cannot tell"}[finding.holds]
            lines.append(f"  * {finding.where}: {said}. {finding.numbers}")
        if len(verdict.findings) > MAX_LISTED:
            lines.append(f"  * and {len(verdict.findings) - MAX_LISTED} more.")
    lines.append("")
    return lines


def _rates(rows: Mapping[str, ExperimentRows], ordered: Sequence[str]) -> list[str]:
    table = []
    for name in ordered:
        rates = {cell.method: cell.learning_rate for cell in rows[name].cells}
        for choice in rows[name].choices:
            finals = ", ".join(f"{factor}: {one:.3f}" for factor, one in choice.finals.items())
            rate = rates.get(choice.method)
            used = DASH if rate is None else f"{rate:g}"
            table.append([name, choice.method, f"{choice.factor:g}", used, finals, _papers(name)])
    if not table:
        return ["No rate was chosen."]
    head = ["experiment", "method", "factor", "rate", "accuracy by factor", "paper's rate"]
    return markdown(head, table)


def _papers(name: str) -> str:
    return next((rate for word, rate in PAPER_RATES if word in name), "other data")


def _experiment(name: str, cells: Sequence[CellRow], figures: Sequence[str]) -> list[str]:
    number = cells[0].number
    title = NAMES[number] if number < len(NAMES) else "Experiment"
    seeds = ", ".join(map(str, sorted({cell.seed for cell in cells})))
    rounds = format_range((cell.rounds for cell in cells), lambda one: f"{one:g}")
    floors = [cell.floor for cell in cells if cell.floor is not None]
    floor = f", floor {format_range(floors, lambda one: f'{one:.3f}')}" if floors else ""
    lines = [
        f"## {number}. {title}: `{name}`",
        "",
        f"Seeds {seeds}; {rounds} rounds{floor}.",
        "",
        *tables(cells),
    ]
    for link in figures:
        lines += [f"![{PurePosixPath(link).stem}]({link})", ""]
    recorded = [cell for cell in cells if cell.ledger is not None]
    if recorded:
        lines += ["Points on a chain, each audited again by `cmfl experiment audit`:", ""]
        lines += markdown(["cell", "address", "head", "audit"], map(_evidence, recorded))
        lines.append("")
    return lines


def _evidence(cell: CellRow) -> list[str]:
    at = cell.ledger
    assert at is not None, "only cells on a chain are listed"
    return [f"`{cell.cell}`", f"`{at.address}`", f"`{at.head}`", at.verdict]


def _figures_of(name: str, figures: Sequence[str], rows: Mapping[str, ExperimentRows]) -> list[str]:
    """Return the figures of an experiment: those of which no other's longer name is the start."""
    found = []
    for link in figures:
        stem = PurePosixPath(link).stem
        owners = [one for one in {*rows, *names()} if stem == one or stem.startswith(f"{one}-")]
        if owners and max(owners, key=len) == name:
            found.append(link)
    return found
