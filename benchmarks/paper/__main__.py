"""`python -m benchmarks.paper`: the paper's verdicts and figures, and its packed rows.

    report   test the paper's claims, and write a page for each experiment and other pages' tables
    plot     draw the figures of all experiments
    pack     put loose rows and their run folders into one archive for each experiment

`cmfl experiment` runs them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.harness import MEASURED, ROWS
from benchmarks.paper import claims
from benchmarks.paper.tables import science_tables
from benchmarks.paper.time_claims import COMPLEXITY_CLAIMS, EFFICIENCY_CLAIMS, complexity_table
from benchmarks.paper.verdict import Results, verdict_of
from clients.experiments import series
from clients.experiments.figures import DRAWN_BY, draw
from clients.experiments.plots import Drawn, count_rounds, draw_line, new_figure, slant_names
from clients.experiments.report import figure_links, learning_rates, markdown, section, title_of
from clients.experiments.rows import CellRow, ExperimentRows, pack, read_experiments, sorted_rows
from ledger.io.home import DISK
from ledger.protocol.errors import CmflError

RESULTS = Path(__file__).parents[2] / "docs" / "results"

PAPER_RATES = {
    "femnist": "0.001",
    "sent140": "0.005",
    "shakespeare": "not given; the code has 0.005, and 0.05 with attacks",
}
"""The paper's learning rates, by a word in the name of an experiment."""

CLAIMS = (
    *claims.THEOREM_CLAIMS,
    *COMPLEXITY_CLAIMS,
    *claims.NORMAL_CLAIMS,
    *claims.ROBUSTNESS_CLAIMS,
    *claims.GRID_CLAIMS,
    *EFFICIENCY_CLAIMS,
    *claims.COMMITTEE_CLAIMS,
    *claims.CONFOUND_CLAIMS,
)


def paper_pages(rows: Mapping[str, ExperimentRows], figures: Sequence[str] = ()) -> dict[str, str]:
    """Return the pages of the results, by file name: the claims, and one for each experiment."""

    def papers_rate(name: str) -> str:
        return next((rate for word, rate in PAPER_RATES.items() if word in name), "other data")

    rows, links = sorted_rows(rows), figure_links(rows, figures)
    pages = {"claims.md": _claims(Results(rows))}
    for name, experiment in rows.items():
        files = experiment.definition is not None and experiment.definition.files
        lines = [
            f"# {title_of(name, experiment)}",
            "",
            f"`cmfl experiment run {name}{' --data DIR' if files else ''}` plays these runs.",
            "± is one standard error over seeds.",
            "",
            *section(name, experiment, links.get(name, ())),
        ]
        if experiment.choices:
            rates = learning_rates({name: experiment}, papers_rate)
            lines += ["## Choice of the learning rate", "", *rates]
        pages[f"{name}.md"] = "\n".join(lines).rstrip() + "\n"
    return pages


def _claims(results: Results) -> str:
    """Return the page of the paper's claims: a table of verdicts, and the findings of each."""
    judged = [(claim, claim.findings(results)) for claim in CLAIMS]
    lines = [
        "# The paper's claims",
        "",
        "`python -m benchmarks.paper report` tests each claim of the paper on the rows.",
        "A difference is paired by seed: the first method minus the other.",
        "It counts if a two-sided t-test at 5% rejects equality.",
        "Each place is tested by itself. If nothing differs, one test of 40 shows an increase by",
        "chance, and one a decrease.",
        "",
        *markdown(
            ["source", "claim", "verdict"],
            [[claim.source, claim.sentence, verdict_of(findings)] for claim, findings in judged],
        ),
        "",
        "## Complexity",
        "",
        "An exponent is the slope of the logarithm of a cost, over runs that differ in one size.",
        "A member scores the other members too, so a member reads (n + C - 1) |w|.",
        "These runs compute the distances of all members in one pass over the updates, so the time",
        "grows less with C.",
        "",
        *(complexity_table(results) or ["No rows."]),
        "",
    ]
    answers = {True: "yes", False: "no", None: "not decided"}
    for claim, findings in judged:
        if findings:
            table = [[where, answers[holds], numbers] for where, holds, numbers in findings]
            lines += [f"## {claim.sentence.removesuffix('.')}", "", f"{claim.source}.", ""]
            lines += [*markdown(["place", "holds", claim.test], table), ""]
    return "\n".join(lines).rstrip() + "\n"


