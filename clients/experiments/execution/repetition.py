"""Repetition of a published cell on a fresh chain, with an audit.

The repeated run must end with the row's head, which commits to every decision, and reproduce every
other value of the row except seconds. The audit checks the run from chain and blobs alone. The
published configuration and report must agree with the repeated run and its audit.
"""

from __future__ import annotations

from dataclasses import dataclass
from json import loads
from typing import TYPE_CHECKING

from clients.experiments.execution.cell_run import row_of, task_of
from clients.experiments.execution.chain_run import evidence_of, play_on_chain, portable
from clients.experiments.execution.learning_rates import factors
from clients.experiments.execution.saved_files import (
    require_current_protocol,
    saved_file_differences,
)
from clients.experiments.rows import encode_row
from ledger.audit.report import AuditOutcome
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from clients.experiments.execution.row_store import RowStore
    from clients.experiments.plan import ExperimentPlan
    from clients.experiments.rows import CellRow
    from ledger.audit.report import AuditReport

_LEFT_OUT = {"seconds", "ledger"}
"""Fields that do not follow from the run, or are compared one by one. All others must be equal:
equal heads mean equal models. Rows of earlier versions name no attack."""


@dataclass(frozen=True, slots=True)
class RepeatedCell:
    """A cell that was played again, on a fresh chain.

    Attributes:
        row: the published one.
        again: the reproduced row.
        report: of the audit.
        file_differences: differences of the published files from the repeated run, in sentences.
    """

    row: CellRow
    again: CellRow
    report: AuditReport
    file_differences: tuple[str, ...] = ()

    @property
    def differing(self) -> tuple[str, ...]:
        """Values of the row that were not reproduced, each as `what: then, and now`."""
        then, now = self.row.ledger, self.again.ledger
        assert then is not None, "only what was on a chain is repeated"
        assert now is not None, "it was repeated on a chain"
        # As JSON, which does not distinguish lists and tuples.
        published, reproduced = (loads(encode_row(row)) for row in (self.row, self.again))
        pairs = [
            ("head", then.head, now.head),
            ("contract", then.address, now.address),
            ("chain", then.chain_id, now.chain_id),
            ("verdict", then.verdict, now.verdict),
            ("report", then.report, now.report),
            ("configuration", then.configuration, now.configuration),
            *(
                (name, published[name], reproduced[name])
                for name in published
                if name not in _LEFT_OUT and (name != "attack" or published[name] is not None)
            ),
        ]
        row_differences = (
            f"{name}: {str(old)[:80]}, and now {str(new)[:80]}"
            for name, old, new in pairs
            if old != new
        )
        return (*row_differences, *self.file_differences)

    @property
    def outcome(self) -> AuditOutcome:
        """Failed if anything differs or the audit failed; else the audit's."""
        return AuditOutcome.FAILED if self.differing else self.report.outcome


def repeat_cell(
    plan: ExperimentPlan, store: RowStore, name: str, home: Path, on_round: Callable[[], None]
) -> RepeatedCell:
    """Play a cell again on a fresh chain, and audit it there.

    Args:
        plan: of its experiment.
        store: where its row is.
        name: of the cell.
        home: of the chain, which is made.
        on_round: called after each round.

    Raises:
        ConfigurationError: there is no such cell or no row of it, it was on no chain, its
            experiment has changed since, or the choice of its learning rate is not there.
        CmflError: it cannot be played.
        OSError: the home cannot be written.
    """
    cell = plan.cell(name)
    row = next((row for row in store.rows().cells if row.cell == name), None)
    if row is None:
        raise ConfigurationError(f"{store.path} has no row of cell {name!r}: nothing to audit yet")
    if row.ledger is None:
        raise ConfigurationError(
            f"cell {name!r} was on no chain: only the first seed of CMFL's cells is"
        )
    if row.digest != cell.digest:
        raise ConfigurationError(
            f"cell {name!r} has changed since its row was written ({row.digest[:10]}, and now "
            f"{cell.digest[:10]}): put the experiment's TOML, preset or data back"
        )
    factor = factors(plan, store.rows().choices).get(cell.method.name)
    if factor is None:
        raise ConfigurationError(
            f"{store.path} has no choice of a learning rate for {cell.method.name}, which cell "
            f"{name!r} was run with: put the file back as it was published"
        )
    require_current_protocol(store.out, row.ledger)
    cell = cell.at_rate(factor)
    task = task_of(cell, on_round)
    chain_run = play_on_chain(cell, task, home)
    evidence = evidence_of(cell, chain_run, store.folder)
    again = row_of(cell, chain_run.played, row.seconds, evidence)
    configuration = portable(chain_run.configuration, plan.data)
    file_differences = saved_file_differences(store.out, evidence, configuration, chain_run.report)
    return RepeatedCell(row, again, chain_run.report, tuple(file_differences))
