"""The paper's report: each claim judged, from rows alone.

The archives keep all rows, as data of the version that played them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from benchmarks.paper.claims import accuracy, costs, robustness, theorem
from benchmarks.paper.verdict import MAX_LISTED, Claim, ClaimAnswer, Results
from clients.experiments.report import learning_rates, markdown, overview, sections
from clients.experiments.rows import (
    CellRow,
    ChoiceRow,
    ExperimentRows,
    TrialRow,
    read_experiments,
    sorted_rows,
)

if TYPE_CHECKING:
    Row = TypeVar("Row", CellRow, TrialRow, ChoiceRow)


ROWS = Path(__file__).parent / "rows"

REMOVED_METHODS = frozenset(
    {
        "CMFL-III-spread",
        "robust",
        "robust-travel",
        "own",
        "travel",
        "travel-sum",
        "crowd",
        "crowd-clipped",
        "peers-clipped",
        "peers-quantile",
        "peers-lot",
    }
)
"""Forms of strategy III with rules that version 3 removed."""

REMOVED_ATTACKS = frozenset({"frame", "target-blind"})
"""Attacks that were removed; conditions have their names."""

REMOVED_DISTANCE = ("authors-sent140", "authors-shakespeare")
"""Experiments whose rows have the distance `per_tensor`, which version 3 removed."""


def read_published(folder: Path = ROWS, experiment: str | None = None) -> dict[str, ExperimentRows]:
    """Return the rows of each experiment without removed methods and attacks."""
    rows = read_experiments(folder, experiment)
    return {
        name: replace(
            of, cells=_attacked(_kept(of.cells)), trials=_kept(of.trials), choices=_kept(of.choices)
        )
        for name, of in rows.items()
    }


def _kept(rows: Iterable[Row]) -> tuple[Row, ...]:
    return tuple(row for row in rows if row.method not in REMOVED_METHODS)


def _attacked(cells: Iterable[CellRow]) -> tuple[CellRow, ...]:
    return tuple(cell for cell in cells if cell.condition not in REMOVED_ATTACKS)


VERSION_2 = (
    "robustness-digits",
    "robustness-digits-one-rate",
    "committee-members",
    "robustness-worst-*",
)
VERSION_3 = ("robustness-worst",)
"""Experiments by the version of the protocol that played them; all others have version 1."""

PAPER_RATES = (
    ("femnist", "0.001"),
    ("sent140", "0.005"),
    ("shakespeare", "not given; the code has 0.005, and 0.05 with attacks"),
)
"""The paper's learning rates, by a word in the name of an experiment."""


CLAIMS = (
    *theorem.CLAIMS,
    *costs.COMPLEXITY_CLAIMS,
    *accuracy.NORMAL_CLAIMS,
    *robustness.ROBUSTNESS_CLAIMS,
    *accuracy.GRID_CLAIMS,
    *costs.EFFICIENCY_CLAIMS,
    *accuracy.COMMITTEE_CLAIMS,
    *accuracy.CONFOUND_CLAIMS,
)


def paper_report(rows: Mapping[str, ExperimentRows], figures: Sequence[str] = ()) -> str:
    """Return the report as Markdown.

    Args:
        figures: links to figures, as `clients.experiments.report.report` takes them.
    """
    rows = sorted_rows(rows)
    results = Results(rows)
    lines = [
        "# What the experiments say",
        "",
        "Made by `python -m benchmarks.paper report` from rows, and from nothing else. ± is one "
        "standard error over seeds. A difference is paired by seed, the method that is named first "
        "less the other, and is one if a two-sided t-test at 5 % says so: a claim that names a "
        "direction is held to 2.5 % in it. Each place is tested by itself: of forty in which "
        "nothing differs about one is called better, and one worse.",
        "",
        *_versions(rows),
        "",
        *overview(rows),
        "",
        "## The paper's claims",
        "",
        *_claims(CLAIMS, results),
        "## Complexity",
        "",
        *(costs.complexity_table(results) or ["No rows."]),
        "",
        "## Learning rates",
        "",
        *learning_rates(rows, _papers_rate),
        "",
        *sections(rows, figures),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _versions(rows: Mapping[str, ExperimentRows]) -> list[str]:
    newest = [name for name in VERSION_3 if name in rows]
    third = f" Version 3 played the rows of {_listed(newest)}." if newest else ""
    return [
        f"Protocol version 2 played the rows of {_listed(VERSION_2)}.{third} Version 1 played all "
        "other rows. Strategies I and II have the same rules in each version, with other draws. "
        f"The rows of {_listed(REMOVED_DISTANCE)} have a distance that version 3 removed: the sum "
        "of the distances of the tensors. The archives in `benchmarks/paper/rows` also hold rows "
        "of methods with rules that version 3 removed. This report omits those rows.",
    ]


def _listed(experiments: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in experiments)


def _claims(claims: Iterable[Claim], results: Results) -> list[str]:
    """Return a table of verdicts, and below it the findings of each."""
    judged = [(claim, claim.verdict(results)) for claim in claims]
    lines = markdown(
        ["who", "claim", "verdict"],
        [[claim.source, claim.sentence, verdict.sentence] for claim, verdict in judged],
    )
    lines.append("")
    for claim, verdict in judged:
        if verdict.answer is ClaimAnswer.MISSING:
            continue
        holding = sum(finding.holds is True for finding in verdict.findings)
        lines.append(
            f"* **{claim.sentence}** ({claim.source}; test: {claim.test}): in {holding} of "
            f"{len(verdict.findings)}."
        )
        for finding in verdict.findings[:MAX_LISTED]:
            answer = {True: "yes", False: "no", None: "cannot tell"}[finding.holds]
            lines.append(f"  * {finding.where}: {answer}. {finding.numbers}")
        if len(verdict.findings) > MAX_LISTED:
            lines.append(f"  * and {len(verdict.findings) - MAX_LISTED} more.")
    lines.append("")
    return lines


def _papers_rate(name: str) -> str:
    return next((rate for word, rate in PAPER_RATES if word in name), "other data")
