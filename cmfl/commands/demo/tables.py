"""The demo's output: one round explained, the accuracies, the audits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from cmfl.access.target import Target
from cmfl.commands.console import print_line, print_prose, print_table
from cmfl.commands.demo.runs import ATTACKED
from cmfl.commands.exit_codes import FAILED, INCOMPLETE

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from clients.experiments.rows import CellRow
    from ledger.audit.report import AuditReport

SHOWN_RUN = "I-attacked-seed0"
RESULT_COLUMNS = ("clean", "attacked", "accepted attackers")


def round_to_show(report: AuditReport) -> int:
    """Return the last round with a false score that was caught, 1 if there is none."""
    from ledger.audit.checks.distances import FALSE_SCORES

    caught = [f.round for f in report.findings if f.kind == FALSE_SCORES]
    return max((number for number in caught if number is not None), default=1)


def show_round(home: Path, shown: int) -> None:
    """Print one round in plain words.

    Args:
        home: of the run that is shown.
        shown: the round's number.
    """
    from ledger.history.serialise.serialise_rounds import explanation
    from ledger.history.serialise.values import DocumentedRound

    where = Target(home, SHOWN_RUN)
    with where.reader() as chain:
        history = where.history(chain)
        round_ = history.round(shown)
        assert round_ is not None, "an audited round is on the chain"
        sentences = explanation(DocumentedRound.of(history, round_))["sentences"]
    print_line(f"Round {shown} of {SHOWN_RUN}, in plain words", bold=True)
    for line in sentences:
        print_prose(line)


def results_of(rows: list[CellRow]) -> dict[str, Any]:
    """Return what the table shows, as JSON: each method's values in order of the seeds.

    The environment is the class of machines on which the same runs have the same values.
    """
    from dataclasses import asdict
    from statistics import fmean

    from clients.experiments.rows import LAST_ROUNDS
    from clients.training.environment import environment_here

    seeds, rounds = len({row.seed for row in rows}), rows[0].rounds
    methods = {}
    for method in dict.fromkeys(row.method for row in rows):
        own = [row for row in rows if row.method == method]
        attacked = [row for row in own if row.condition == ATTACKED]
        methods[_title(own[0])] = {
            "clean": [row.final or 0.0 for row in own if row.condition != ATTACKED],
            "attacked": [row.final or 0.0 for row in attacked],
            "accepted attackers": [row.malicious_accepted or 0.0 for row in attacked],
        }
    return {
        "command": f"cmfl demo --seeds {seeds} --rounds {rounds}",
        "environment": asdict(environment_here("lockstep", "cpu")),
        "seeds": seeds,
        "last rounds": min(LAST_ROUNDS, rounds),
        "most frequent class": fmean(row.floor or 0.0 for row in rows),
        "methods": methods,
    }


def show_table(results: dict[str, Any]) -> None:
    """Print the accuracy of the models, and the share of attackers' updates in them."""
    from clients.experiments.report import format_estimate

    seeds = results["seeds"]
    over = f"mean ± standard error over {seeds} seeds" if seeds > 1 else "one seed"
    print_table(
        f"Test accuracy, mean of the last {results['last rounds']} rounds: {over}",
        ("method", *RESULT_COLUMNS),
        [
            (method, *(format_estimate(values[column]) for column in RESULT_COLUMNS))
            for method, values in results["methods"].items()
        ],
    )
    print_prose(
        "Accepted attackers: the share of the updates in the model that attackers sent. "
        f"A model that always answers the most frequent class scores "
        f"{results['most frequent class']:.3f}."
    )
    print_prose(
        "Strategies I and II are the paper's, for a committee without attackers. I accepts the "
        "updates nearest to the committee. II accepts the farthest, and so accepts attackers. "
        "III is made for attackers: it accepts the updates within a right angle of the round's "
        "peers."
    )


def _title(row: CellRow) -> str:
    if row.kind == "cmfl":
        return f"CMFL, strategy {row.method}"
    return f"FedAvg, {row.extra['participants']} clients"


def show_audits(reports: dict[str, AuditReport]) -> None:
    """Print one audit in full, and how many of all passed.

    Args:
        reports: by run.
    """
    from ledger.audit.report import AuditOutcome
    from ledger.audit.report_text import readable

    print_line(f"Audit of {SHOWN_RUN}, from chain and blobs alone", bold=True)
    for line in readable(reports[SHOWN_RUN]):
        print_line(line)  # not folded: a head and a command are to be copied whole
    passed = sum(report.outcome is AuditOutcome.PASSED for report in reports.values())
    print_line(f"{passed} of {len(reports)} runs on the ledger pass their audit.", bold=True)


def require_passed(reports: Iterable[AuditReport]) -> None:
    """End with exit code 1 for a contradiction, and 3 for what could not be checked."""
    from ledger.audit.report import AuditOutcome

    outcomes = {report.outcome for report in reports}
    if AuditOutcome.FAILED in outcomes:
        raise typer.Exit(FAILED)
    if AuditOutcome.INCOMPLETE in outcomes:
        raise typer.Exit(INCOMPLETE)
