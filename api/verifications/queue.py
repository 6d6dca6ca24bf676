"""Verifications of one service: one runs at a time, some wait, and what was found is kept."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from api.schemas.verifications import (
    EarlierVerification,
    KeptReport,
    Verification,
    VerificationState,
    WhyNoVerdict,
)
from api.verifications.audit_worker import run_task
from api.verifications.process import ProcessResult, run_in_process
from api.verifications.reports import ReportFolder, ReportsError
from ledger.audit.earlier_report import EarlierReportError, read_report
from ledger.history.serialise.values import time_of
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import CmflError

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from pathlib import Path

    from api.schemas.verifications import VerificationProgress
    from api.settings import VerificationBounds
    from api.verifications.audit_worker import AuditTask
    from ledger.chain.contract.committee_ledger import CommitteeLedger
    from ledger.history.paths import DeploymentPath

_log = logging.getLogger(__name__)


class AlreadyVerifyingError(CmflError):
    """A deployment is being verified already.

    Attributes:
        name: of that verification.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"verification {name} of this deployment is not over")
        self.name = name


class QueueFullError(CmflError):
    """As many verifications wait as may."""


class NotRunningError(CmflError):
    """A verification that is over cannot be cancelled."""


@dataclass(frozen=True, slots=True)
class VerificationOrder:
    """A requested verification.

    Attributes:
        path: of the deployment.
        run: the name of its run.
        since: the verification that it builds on; None for none.
        task: what its process does.
    """

    path: DeploymentPath
    run: str
    since: EarlierVerification | None
    task: AuditTask


@dataclass(slots=True)
class _Live:
    """A verification that is not over."""

    entry: Verification
    task: AuditTask
    is_cancelled: bool = False


class Verifications:
    """Takes, runs and remembers verifications; safe to share between threads.

    Nothing is written, and no thread runs, before the first one.

    Args:
        folder: where reports are kept.
        bounds: how much they may take.
        target: what each process does.
    """

    def __init__(
        self,
        folder: Path,
        bounds: VerificationBounds,
        target: Callable[[AuditTask, Connection], None] = run_task,
    ) -> None:
        self.bounds = bounds
        self._reports = ReportFolder(folder, bounds.kept)
        self._target = target
        self._lock = threading.Lock()
        self._live: dict[str, _Live] = {}
        self._waiting: deque[str] = deque()
        self._runner: threading.Thread | None = None
        self._is_closing = False

    def begin(self, asked: VerificationOrder) -> Verification:
        """Take a verification; it runs as soon as those before it have ended.

        Args:
            asked: what is wanted.

        Returns:
            The waiting verification.

        Raises:
            AlreadyVerifyingError: one of this deployment is not over.
            QueueFullError: too many wait.
            ReportsError: reports cannot be kept.
        """
        with self._lock:
            chain, address = asked.path.chain.name, asked.path.address
            for live in self._live.values():
                if (live.entry.chain, live.entry.address) == (chain, address):
                    raise AlreadyVerifyingError(live.entry.verification)
            if len(self._live) > self.bounds.waiting:
                raise QueueFullError(f"{self.bounds.waiting} verifications wait already")
            if self._is_closing:
                raise QueueFullError("the service is ending")
            self._reports.own()
            entry = _asked_now(asked)
            self._reports.write(entry)
            self._reports.forget_oldest()
            self._live[entry.verification] = _Live(entry, asked.task)
            self._waiting.append(entry.verification)
            if self._runner is None:
                self._runner = threading.Thread(target=self._run_all, name="verifications")
                self._runner.start()
            return entry

    def find(self, name: str) -> Verification | None:
        """Return a verification; None if there is none."""
        with self._lock:
            live = self._live.get(name)
            return self._reports.find(name) if live is None else live.entry

    def all(self) -> tuple[list[Verification], int]:
        """Return all verifications, the newest first, and how many files are none."""
        with self._lock:
            entries, unreadable = self._reports.read()
            live = {name: running.entry for name, running in self._live.items()}
        return [live.get(entry.verification, entry) for entry in entries], unreadable

    def report(self, entry: Verification) -> bytes | None:
        """Return a verification's report; None if it has none."""
        return self._reports.report(entry)

    def cancel(self, name: str) -> Verification:
        """Cancel a waiting or running verification; it gets no verdict."""
        with self._lock:
            live = self._live.get(name)
            if live is None:
                raise NotRunningError(f"verification {name} is over")
            live.is_cancelled = True
            if live.entry.state is VerificationState.WAITING:
                self._waiting.remove(name)
                self._end(live, ProcessResult(VerificationState.CANCELLED))
            return live.entry

    def close(self) -> None:
        """End all that waits and runs, and give the folder back."""
        with self._lock:
            self._is_closing = True
            runner = self._runner
        if runner is not None:
            runner.join()
        with self._lock:
            self._reports.close()

    def _run_all(self) -> None:
        while (live := self._next()) is not None:
            ended = self._run(live)
            with self._lock:
                self._end(live, ended)

    def _next(self) -> _Live | None:
        """Return what runs next; without anything this thread is done."""
        with self._lock:
            if self._is_closing:
                for name in self._waiting:
                    self._end(
                        self._live[name],
                        ProcessResult(VerificationState.INTERRUPTED, WhyNoVerdict.SERVICE_ENDED),
                    )
                self._waiting.clear()
            if not self._waiting:
                self._runner = None
                return None
            live = self._live[self._waiting.popleft()]
            now = int(time.time())
            self._change(
                live, state=VerificationState.RUNNING, begun=now, begun_at=time_of(now)["at"]
            )
            self._keep(live.entry)
            return live

    def _run(self, live: _Live) -> ProcessResult:
        def stopped() -> ProcessResult | None:
            if live.is_cancelled:
                return ProcessResult(VerificationState.CANCELLED)
            if self._is_closing:
                return ProcessResult(VerificationState.INTERRUPTED, WhyNoVerdict.SERVICE_ENDED)
            return None

        def tell(progress: VerificationProgress) -> None:
            with self._lock:
                self._change(live, progress=progress)

        try:
            return run_in_process(live.task, self.bounds.seconds, stopped, tell, self._target)
        except (OSError, ValueError):
            # No process, no memory for one, or a message that is none: the log tells which.
            _log.exception("verification %s", live.entry.verification)
            return ProcessResult(VerificationState.STOPPED, WhyNoVerdict.FAULT)

    def _end(self, live: _Live, ended: ProcessResult) -> None:
        """Note how a verification ended: its report first, then what says that there is one."""
        name, now = live.entry.verification, int(time.time())
        changes: dict[str, Any] = {"state": ended.state, "why": ended.why}
        if ended.summary is not None:
            changes |= {"verdict": ended.summary.verdict, "progress": ended.summary.progress}
        if ended.state is VerificationState.FINISHED:
            digest = f"0x{sha256(ended.report).hex()}"
            changes["report"] = KeptReport(sha256=digest, bytes=len(ended.report))
            try:
                self._reports.write_report(name, ended.report)
            except ReportsError:
                _log.exception("verification %s", name)
                changes = {"state": VerificationState.STOPPED, "why": WhyNoVerdict.FAULT}
        self._change(live, ended=now, ended_at=time_of(now)["at"], **changes)
        self._keep(live.entry)
        del self._live[name]

    def _keep(self, entry: Verification) -> None:
        try:
            self._reports.write(entry)
        except ReportsError:
            # The file still says that it is not over: for whoever reads it, it was interrupted.
            _log.exception("verification %s", entry.verification)

    def _change(self, live: _Live, **changes: Any) -> None:
        changes["sequence"] = live.entry.sequence + 1
        live.entry = live.entry.model_copy(update=changes)


