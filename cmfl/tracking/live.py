"""A run that is logged to trackers while it is played, and audited for them at its end."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from cmfl.tracking.described_run import NOT_AUDITED, described_run, prefixed, recorded_rows
from cmfl.tracking.tracker import tracked_row
from ledger.protocol.errors import CmflError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from clients.runs.open_run import OpenedRun
    from cmfl.tracking.session import TrackingSession
    from ledger.audit.report import AuditReport
    from ledger.chain.ports import ChainReader
    from ledger.storage.blobs import BlobReader


@contextmanager
def logged(
    opened: OpenedRun,
    home: Path,
    session: TrackingSession,
    verdict: Callable[[], str] = lambda: NOT_AUDITED,
) -> Iterator[OpenedRun]:
    """Log a run's rounds as they end, and its end.

    Args:
        opened: the run.
        home: of its files.
        session: the trackers.
        verdict: audits the run, and returns the outcome in words; not given for a run that no
            chain records.

    Yields:
        The run, which logs each row.
    """
    section, paths = opened.configuration.track, opened.folder.paths
    if not section.used:
        yield opened
        return
    session.open(described_run(home, paths.name, section), recorded_rows(home, paths.name))
    try:
        yield replace(opened, on_row=lambda row: session.log(tracked_row(asdict(row))))
        outcome = verdict() if section.audit else NOT_AUDITED
    except BaseException:
        session.abort()
        raise
    state, stop = opened.ledger.state(), opened.stop_watch().stop
    tags = {"head": f"0x{state.head.hex()}", "audit": outcome}
    if stop is not None:
        tags["early_stop"] = stop.sentence
    session.close(prefixed(tags), paths.model if section.model else None)


def audited_in_place(opened: OpenedRun, chain: ChainReader, blobs: BlobReader) -> str:
    """Return the outcome of an audit of a run whose chain is open, in words."""
    from clients.configuration.run_configuration import rule_sources
    from ledger.audit.engine import AuditOptions, audit
    from ledger.chain.contract.deployment import connect

    assert opened.manifest is not None, "a run on a chain has a manifest"
    try:
        options = AuditOptions(rules=rule_sources(opened.configuration))
        return in_words(audit(connect(chain, opened.manifest), blobs, options))
    except (CmflError, OSError) as error:
        return f"not checkable: {error}"


def in_words(report: AuditReport) -> str:
    """Return an audit's outcome, and how many rounds it is about."""
    return f"{report.outcome}, {report.rounds} rounds"
