"""The process of one verification, watched from outside: bounds, messages, and how it ended."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from api.schemas.verifications import Verdict, VerificationProgress, VerificationState, WhyNoVerdict
from api.verifications.audit_worker import Exit, Message, run_task
from ledger.audit.earlier_report import MAX_REPORT_BYTES
from ledger.io.processes import start_child

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

    from api.verifications.audit_worker import AuditTask

LOOK_SECONDS = 0.1
LEAVE_SECONDS = 5
"""From its last word to its end; a loaded machine takes long to clean up a process."""
_WHY = {
    Exit.FAULT: WhyNoVerdict.FAULT,
    Exit.MEMORY: WhyNoVerdict.MEMORY,
    Exit.CHAIN: WhyNoVerdict.CHAIN,
    Exit.EARLIER_REPORT: WhyNoVerdict.EARLIER_REPORT,
    -signal.SIGXCPU: WhyNoVerdict.CPU_SECONDS,
}


class ReportSummary(BaseModel):
    """The part of a report that answers contain."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    verdict: Verdict
    progress: VerificationProgress


@dataclass(slots=True)
class ProcessResult:
    """The end of a verification process.

    Attributes:
        state: finished only where all of its report has come.
        why: there is no verdict.
        summary: verdict and steps, as answers have them.
        report: the report's bytes.
    """

    state: VerificationState
    why: WhyNoVerdict | None = None
    summary: ReportSummary | None = None
    report: bytes = b""


def run_in_process(
    task: AuditTask,
    seconds: float,
    stopped: Callable[[], ProcessResult | None],
    tell: Callable[[VerificationProgress], None],
    target: Callable[[AuditTask, Connection], None] = run_task,
) -> ProcessResult:
    """Run an audit in its own process, and return its result after the process has ended.

    Args:
        task: what is audited.
        seconds: after which it is ended.
        stopped: polled; returns the result of a cancelled audit.
        tell: called with its progress.
        target: what the process does.

    Raises:
        OSError: there can be no process.
        ValueError: a message is none of ours.
    """
    child = start_child(target, task)
    try:
        ended = _watched(child.connection, time.monotonic() + seconds, stopped, tell)
        # It has closed the connection, and its exit code is to come.
        return ended or _without_verdict(child.exit_code(LEAVE_SECONDS))
    finally:
        child.close()


def _watched(
    messages: Connection,
    deadline: float,
    stopped: Callable[[], ProcessResult | None],
    tell: Callable[[VerificationProgress], None],
) -> ProcessResult | None:
    """Return how it ended, None where only the process's exit code says so."""
    summary: ReportSummary | None = None
    while True:
        if (end := stopped()) is not None:
            return end
        if time.monotonic() >= deadline:
            return ProcessResult(VerificationState.STOPPED, WhyNoVerdict.SECONDS)
        if not messages.poll(LOOK_SECONDS):
            continue
        try:
            data = messages.recv_bytes(MAX_REPORT_BYTES + 1)
        except (EOFError, OSError):
            return None
        kind, body = data[:1], data[1:]
        if kind == Message.PROGRESS:
            tell(VerificationProgress.model_validate_json(body))
        elif kind == Message.SUMMARY:
            summary = ReportSummary.model_validate_json(body)
        elif summary is not None:
            return ProcessResult(VerificationState.FINISHED, summary=summary, report=body)


def _without_verdict(code: int | None) -> ProcessResult:
    """Return why a process that has sent no report ended."""
    why = None if code is None else _WHY.get(code)
    if why is None:
        return ProcessResult(VerificationState.INTERRUPTED, WhyNoVerdict.WORKER_ENDED)
    return ProcessResult(VerificationState.STOPPED, why)
