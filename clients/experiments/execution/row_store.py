"""Storage of an experiment: its rows in `NAME.jsonl`, its runs' files in the folder `NAME`.

Rows are appended whole, by one process at a time, and only to rows of the same plan.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from clients.experiments.archive import unpack
from clients.experiments.execution.learning_rates import choose_rates, digest_of_trials
from clients.experiments.rows import (
    CellRow,
    ExperimentRows,
    Row,
    TrialRow,
    append_row,
    cut_torn_line,
    read_rows,
)
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from clients.experiments.plan import ExperimentPlan


@dataclass(frozen=True, slots=True)
class RowStore:
    """The rows of an experiment on disk."""

    out: Path
    experiment: str

    @property
    def path(self) -> Path:
        """The file of the rows."""
        return self.out / f"{self.experiment}.jsonl"

    @property
    def folder(self) -> Path:
        """The folder with a folder of each cell that was on a chain."""
        return self.out / self.experiment

    def rows(self) -> ExperimentRows:
        """Return all rows; none where there is no file."""
        return read_rows(self.path)

    def rows_of(self, plan: ExperimentPlan) -> ExperimentRows:
        """Return all rows, checked to be of this plan."""
        rows = self.rows()
        trials = {trial.name: trial.digest for trial in plan.trials}
        expected: list[tuple[CellRow | TrialRow, str | None]]
        expected = [(row, plan.row_digest(row)) for row in rows.cells]
        expected += [(row, trials.get(row.cell)) for row in rows.trials]
        for row, digest in expected:
            if row.digest != digest:
                self._refuse(f"{row.cell} ({row.digest[:10]}, and now {(digest or 'gone')[:10]})")
        due = {choice.method: choice for choice in choose_rates(plan, rows.trials)}
        for choice in rows.choices:
            tried = [trial for trial in plan.trials if trial.cell.method.name == choice.method]
            if not tried or digest_of_trials(tried) != choice.digest:
                self._refuse(f"the learning rate of {choice.method}")
            if due.get(choice.method, choice) != choice:
                self._refuse(f"the learning rate of {choice.method} is not what its trials say")
        return rows

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Lock the rows for writing, and cut off the half line of a killed process."""
        self.folder.mkdir(parents=True, exist_ok=True)
        # The folder, not the rows: nothing is left behind to tell a lock by.
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            unpack(self.out, self.experiment)
            cut_torn_line(self.path)
            yield
        except BlockingIOError as error:
            raise ConfigurationError(
                f"another process runs experiment {self.experiment} in {self.out}: wait for it, or "
                f"name another folder with --out"
            ) from error
        finally:
            os.close(descriptor)

    def add(self, row: Row) -> None:
        """Add a row; it survives a power cut."""
        append_row(self.path, row)

    def _refuse(self, what: str) -> None:
        raise ConfigurationError(
            f"experiment {self.experiment} has changed since {self.path} was started: {what}; put "
            f"its TOML, preset or data back, take that row away, or name another folder with --out"
        )