def draw_bound(cells: Sequence[CellRow]) -> Iterator[Drawn]:
    """Draw an experiment on Theorem 1: its errors and bounds, and the gaps of its paths."""
    methods = series.by_method(cells)
    steps = {"theorem": "the theorem's step sizes", "rate": "a constant rate"}
    figure, (*panels, last) = new_figure(len(steps) + 1, (3.6, 3.0))
    for axes, (step_sizes, title) in zip(panels, steps.items(), strict=True):
        for place, (method, own) in enumerate(methods.items()):
            for what, shift in (("error", 0), ("bound", len(methods))):
                along = _along(step_sizes, what)
                draw_line(axes, series.over_rounds(f"{method}, {what}", own, along), place + shift)
        axes.set(title=title, yscale="log", ylabel="F(w) − F*, and its bound")
        count_rounds(axes)
        axes.minorticks_off()
    for marker, title, key in (("o", "φ_min", "least_gap"), ("s", "φ_max", "largest_gap")):
        values = [[claims.constant(key)(cell) for cell in own] for own in methods.values()]
        points = {float(at): [v for v in of if v is not None] for at, of in enumerate(values)}
        line = series.line_through(title, points)
        last.errorbar(line.x, line.mean, line.error, label=title, fmt=marker, color="k", capsize=3)
    last.set_xticks(range(len(methods)), list(methods))
    slant_names(last)
    last.set(title="φ, as seen on the path", xlabel="method", ylabel="φ")
    sentence = (
        "Error and printed bound of Theorem 1 on softmax with an L2 term, whose constants are "
        "the extremes of the path: a lower estimate of the bound."
    )
    yield Drawn(figure, sentence, cells)


def _along(step_sizes: str, what: str) -> Callable[[CellRow], Sequence[float | None]]:
    return lambda cell: claims.theorem_of(cell, step_sizes).get(what, ())


def main(words: Sequence[str] | None = None) -> None:
    """Run one command of a command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paper")
    commands = parser.add_subparsers(dest="command", required=True)
    options = {"report": {"to": "", "figures": "figures"}, "plot": {"to": "figures"}}
    for name in ("report", "plot", "pack"):
        subparser = commands.add_parser(name)
        subparser.add_argument("--rows", type=Path, default=ROWS, help="folder of the rows")
        for option, place in options.get(name, {}).items():
            subparser.add_argument(f"--{option}", type=Path, default=RESULTS / place)
        if name == "report":
            subparser.add_argument("--tables", type=Path, default=MEASURED / "science.json")
    given = parser.parse_args(words)
    try:
        if given.command == "report":
            figures = sorted(given.figures.glob("*.svg"))
            links = [Path(os.path.relpath(path, given.to)).as_posix() for path in figures]
            rows = read_experiments(given.rows)
            for name, text in paper_pages(rows, links).items():
                DISK.write_whole(given.to / name, text.encode())
            tables = json.dumps(science_tables(rows, CLAIMS), indent=1, ensure_ascii=False)
            DISK.write_whole(given.tables, f"{tables}\n".encode())
        elif given.command == "plot":
            drawn_by = {**DRAWN_BY, "bound": draw_bound}
            paths = draw(read_experiments(given.rows), given.to, drawn_by)
            print(f"{len(paths)} files in {given.to}")
        else:
            for path in sorted(given.rows.glob("*.jsonl")):
                print(pack(given.rows, path.stem))
    except CmflError as error:
        sys.exit(f"benchmarks.paper: {error}")


if __name__ == "__main__":
    main()
