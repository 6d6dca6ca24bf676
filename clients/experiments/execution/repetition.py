"""A point of a figure, looked into by a stranger: the run repeated on a fresh chain, and audited.

That a row's numbers are those of a run is told by the run: it must end with the head that the row
names, which commits to every decision of it, and come to all else that the row says but seconds.
That the run itself is true, the audit tells, from chain and blobs alone. The configuration and the
report that are kept beside the row must say what the repeated run and its audit say.
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
"""What does not follow from a run, and what is compared part by part. All else comes out again
without a tolerance: equal heads mean equal models."""


@dataclass(frozen=True, slots=True)
class RepeatedCell:
    """A cell that was played again, on a fresh chain.

    Attributes:
        row: what was published.
        again: what it came to now.
        report: of the audit.
        kept: what the files beside the row say otherwise than the repeated run, in sentences.
    """

    row: CellRow
    again: CellRow
    report: AuditReport
    kept: tuple[str, ...] = ()

    @property
    def differing(self) -> tuple[str, ...]:
        """What the row says that did not come out again, each as `what: then, and now`."""
        then, now = self.row.ledger, self.again.ledger
        assert then is not None, "only what was on a chain is repeated"
        assert now is not None, "it was repeated on a chain"
        # As they stand in the file, which knows no difference between a list and a tuple.
        told, found = (loads(encode_row(row)) for row in (self.row, self.again))
        pairs = [
            ("head", then.head, now.head),
            ("contract", then.address, now.address),
            ("chain", then.chain_id, now.chain_id),
            ("verdict", then.verdict, now.verdict),
            ("report", then.report, now.report),
            ("configuration", then.configuration, now.configuration),
            *((name, told[name], found[name]) for name in told if name not in _LEFT_OUT),
        ]
        told_otherwise = (
            f"{name}: {str(old)[:80]}, and now {str(new)[:80]}"
            for name, old, new in pairs
            if old != new
        )
        return (*told_otherwise, *self.kept)

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
    found = play_on_chain(cell, task, home)
    evidence = evidence_of(cell, found, store.folder)
    again = row_of(cell, found.played, row.seconds, evidence)
    configuration = portable(found.configuration, plan.data)
    kept = saved_file_differences(store.out, evidence, configuration, found.report)
    return RepeatedCell(row, again, found.report, tuple(kept))
