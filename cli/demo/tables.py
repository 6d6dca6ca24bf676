"""What the demo's runs came to: one round in words, the accuracies, the audits."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

import typer

from cli.console import print_line, print_prose, print_table
from cli.exit_codes import FAILED, INCOMPLETE
from cli.target import Target

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from clients.comparison import Outcome
    from clients.configuration.schema import Configuration
    from ledger.audit.report import AuditReport

SHOWN_RUN = "I-attacked-seed0"


def round_to_show(report: AuditReport) -> int:
    """Return the last round in which a lie was caught, 1 if none was.

    Args:
        report: of the audit of the run that is shown.
    """
    from ledger.audit.codes import FindingKind

    caught = [f.round for f in report.findings if f.kind is FindingKind.FALSE_SCORES]
    return max((number for number in caught if number is not None), default=1)


def show_round(home: Path, shown: int) -> None:
    """Print one round in plain words.

    Args:
        home: of the run that is shown.
        shown: the round's number.
    """
    from ledger.history.facts.rounds import explanation_facts
    from ledger.history.facts.words import Told

    where = Target(home, SHOWN_RUN)
    with where.reader() as chain:
        history = where.history(chain)
        one = history.round(shown)
        assert one is not None, "an audited round is on the chain"
        facts = explanation_facts(Told.of(history, one))
    print_line(f"Round {shown} of {SHOWN_RUN}, in plain words", bold=True)
    for line in facts["sentences"]:
        print_prose(line)


def show_table(outcomes: list[Outcome], configuration: Configuration) -> None:
    """Print how good the models became, and how many attackers' updates entered them.

    Args:
        outcomes: of all runs.
        configuration: of the runs, but for what tells them apart.
    """
    from statistics import fmean

    from clients.comparison import LAST_ROUNDS
    from clients.methods import METHODS

    parameters = configuration.parameters(dimension=1)
    rows = []
    for method in METHODS:
        mine = [outcome for outcome in outcomes if outcome.method == method.name]
        attacked = [outcome for outcome in mine if outcome.attacked]
        rows.append(
            (
                method.title(parameters),
                _mean_and_error(outcome.accuracy for outcome in mine if not outcome.attacked),
                _mean_and_error(outcome.accuracy for outcome in attacked),
                _mean_and_error(outcome.malicious for outcome in attacked),
            )
        )
    seeds = len({outcome.seed for outcome in outcomes})
    over = f"mean ± standard error over {seeds} seeds" if seeds > 1 else "one seed"
    last = min(LAST_ROUNDS, parameters.rounds)
    print_table(
        f"Test accuracy, mean of the last {last} rounds: {over}",
        ("method", "clean", "attacked", "accepted attackers"),
        rows,
    )
    floor = fmean(outcome.floor for outcome in outcomes)
    print_prose(
        "Accepted attackers: which share of the updates that entered the model came from them. "
        f"Always answering the commonest class scores {floor:.3f}."
    )
    print_prose(
        "Strategy I accepts the updates nearest to the committee, II the farthest, III all within "
        "a threshold that the committee certifies. II is the paper's for clients that are all "
        "honest: it learns from those that differ most, and so lets in whoever attacks; do not "
        "use it else."
    )


def _mean_and_error(values: Iterable[float]) -> str:
    from statistics import fmean, stdev

    listed = list(values)
    if len(listed) == 1:
        return f"{listed[0]:.3f}"
    return f"{fmean(listed):.3f} ± {stdev(listed) / sqrt(len(listed)):.3f}"


def show_audits(reports: dict[str, AuditReport]) -> None:
    """Print one audit in full, and how many of all passed.

    Args:
        reports: by run.
    """
    from ledger.audit.codes import AuditOutcome
    from ledger.audit.report_text import readable

    print_line(f"Audit of {SHOWN_RUN}, from chain and blobs alone", bold=True)
    for line in readable(reports[SHOWN_RUN]):
        print_line(line)  # not folded: a head and a command are to be copied whole
    passed = sum(report.outcome is AuditOutcome.PASSED for report in reports.values())
    print_line(f"{passed} of {len(reports)} runs on the ledger pass their audit.", bold=True)


def require_passed(reports: Iterable[AuditReport]) -> None:
    """End with exit code 1 for a contradiction, and 3 for what could not be checked.

    Args:
        reports: of all audits.

    Raises:
        typer.Exit: not everything was checked and is true.
    """
    from ledger.audit.codes import AuditOutcome

    found = {report.outcome for report in reports}
    if AuditOutcome.FAILED in found:
        raise typer.Exit(FAILED)
    if AuditOutcome.INCOMPLETE in found:
        raise typer.Exit(INCOMPLETE)
