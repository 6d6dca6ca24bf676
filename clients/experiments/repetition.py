"""Repetition of a published cell on a fresh chain, with an audit.

The repeated run must end with the row's head, which commits to every decision, and reproduce every
other value of the row except seconds. The audit checks the run from chain and blobs alone. The
published configuration and report must agree with the repeated run and its audit.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from clients.experiments.plan import ExperimentPlan
from clients.experiments.rows import CellRow, ChainEvidence, encode_row, read_stored
from clients.experiments.run import RowStore, factors, play_on_chain, row_of, task_of
from ledger.audit.report import AuditOutcome, AuditReport
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import PROTOCOL_VERSION

_EVIDENCE = {
    "head": "head",
    "contract": "address",
    "chain": "chain_id",
    **{name: name for name in ("verdict", "report", "configuration")},
}
_LEFT_OUT = {"seconds", "ledger"}
"""Fields that do not follow from the run, or are compared one by one. All others must be equal:
equal heads mean equal models. Rows of earlier versions name no attack."""


MAX_SAVED_BYTES = 1 << 24
"""Of a published report or configuration; they take some ten kilobytes."""

_REPORTED = ("outcome", "rounds", "findings")
"""The fields that every version of a report has, besides the deployment's."""


@dataclass(frozen=True, slots=True)
class RepeatedCell:
    """A cell that was played again, on a fresh chain."""

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
        published, reproduced = (json.loads(encode_row(row)) for row in (self.row, self.again))
        pairs = [
            *(
                (shown, getattr(then, name), getattr(now, name))
                for shown, name in _EVIDENCE.items()
            ),
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
    """Play a cell again on a fresh chain, and audit it there."""
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
    chain_run = play_on_chain(cell, task, home, store.folder.name, plan.data)
    again = row_of(cell, chain_run.played, row.seconds, chain_run.evidence)
    file_differences = saved_file_differences(
        store.out, chain_run.evidence, chain_run.configuration, chain_run.report
    )
    return RepeatedCell(row, again, chain_run.report, tuple(file_differences))


def saved_file_differences(
    out: Path, evidence: ChainEvidence, configuration: str, report: AuditReport
) -> list[str]:
    """Return the differences of a row's published files from the repeated run, as sentences.

    The section `machine` may differ, which changes no result. A report of an older form is compared
    in the fields that both forms have. A missing or unreadable file is a difference.
    """
    differences: list[str] = []
    saved = _parsed(out, evidence.configuration, tomllib.loads, differences)
    if saved is not None:
        now = tomllib.loads(configuration)
        sections = (saved.keys() | now) - {"machine"}
        differences += _differing(evidence.configuration, saved, now, sections)
    saved = _parsed(out, evidence.report, json.loads, differences)
    if saved is not None:
        now = json.loads(json.dumps(report.as_dict()))
        differences += _differing(evidence.report, saved, now, _REPORTED)
        deployments = [document.get("deployment") for document in (saved, now)]
        before, after = (facts if isinstance(facts, dict) else {} for facts in deployments)
        names = before.keys() & after if before else after.keys()
        differences += _differing(f"{evidence.report}: deployment", before, after, names)
    return differences


def require_current_protocol(out: Path, evidence: ChainEvidence) -> None:
    """Refuse to repeat a cell of another protocol version.

    A missing or unreadable file is reported after the repetition.
    """
    saved = _parsed(out, evidence.report, json.loads, [])
    deployment = None if saved is None else saved.get("deployment")
    if isinstance(deployment, dict) and deployment.get("protocol", 1) != PROTOCOL_VERSION:
        raise ConfigurationError(
            f"{evidence.report} is of protocol version {deployment.get('protocol', 1)!r:.20}, and "
            f"this program plays version {PROTOCOL_VERSION}, whose seeds and heads are others: "
            f"repeat it with the program of that version, or play the experiment again"
        )


def _parsed(
    out: Path, name: str, parse: Callable[[str], Any], differences: list[str]
) -> dict[str, Any] | None:
    """Return the document of a file, or append to `differences` why there is none."""
    file_name = PurePosixPath(name).name
    try:
        data = read_stored(out, name, MAX_SAVED_BYTES)
        value = parse(data.decode()) if len(data) <= MAX_SAVED_BYTES else None
    except (OSError, ValueError, RecursionError) as error:
        differences.append(f"{file_name} of the row cannot be read: {type(error).__name__}")
        return None
    if not isinstance(value, dict):
        differences.append(
            f"{file_name} of the row is not a document of at most {MAX_SAVED_BYTES} bytes"
        )
        return None
    return value


def _differing(
    where: str, saved: dict[str, Any], now: dict[str, Any], names: Iterable[str]
) -> list[str]:
    return [
        f"{where}: {name}: {str(saved.get(name))[:80]}, and now {str(now.get(name))[:80]}"
        for name in sorted(names)
        if saved.get(name) != now.get(name)
    ]