def read_earlier(
    runs: Verifications, entry: Verification, ledger: CommitteeLedger, *, strict: bool
) -> tuple[EarlierVerification, bytes]:
    """Return where an earlier verification ended, and its report.

    Args:
        runs: has the report.
        entry: the earlier verification.
        ledger: the contract that is to be audited.
        strict: whether the new one is strict.

    Raises:
        EarlierReportError: it has not passed, or is of another contract or chain.
        ReportsError: its report is not the stored one.
    """
    report = runs.report(entry)
    if report is None:
        raise EarlierReportError(f"verification {entry.verification} has no report")
    audit = read_report(report)
    audit.require_of(ledger, strict=strict)
    earlier = EarlierVerification(
        verification=entry.verification,
        report=f"0x{audit.report.hex()}",
        head=f"0x{audit.head.hex()}",
        block=audit.block,
        block_hash=f"0x{audit.block_hash.hex()}",
        rounds=audit.rounds,
    )
    return earlier, report


def _asked_now(asked: VerificationOrder) -> Verification:
    clock = datetime.now(UTC)
    now = int(clock.timestamp())
    stamp = f"{clock:%Y%m%dT%H%M%S}{clock.microsecond // 1000:03d}Z"
    name = f"{stamp}-{secrets.token_hex(4)}"
    path = f"{asked.path}/verifications/{name}"
    head = asked.task.head
    return Verification(
        verification=name,
        chain=asked.path.chain.name,
        address=asked.path.address,
        run=asked.run,
        state=VerificationState.WAITING,
        why=None,
        sequence=1,
        asked=now,
        asked_at=time_of(now)["at"],
        begun=None,
        begun_at=None,
        ended=None,
        ended_at=None,
        strict=asked.task.strict,
        kept_head=None if head is None else f"0x{head.hex()}",
        since=asked.since,
        progress=None,
        verdict=None,
        report=None,
        links={"self": path, "events": f"{path}/events", "report": f"{path}/report"},
    )
